// GraphBuilder: makes a Graph node by node. Every function infers shape and dtype, checks its
// operands with the verifier's rules and interns the node. The first mistake sticks: it is kept,
// later calls return kInvalidNode, and finish() returns the error; so that a decomposition reads as
// plain expressions. One owner, one thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "compiler_core/ir/graph.h"

namespace kiln {

class GraphBuilder {
 public:
  SymbolId symbol(SymbolRange range, int64_t hint);

  // Inputs are positional, in call order.
  NodeId input(DType dtype, Shape shape);
  NodeId constant(DType dtype, double value);  // rounded to dtype
  NodeId constant_int(DType dtype, int64_t value);
  NodeId iota(DType dtype, Dim size);

  // Elementwise. `op` of the matching kind; operands of equal shape (binary, compare: equal dtype).
  NodeId unary(Op op, NodeId x);             // not kCast
  NodeId binary(Op op, NodeId a, NodeId b);  // arithmetic, logic and comparisons
  NodeId select(NodeId condition, NodeId a, NodeId b);
  NodeId cast(NodeId x, DType dtype);  // x itself when nothing changes

  // Index maps. All but pad and concat become one View, composed with the operand's own when the
  // result is still one View, and nothing at all when the map is the identity.
  NodeId view(NodeId x, Shape shape, std::vector<Dim> strides, Dim offset);
  NodeId reshape(NodeId x, Shape shape);  // equal numel
  NodeId permute(NodeId x, std::span<const int> axes);
  NodeId permute(NodeId x, std::initializer_list<int> axes) {
    return permute(x, std::span<const int>(axes.begin(), axes.size()));
  }
  // PyTorch's broadcasting: axes align from the right, size 1 repeats.
  NodeId broadcast(NodeId x, Shape shape);
  // `axes[i]` is the output axis that operand axis i becomes; the others repeat.
  NodeId broadcast_in(NodeId x, Shape shape, std::span<const int> axes);
  // Elements start, start+step, ... along `axis`, `size` of them; step may be negative.
  NodeId slice(NodeId x, int axis, const Dim& start, Dim size, int64_t step = 1);
  NodeId pad(NodeId x, std::vector<Dim> low, std::vector<Dim> high, ConstantAttr value);
  NodeId concat(std::span<const NodeId> xs, int axis);

  NodeId reduce(Op op, NodeId x, std::vector<int> axes, bool keep_dims = false);
  NodeId scan_sum(NodeId x, int axis);
  NodeId matmul(NodeId a, NodeId b);
  // `low`, `high`, `stride`, `dilation`: one entry for each spatial axis of x [n, channels, ...].
  NodeId convolution(NodeId x, NodeId w, ConvolutionAttr attr);
  NodeId gather(NodeId x, NodeId index);
  NodeId scatter(NodeId x, NodeId index, NodeId updates, Combine combine);
  NodeId argsort(NodeId x, bool descending);  // along the last axis
  NodeId philox(NodeId seed, Shape shape, int64_t stream);
  NodeId custom_call(std::shared_ptr<const CustomCall> call, std::span<const NodeId> operands);

  // Adds `node` as it stands after checking it (the text form, rewrites).
  NodeId add(Node node);

  // New nodes come from `origin` from here on; a node that exists already keeps its own.
  void begin_origin(Origin origin);
  // The same for a rewrite of `graph`: its origins are this builder's, and new nodes come from
  // `origin`, one of them or kNoOrigin.
  void carry_origins(const Graph& graph);
  void set_origin(OriginId origin) { origin_ = origin; }
  OriginId origin() const { return origin_; }  // of new nodes

  // REQUIRES: id is a node of this builder. The sticky-error node answers as a scalar f32.
  const Node& node(NodeId id) const;
  const Shape& shape(NodeId id) const { return node(id).shape; }
  DType dtype(NodeId id) const { return node(id).dtype; }

  // Records `error` if it is the first.
  NodeId fail_with(Error error);
  bool ok() const { return !error_; }
  const Error* error() const { return error_ ? &*error_ : nullptr; }
  // For callers that try a node and go on without it. Nodes that were built before stay.
  void forget_error() { error_.reset(); }

  // Nodes that no output needs stay; passes/normalise drops them. The builder is spent.
  Result<Graph> finish(std::vector<NodeId> outputs);

 private:
  NodeId intern(Node node);
  bool valid(std::initializer_list<NodeId> ids) const;

  Graph graph_;
  std::unordered_multimap<size_t, NodeId> interned_;  // by hash of the node
  std::shared_ptr<std::vector<Origin>> new_origins_;  // passed to begin_origin()
  OriginId origin_ = kNoOrigin;
  std::optional<Error> error_;
};

// The bits of a float constant of `dtype`: rounded to it, one NaN.
ConstantAttr constant_bits(DType dtype, double value);

}  // namespace kiln
