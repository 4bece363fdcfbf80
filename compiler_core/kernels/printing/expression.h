// ExpressionPrinter: prints the elementwise part of a workload as C++ statements over vectors of
// LANES values (device/ has the vocabulary of each target). One owner, one thread; keeps a
// reference to the graph, which must outlive it.
//
// Registers. A value lives in a vector of its register type: f64 in vf64, f32 and the half types in
// vf32 (a half is an f32 that the type can represent), i64 in vi64, the smaller integers in vi32
// (wrapped to their range), bool in vi32 as 0 or -1. Values that do not vary by lane are splats.
//
// Levels. A statement is emitted at the outermost level where its operands are known, so a value
// that a broadcast repeats is computed once a row. The caller asks for the text of each level with
// take() and puts it at the head of that loop's body, or, when it prints several loops after one
// another, the outer text in front of the loop that needs it.
//
// Names in the generated code: `in0..`, `out0..` are typed pointers to the arguments, `s0..` the
// graph's symbols, `live` says
// how many lanes exist: AllLanes, or SomeLanes with a count, so that one body serves whole vectors
// and tails without reading or writing past an end.
//
// A matmul epilogue, for an output of shape [b, m, n]:
//   ExpressionPrinter printer(graph);
//   printer.bind(matmul, {"acc", Level::kInner});
//   const std::vector<Index> at = {batch, row, column};       // column: LoopVar::Kind::kVector
//   printer.store(0, at);
//   body = printer.take(Level::kKernel) + ... printer.take(Level::kOuter) + ...
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler_core/base/result.h"
#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/printing/index.h"
#include "compiler_core/kernels/printing/value_text.h"

namespace kiln {

struct Register {
  std::string name;
  Level level = Level::kInner;
  bool splat = false;  // every lane is known to hold the same value
};

// Both targets have the same vocabulary. A CUDA load or store says how far its address is aligned,
// which decides how wide it is. Where all that comes of a value is rounded to halves in the end, it
// is computed to some units in the last place of f32, and a half on the way keeps the precision of
// the f32 it lies in, as in Inductor's kernels; what lies in memory as f32 is rounded where the graph says.
enum class Dialect : uint8_t { kCpu, kCuda };

// Whether some node is a Philox, which takes vocabulary of its own: random.h, random.cuh.
bool has_random_values(const Graph& graph);
// Whether some node is an 8-bit float that products take: f8.h; or e8m0: e8m0.h, e8m0.cuh.
bool has_f8(const Graph& graph);
bool has_e8m0(const Graph& graph);

class ExpressionPrinter {
 public:
  explicit ExpressionPrinter(const Graph& graph, Dialect dialect = Dialect::kCpu);

  // `node` is in this register, whatever the index: an accumulator, a reduction's result. A half
  // type's register is f32 rounded to it.
  void bind(NodeId node, Register at);
  // `node` lies in memory as its dtype at `pointer` (an expression), element sum(index * stride).
  void bind_buffer(NodeId node, std::string pointer, std::vector<Dim> strides);
  // `node` waits as it lies in memory in `packed`, a Packed of its dtype (CUDA): it is unpacked in
  // every loop that reads it.
  void bind_packed(NodeId node, std::string packed);
  void unbind(NodeId node);

  // Emits, in the innermost statements, what brings an input, or Views of one and Gathers from one, to
  // `packed`: an assignment, or, where `copies` and it lies there as a vector, a copy_packed() into it.
  void load_packed(NodeId node, std::span<const Index> at, const std::string& packed, bool copies);
  // The address of what load_packed() reads, as C text. Nothing where it is no vector of so many
  // neighbours, aligned to their number.
  std::optional<std::string> vector_address(NodeId node, std::span<const Index> at, int64_t lanes);
  // The coordinates that a View reads in its operand, which is no input.
  std::vector<Index> viewed(const Node& view, std::span<const Index> at);
  // The element of its buffer that an input, or a View of one, reads at an index.
  Index place(NodeId node, std::span<const Index> at) const;

  // Tells of rows that begin anywhere (CUDA): every vector stands where `at` is a multiple of
  // `lanes`, and `inner` a multiple less the variable `phase`. Buffers that lie as `at` does are
  // read and written in whole vectors, those that lie as `inner` does in shifted ones. Dead lanes
  // of a row's first and last vector are read as far as their buffer goes.
  void align(Index at, Index inner, int64_t lanes);

  // The value of `node` at an index of its own shape. REQUIRES: reductions and matmuls are bound.
  Register value(NodeId node, std::span<const Index> at);

  // Tells that vectors are `lanes` wide and stand at multiples of it along the axis that they lie on:
  // where lines of another shape, or the parts of a Concat, begin at such, a vector lies in one of them.
  void whole_vectors(int64_t lanes) { lanes_ = lanes; }

  // Stores output `position` of the graph at an index of its shape, in the innermost statements.
  // `stream`: with stores that go past the caches (whole vectors only; tails are plain).
  void store(int position, std::span<const Index> at, bool stream = false);
  // The same for one element: lane 0, printed at the value's own level.
  void store_one(int position, std::span<const Index> at);
  // Stores a value to memory of the kernel's own, as the type of `pointer` (see bind_buffer).
  void store_to(const Register& value, const std::string& pointer, const Index& at);

  // Statements of this level since the last take(), each line indented by `indent`. Values of the
  // level kInner are forgotten by take(Level::kInner): the next loop computes its own.
  std::string take(Level level, int indent);

  // A raw statement at `level`.
  void emit(Level level, const std::string& statement);
  // A fresh name: v0, v1, ...
  std::string fresh();

  // Where a Pad or Concat cuts the range of the vector variable, ascending: splitting that loop
  // there leaves no per-lane selection. Known after the values were printed once.
  const std::vector<int64_t>& cuts() const { return cuts_; }

 private:
  struct Buffer {
    std::string pointer;
    std::vector<Dim> strides;
  };
  using Indices = std::span<const Index>;
  struct Condition;

  Register compute(NodeId id, Indices at);
  bool allows_rough(NodeId id) const;
  bool lies_in_memory(NodeId id) const;
  int64_t alignment(const Index& at) const;
  std::string aligned(std::string_view function, const Index& at) const;
  // The argument of a load of lanes next to one another at `at` that tells live ones: "live".
  std::string live(const Index& at, const Dim& elements) const;
  bool is_shifted(const Index& at, const Dim& elements) const;
  Register define(Level level, bool splat, DType dtype, const std::string& expression);
  Register define(Level level, bool splat, std::string_view type, const std::string& expression);
  Register constant(DType dtype, const ConstantAttr& value);
  Register iota(DType dtype, const Index& at);
  // An i64 that is a position along an axis or a constant, in a register of i32 if it fits.
  std::optional<Register> position(NodeId id, Indices at);
  Register elementwise(NodeId id, Indices at);
  // The x of x * 0.5 * (1 + erf(x / sqrt(2))) in f32, whose steps nothing else reads.
  std::optional<NodeId> gelu_operand(NodeId id) const;
  bool is_step(NodeId id, Op op) const;
  bool is_scalar(NodeId id, float value) const;
  // `elements`: of the buffer.
  Register load(DType dtype, const std::string& pointer, const Index& at, const Dim& elements);
  Register view(const Node& node, Indices at);
  Register part(NodeId id, Indices at, const Dim& size);
  Register pad(const Node& node, Indices at);
  struct Part {  // of a Concat, along its axis
    NodeId id;
    Dim begin, end;
  };
  Register concat(const Node& node, Indices at);
  bool is_whole_vector(const Index& at) const;
  std::vector<Part> reach(const Node& node, const Index& along);
  bool choose_alike(const Index& along, std::span<const Part> parts) const;
  bool is_read_at(const Part& part, Indices at, const Dim& stride) const;
  std::string address(std::span<const Part> parts, std::vector<Index> at, size_t axis,
                      const Index& along, const Dim& origin, Level& level,
                      int64_t& alignment) const;
  Register read(const Node& node, std::span<const Part> parts, Indices at, bool alike);
  Register gather(const Node& node, Indices at);
  // The place in its flattened operand that a View reads.
  static Index flat(const Node& view, Indices at);
  // The coordinates that a Gather reads in its table.
  std::vector<Index> gathered(const Node& node, Indices at);
  // `at`: in the row-major order of the node.
  Register random(const Node& node, const Index& at);
  Register choose(DType dtype, const Condition& condition, const Register& yes, const Register& no);
  std::vector<Index> coordinates(const Index& flat, const Shape& shape);
  // A new variable with values in [begin, end): `scalar` or, per lane, `lanes` is its text.
  Index variable(const Index& from, const std::string& before, const std::string& after, Dim end);
  void cut(const Index& at, const Dim& boundary);
  std::string key(NodeId id, Indices at) const;

  static constexpr int64_t kWidestAccess = 16;  // elements of one byte

  const Graph& graph_;
  const Dialect dialect_;
  const std::vector<bool> plain_nans_;      // of each node: see find_plain_nans
  const std::vector<bool> ends_in_halves_;  // of each node: all that comes of it is rounded to one
  const std::vector<bool> stored_as_halves_;  // of each node: see find_stored_as_halves
  const std::vector<int> reads_;  // of each node: by other nodes, and one more for every output
  std::map<NodeId, Register> bound_;
  std::map<NodeId, Buffer> buffers_;
  std::map<NodeId, std::string> packed_;
  struct Rows {
    Index at, inner;
    int64_t lanes = 1;
  };
  std::optional<Rows> rows_;  // of align()
  int64_t lanes_ = 0;         // of whole_vectors(); 0: not told
  std::string readable_;  // C text: when the buffers that are read have elements; "" when they do
  std::map<std::string, Register> known_;    // by node and index
  std::map<std::string, Register> defined_;  // by the text of type and expression
  std::string text_[3];                      // by level
  std::vector<int64_t> cuts_;
  int next_ = 0;
};

}  // namespace kiln
