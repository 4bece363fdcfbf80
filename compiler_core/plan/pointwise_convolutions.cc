#include "compiler_core/plan/pointwise_convolutions.h"

#include <algorithm>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

bool applies(const Graph& graph, const Node& node) {
  if (node.op != Op::kConvolution) return false;
  const auto& attr = std::get<ConvolutionAttr>(node.attr);
  const Shape& w = graph.node(node.operands[1]).shape;
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
  };
  return all(attr.stride, 1) && all(attr.low, 0) && all(attr.high, 0) &&
         std::all_of(w.begin() + 2, w.end(), [](const Dim& size) { return size.is(1); }) &&
         w[0].is_constant();
}

NodeId product(GraphBuilder& b, const Node& node, NodeId x, NodeId w) {
  const int64_t groups = std::get<ConvolutionAttr>(node.attr).groups;
  const Shape from = b.shape(x), weight = b.shape(w);
  const Dim positions = numel(Shape(from.begin() + 2, from.end()));
  Shape image = {weight[1], positions}, matrix = {weight[0].constant() / groups, weight[1]};
  const auto in_front = [&](const Dim& size, bool repeats) {
    image.insert(image.begin(), size);
    if (!repeats) matrix.insert(matrix.begin(), size);
  };
  if (groups > 1) in_front(groups, false);
  if (!from[0].is(1)) in_front(from[0], true);
  NodeId a = b.reshape(w, matrix);
  if (matrix.size() < image.size()) {
    matrix.insert(matrix.begin(), from[0]);
    a = b.broadcast(a, matrix);
  }
  return b.reshape(b.matmul(a, b.reshape(x, image)), node.shape);
}

}  // namespace

Result<Graph> pointwise_convolutions(const Graph& graph) {
  const auto nodes = graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [&](const Node& node) { return applies(graph, node); }))
    return graph;
  return rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    if (!applies(graph, node)) return emit(b, node, std::move(operands));
    return product(b, node, operands[0], operands[1]);
  });
}

}  // namespace kiln
