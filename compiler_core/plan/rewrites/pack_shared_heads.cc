#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

// Matrices of a product's second operand, each of which neighbours along the last batch axis share.
struct SharedMatrices {
  NodeId of = kInvalidNode;  // the value that has each once
  Shape shape;               // of the operand with each once
  ViewAttr view;             // of `of`
  Dim count = 1;             // how many share one
};

// The axis that a stride walks in a row-major value of this shape; shape.size(): none.
size_t axis_of_stride(const Shape& shape, const Dim& stride) {
  const std::vector<Dim> strides = contiguous_strides(shape);
  size_t axis = 0;
  while (axis < shape.size() && (shape[axis].is(1) || strides[axis] != stride)) ++axis;
  return axis;
}

// One head for all: a View whose last batch axis has a stride of 0. Several rows of each batch may lie
// apart, and a matrix that is an input is read where it lies.
std::optional<SharedMatrices> one_matrix(const Graph& graph, const Node& matmul,
                                         const Node& operand) {
  const auto& view = std::get<ViewAttr>(operand.attr);
  const size_t rank = operand.shape.size();
  const Dim& count = operand.shape[rank - 3];
  const bool pays = matmul.shape[rank - 2].is(1) || !is_leaf(graph.node(operand.operands[0]).op);
  if (count.is(1) || !view.strides[rank - 3].is(0) || !pays) return std::nullopt;
  SharedMatrices shared{operand.operands[0], operand.shape, view, count};
  shared.shape[rank - 3] = 1;
  return shared;
}

// Reads `expand` and `reshape` behind each other: a View whose last batch axis walks two axes of a
// View, of which the inner one has a stride of 0.
std::optional<SharedMatrices> shared_matrices(const Graph& graph, const Node& matmul) {
  const Node& outer = graph.node(matmul.operands[1]);
  const size_t rank = outer.shape.size();
  if (outer.op != Op::kView || rank < 3) return std::nullopt;
  if (auto one = one_matrix(graph, matmul, outer)) return one;
  const Node& inner = graph.node(outer.operands[0]);
  const auto& reads = std::get<ViewAttr>(outer.attr);
  if (inner.op != Op::kView || !reads.offset.is(0)) return std::nullopt;
  const auto& expand = std::get<ViewAttr>(inner.attr);
  SharedMatrices shared{inner.operands[0], outer.shape, expand, 1};
  shared.view.strides.assign(rank, Dim(0));
  for (size_t i = 0; i < rank; ++i) {
    if (outer.shape[i].is(1)) continue;
    size_t axis = axis_of_stride(inner.shape, reads.strides[i]);
    if (axis == inner.shape.size()) return std::nullopt;
    if (inner.shape[axis] != outer.shape[i]) {
      const bool repeats = i + 3 == rank && axis > 0 && expand.strides[axis].is(0) &&
                           inner.shape[axis - 1] * inner.shape[axis] == outer.shape[i];
      if (!repeats) return std::nullopt;
      shared.count = inner.shape[axis];
      shared.shape[i] = inner.shape[--axis];
    }
    shared.view.strides[i] = expand.strides[axis];
  }
  return shared.count.is(1) ? std::nullopt : std::optional(shared);
}

NodeId packed(GraphBuilder& b, const Node& matmul, const SharedMatrices& shared, NodeId rows,
              NodeId matrices) {
  const size_t rank = matmul.shape.size();
  Shape shape = b.shape(rows);
  shape[rank - 3] = shared.shape[rank - 3];
  shape[rank - 2] = shared.count * shape[rank - 2];
  const NodeId once = b.view(matrices, shared.shape, shared.view.strides, shared.view.offset);
  return b.reshape(b.matmul(b.reshape(rows, std::move(shape)), once), matmul.shape);
}

}  // namespace

Result<Graph> pack_shared_heads(const Graph& graph, OnePass one_pass) {
  const std::vector<AttentionPart> parts = attention_parts(graph, users_of(graph), one_pass);
  TRY(const Graph changed, replace_where(graph, [&](Rewrite& rewrite, NodeId id) {
        const Node& node = graph.node(id);
        const bool stands_alone =
            node.op == Op::kMatmul && parts[static_cast<size_t>(id)].product == kInvalidNode;
        const auto shared = stands_alone ? shared_matrices(graph, node) : std::nullopt;
        return shared ? packed(rewrite.builder, node, *shared, rewrite[node.operands[0]],
                               rewrite[shared->of])
                      : kInvalidNode;
      }));
  return rewrite_nodes(changed, emit);  // without copies that nobody reads any more
}

}  // namespace kiln
