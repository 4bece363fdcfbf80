// Lowering: ATen nodes to core ops. Each covered op has one small function that reads its arguments
// by their schema names from a Call and writes core nodes through the Call's builder. Mistakes
// stick to the builder, so that the functions read as expressions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/named_values.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

// The elements of a constant tensor, in the layout of the graph's input; nothing where they are not
// at hand.
using ConstantElements = std::function<std::optional<Tensor>(const ExportedInput& constant)>;
// The graph and its inputs, whose payloads are not looked up yet. `elements` are asked for where the
// program takes a number out of a constant tensor. Errors as read_exported_program.
Result<ExportedProgram> lower_exported_model(const ExportedModel& model,
                                             const ConstantElements& elements = {});
// As refused_nodes().
Result<std::vector<RefusedNode>> refused_nodes_of(const ExportedModel& model);
class Pt2Archive;
// As read_exported_program().
Result<ExportedProgram> read_archive(const Pt2Archive& archive);

// A Python number among the arguments; it takes part in type promotion by its kind only.
struct Number {
  enum class Kind : uint8_t { kBool, kInt, kFloat };
  Kind kind = Kind::kInt;
  double value = 0;
  Dim integer;  // exact, and perhaps symbolic, for kBool and kInt
};

// A tensor or a number.
struct Operand {
  NodeId id = kInvalidNode;
  std::optional<Number> number;
};

// The source of a program's random values: one seed for all of them, an input that exists only when
// it is needed, and a stream of its own for each.
struct RandomSource {
  NodeId seed = kInvalidNode;
  int64_t next_stream = 0;
};

// The arguments of one ATen node. Every accessor that meets a wrong or missing argument records the
// error in the builder and returns a harmless value.
class Call {
 public:
  // `declared`: the tensors of the graph that the node stands in.
  Call(GraphBuilder& builder, const ExportedModel& model, const DeclaredTensors& declared,
       const ExportedNode& node, NamedValues& values, RandomSource& random)
      : b(builder),
        model_(model),
        declared_(declared),
        node_(node),
        values_(values),
        random_(random) {}

  GraphBuilder& b;

  bool has(std::string_view name) const;      // given, and not None
  bool is_list(std::string_view name) const;  // given as a list of integers
  NodeId tensor(std::string_view name);
  NodeId optional_tensor(std::string_view name);  // kInvalidNode when absent
  std::vector<NodeId> tensors(std::string_view name);
  // kInvalidNode for a None among them.
  std::vector<NodeId> optional_tensors(std::string_view name);
  Operand operand(std::string_view name);
  Number number(std::string_view name);
  double real(std::string_view name, std::optional<double> fallback = {});
  // A size or index, perhaps symbolic.
  Dim size(std::string_view name, std::optional<Dim> fallback = {});
  std::vector<Dim> sizes(std::string_view name);
  int64_t integer(std::string_view name, std::optional<int64_t> fallback = {});
  bool flag(std::string_view name, bool fallback);
  std::vector<bool> flags(std::string_view name);    // empty when absent
  std::vector<double> reals(std::string_view name);  // integers count; empty when absent
  std::string_view text(std::string_view name, std::string_view fallback);
  DType dtype(std::string_view name, DType fallback);
  // The type of the components where a complex dtype is given.
  std::optional<DType> complex_dtype(std::string_view name) const;
  // An axis of a tensor of `rank`, counted from the front; a scalar has the one axis 0.
  int axis(std::string_view name, size_t rank, std::optional<int64_t> fallback = {});
  // Ascending axes; all of them when absent or empty.
  std::vector<int> axes(std::string_view name, size_t rank);
  // Axes as they are listed, each once.
  std::vector<int> listed_axes(std::string_view name, size_t rank);

  // Whether it is a tensor of complex numbers: of pairs, along a last axis of 2 (complex_values.h); or
  // one such number.
  bool is_complex(std::string_view name) const;
  std::optional<std::complex<double>> complex_number(std::string_view name) const;
  // Whether any tensor that the op reads or gives is.
  bool has_complex() const;
  // Whether the tensor is declared to lie row-major from the beginning of its storage.
  bool lies_row_by_row(std::string_view name) const;
  // From here on tensors of complex numbers are read as one part of them. Of a real one the imaginary
  // part is 0; what is no float (an index, a condition) is read as it is.
  enum class Part : uint8_t { kAll, kReal, kImaginary };
  void read(Part part) { part_ = part; }
  // From here on floating operands are cast to the dtype that the first output is declared to have.
  void compute_in_declared_type();
  // From here on operands are cast to what their dtype and this one promote to.
  void promote_to(DType type) { promote_to_ = type; }

  // x in another dtype, as the PyTorch that wrote the model converts it: what lies beyond the range of
  // e4m3fn becomes its largest number there from 2.13 on, and NaN before.
  NodeId converted(NodeId x, DType type);

  // Uniform in [0, 2^32), as i64, from a stream of its own.
  NodeId random_words(Shape shape);
  // The tensor given as `name` is `value`, of its dtype and shape, once this op is done.
  void overwrite(std::string_view name, NodeId value);
  struct Overwritten {
    std::string_view tensor;
    NodeId value = kInvalidNode;
  };
  std::span<const Overwritten> overwritten() const { return overwritten_; }
  // Stands for the tensor of that name among the arguments.
  void substitute(std::string_view tensor, NodeId value) { substituted_ = {tensor, value}; }
  // The name of the first tensor among the arguments; empty when there is none.
  std::string_view first_tensor() const;

  bool ok() const { return b.ok(); }
  std::span<const Symbol> symbols() const { return model_.symbols; }
  size_t output_count() const;
  NodeId invalid(std::string why);      // the archive contradicts itself
  NodeId unsupported(std::string why);  // this form of the op is not covered

 private:
  const Argument* find(std::string_view name) const;
  bool is_complex_tensor(std::string_view tensor) const;
  NodeId as_precise_as_the_result(NodeId number);
  NodeId lookup(TensorName name);
  NodeId as_read(std::string_view tensor, NodeId value);
  void wrong(std::string_view name, std::string_view expected);
  template <class T>
  const T* require(std::string_view name, std::string_view expected);

  const ExportedModel& model_;
  const DeclaredTensors& declared_;
  const ExportedNode& node_;
  NamedValues& values_;
  RandomSource& random_;
  std::vector<Overwritten> overwritten_;
  Overwritten substituted_;
  Part part_ = Part::kAll;
  std::optional<DType> cast_to_, promote_to_;
};

// The op's outputs, in order; what they are does not matter once the builder holds an error.
using Values = std::vector<NodeId>;
struct Lowering {
  std::string_view name;  // "aten.linear.default"
  Values (*lower)(Call&);
};

// One list a subject; find_lowering knows them all. Null when the op is not covered.
std::span<const Lowering> arithmetic_lowerings();
std::span<const Lowering> activation_lowerings();
std::span<const Lowering> view_lowerings();
std::span<const Lowering> creation_lowerings();
std::span<const Lowering> indexing_lowerings();
std::span<const Lowering> reduction_lowerings();
std::span<const Lowering> scan_lowerings();
std::span<const Lowering> normalisation_lowerings();
std::span<const Lowering> matmul_lowerings();
std::span<const Lowering> linear_algebra_lowerings();
std::span<const Lowering> convolution_lowerings();
std::span<const Lowering> pooling_lowerings();
std::span<const Lowering> adaptive_pooling_lowerings();
std::span<const Lowering> attention_lowerings();
std::span<const Lowering> einsum_lowerings();
std::span<const Lowering> recurrent_lowerings();
std::span<const Lowering> elementwise_lowerings();
std::span<const Lowering> special_lowerings();
std::span<const Lowering> loss_lowerings();
std::span<const Lowering> backward_lowerings();
std::span<const Lowering> norm_backward_lowerings();
std::span<const Lowering> scatter_lowerings();
std::span<const Lowering> sorting_lowerings();
std::span<const Lowering> random_lowerings();
std::span<const Lowering> resampling_lowerings();
std::span<const Lowering> rearranging_lowerings();
std::span<const Lowering> stacking_lowerings();
std::span<const Lowering> embedding_bag_lowerings();
std::span<const Lowering> expert_lowerings();
std::span<const Lowering> quantised_lowerings();
std::span<const Lowering> scaled_mm_lowerings();
std::span<const Lowering> bit_lowerings();
std::span<const Lowering> packed_weight_lowerings();
std::span<const Lowering> torchao_lowerings();
std::span<const Lowering> complex_lowerings();
std::span<const Lowering> fourier_lowerings();
const Lowering* find_lowering(std::string_view name);
// Every op that has one, by name.
std::vector<std::string_view> covered_ops();
// Checks that only constrain the exporter's own tracing, and give no tensor.
bool is_ignored_op(std::string_view name);
// Whether the op takes a number out of a tensor.
bool is_number_op(std::string_view name);
// Whether the op's outputs share the memory of its first tensor: what is written to one is seen in
// the other.
bool is_view_op(std::string_view name);
// "aten.add_.Tensor" is aten.add.Tensor and changes its first tensor; nothing when `name` changes
// none.
std::optional<std::string> functional_op(std::string_view name);

}  // namespace kiln
