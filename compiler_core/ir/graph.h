// Graph: an immutable dataflow DAG over tensors. Nodes stand in topological order (operands before
// users), equal nodes are one node, inputs are known by position. Shared freely between threads.
// GraphBuilder is the only way to make one; see builder.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "compiler_core/base/dtype.h"
#include "compiler_core/ir/op.h"
#include "compiler_core/ir/shape.h"

namespace kiln {

using NodeId = int32_t;  // an index into Graph::nodes()
inline constexpr NodeId kInvalidNode = -1;

struct InputAttr {
  int index = 0;  // position among the graph's inputs
  bool operator==(const InputAttr&) const = default;
};
struct ConstantAttr {
  // The value: the bits of a double for float dtypes (already rounded to the dtype), of an int64
  // for integers and bool. NaNs are one canonical NaN.
  uint64_t bits = 0;
  double as_double() const;
  int64_t as_int() const { return static_cast<int64_t>(bits); }
  bool operator==(const ConstantAttr&) const = default;
};
struct ViewAttr {
  std::vector<Dim> strides;  // one per output axis, in elements of the flattened operand
  Dim offset;
  bool operator==(const ViewAttr&) const = default;
};
struct PadAttr {
  std::vector<Dim> low, high;  // one per axis, not negative
  ConstantAttr value;
  bool operator==(const PadAttr&) const = default;
};
struct AxisAttr {  // concat, scan
  int axis = 0;
  bool operator==(const AxisAttr&) const = default;
};
struct ReduceAttr {
  std::vector<int> axes;  // ascending, without repetition
  bool operator==(const ReduceAttr&) const = default;
};
struct ConvolutionAttr {                  // one entry for each spatial axis
  std::vector<int64_t> stride, dilation;  // at least 1
  std::vector<int64_t> low, high;         // zeros before and after; not negative
  int64_t groups = 1;
  bool operator==(const ConvolutionAttr&) const = default;
};
enum class Combine : uint8_t { kSet, kAdd, kMul, kMax, kMin };  // persisted by name
std::string_view to_string(Combine combine);                    // "set", "add", ...
Result<Combine> parse_combine(std::string_view name);
struct ScatterAttr {
  Combine combine = Combine::kSet;
  bool operator==(const ScatterAttr&) const = default;
};
struct SortAttr {
  bool descending = false;
  bool operator==(const SortAttr&) const = default;
};
struct PhiloxAttr {
  int64_t stream = 0;  // not negative; differs between the random values of one graph
  bool operator==(const PhiloxAttr&) const = default;
};
struct CustomCall;
struct CustomAttr {
  std::shared_ptr<const CustomCall> call;          // not null
  bool operator==(const CustomAttr& other) const;  // by what they say, not by address
};
using Attr =
    std::variant<std::monostate, InputAttr, ConstantAttr, ViewAttr, PadAttr, AxisAttr, ReduceAttr,
                 ConvolutionAttr, ScatterAttr, SortAttr, PhiloxAttr, CustomAttr>;

struct Node {
  Op op = Op::kInput;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<NodeId> operands;
  Attr attr;
  bool operator==(const Node&) const = default;
};

struct Symbol {
  SymbolRange range;
  int64_t hint = 0;  // the size it was exported with; 0 when unknown; not part of any digest
  bool operator==(const Symbol&) const = default;
};

// Where a node came from in the user's program. No part of what a graph computes: ==, digests and
// the text form do not know of it.
struct Origin {
  std::string op;      // "aten.linear.default"
  std::string source;  // "model.py:42 in forward"; empty when not known
  std::string module;  // the submodule's path: "layers.0.mlp"; empty for the model itself
  bool operator==(const Origin&) const = default;
};
using OriginId = int32_t;  // an index into Graph::origins()
inline constexpr OriginId kNoOrigin = -1;

class Graph {
 public:
  Graph() = default;

  std::span<const Node> nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  std::span<const NodeId> inputs() const { return inputs_; }    // the kInput nodes, by position
  std::span<const NodeId> outputs() const { return outputs_; }  // may repeat a node
  std::span<const Symbol> symbols() const { return symbols_; }

  // The origin of the op that `node` was first made for; kNoOrigin if none was given.
  OriginId origin_of(NodeId node) const { return origin_of_[static_cast<size_t>(node)]; }
  std::span<const Origin> origins() const {
    return origins_ ? std::span<const Origin>(*origins_) : std::span<const Origin>();
  }

  bool operator==(const Graph& other) const;  // origins aside

 private:
  friend class GraphBuilder;
  std::vector<Node> nodes_;
  std::vector<NodeId> inputs_;
  std::vector<NodeId> outputs_;
  std::vector<Symbol> symbols_;
  std::vector<OriginId> origin_of_;                     // by node
  std::shared_ptr<const std::vector<Origin>> origins_;  // null when there are none
};

// users[i] are the nodes that read node i, ascending, with repetition.
std::vector<std::vector<NodeId>> users_of(const Graph& graph);

}  // namespace kiln
