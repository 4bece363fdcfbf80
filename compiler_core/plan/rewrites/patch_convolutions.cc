#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

constexpr int64_t kFewChannels = 32;  // more fill the tiles of convolutions
constexpr int64_t kLongWindow = 256;  // elements: worth a copy of the image

bool is_patches(const GraphBuilder& b, const Node& node, const std::vector<NodeId>& operands) {
  if (node.op != Op::kConvolution) return false;
  const auto& attr = std::get<ConvolutionAttr>(node.attr);
  const Shape &x = b.shape(operands[0]), &w = b.shape(operands[1]);
  if (attr.groups != 1 || !image_sizes(x) || !is_constant(w)) return false;
  int64_t depth = w[1].constant();
  for (size_t i = 0; i < attr.stride.size(); ++i) {
    const int64_t window = w[i + 2].constant();
    if (attr.stride[i] != window || attr.dilation[i] != 1 || attr.low[i] != 0 ||
        attr.high[i] != 0 || x[i + 2].constant() % window != 0)
      return false;
    depth *= window;
  }
  return w[1].constant() < kFewChannels && depth >= kLongWindow;
}

NodeId multiply(GraphBuilder& b, const Node& node, const std::vector<NodeId>& operands) {
  const Shape x = b.shape(operands[0]), w = b.shape(operands[1]);
  const size_t spatial = w.size() - 2;
  // [n, c, h, r, w, q] -> [n, h, w, c, r, q]
  Shape split = {x[0], x[1]}, result = {x[0]};
  std::vector<int> order = {0}, window = {1}, back = {0, static_cast<int>(spatial) + 1};
  Dim positions = x[0], depth = x[1];
  for (size_t i = 0; i < spatial; ++i) {
    const Dim &count = node.shape[i + 2], &size = w[i + 2];
    order.push_back(static_cast<int>(split.size()));
    window.push_back(static_cast<int>(split.size()) + 1);
    back.push_back(static_cast<int>(i) + 1);
    split.insert(split.end(), {count, size});
    result.push_back(count);
    positions = positions * count;
    depth = depth * size;
  }
  order.insert(order.end(), window.begin(), window.end());
  const NodeId patches =
      b.reshape(b.permute(b.reshape(operands[0], split), order), {positions, depth});
  const NodeId weight = b.permute(b.reshape(operands[1], {w[0], depth}), {1, 0});
  result.push_back(w[0]);
  return b.permute(b.reshape(b.matmul(patches, weight), result), back);
}

}  // namespace

Result<Graph> patch_convolutions(const Graph& graph) {
  return rewrite_nodes(graph, [](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    return is_patches(b, node, operands) ? multiply(b, node, operands)
                                         : emit(b, node, std::move(operands));
  });
}

}  // namespace kiln
