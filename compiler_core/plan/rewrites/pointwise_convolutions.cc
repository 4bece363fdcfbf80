#include "compiler_core/plan/rewrites/kernel_rewrites.h"

#include <algorithm>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/channels_last.h"

namespace kiln {
namespace {

// Whether what lies channels last of the convolution's result is stored so: an operand's order is
// the product's own else, and a View at the end undoes it.
bool ends_channels_last(const Graph& graph, NodeId convolution) {
  const NodeId view = find_channels_last_view(graph, convolution);
  if (view == kInvalidNode) return false;
  return std::ranges::all_of(
      graph.outputs(), [&](NodeId id) { return id == view || graph.node(id).op != Op::kView; });
}

bool applies(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op != Op::kConvolution || ends_channels_last(graph, id)) return false;
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
  return b.matmul(a, b.reshape(x, image));
}

}  // namespace

Result<Graph> pointwise_convolutions(const Graph& graph) {
  NodeId found = 0;
  while (found < graph.size() && !applies(graph, found)) ++found;
  if (found == graph.size()) return graph;
  const Shape& shape = graph.node(found).shape;
  Rewrite rewrite(graph);
  GraphBuilder& b = rewrite.builder;
  NodeId matmul = kInvalidNode;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op == Op::kInput) continue;
    b.set_origin(graph.origin_of(id));
    std::vector<NodeId> operands = rewrite.operands(node);
    if (!applies(graph, id)) {
      rewrite[id] = emit(b, node, std::move(operands));
      continue;
    }
    matmul = product(b, node, operands[0], operands[1]);
    rewrite[id] = b.reshape(matmul, node.shape);
  }
  // Results in the product's axes, where all arithmetic follows them.
  const Shape space = b.shape(matmul);
  std::vector<NodeId> outputs;
  for (NodeId id : graph.outputs())
    outputs.push_back(graph.node(id).shape == shape ? b.reshape(rewrite[id], space) : rewrite[id]);
  return b.finish(std::move(outputs));
}

}  // namespace kiln
