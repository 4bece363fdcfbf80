#include "compiler_core/tune/cuda/row_shape.h"

#include <numeric>

namespace kiln {
namespace {

constexpr int64_t kMostLanes = 16;

// How a full node walks the flat memory of the input it reads.
struct Walk {
  std::vector<int64_t> strides;  // by axis of the space
  int64_t offset = 0;
};

Walk walk_of(const Node& node) {
  Walk walk;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    for (const Dim& stride : view.strides) walk.strides.push_back(stride.constant());
    walk.offset = view.offset.constant();
  } else {
    for (const Dim& stride : contiguous_strides(node.shape))
      walk.strides.push_back(stride.constant());
  }
  return walk;
}

bool reads_an_input(const Graph& graph, const Node& node) {
  return node.op == Op::kInput ||
         (node.op == Op::kView && graph.node(node.operands[0]).op == Op::kInput);
}

bool lies_in_step(const Walk& walk, const std::vector<int64_t>& sizes) {
  int64_t stride = 1;
  for (size_t k = sizes.size(); k-- > 0; stride *= sizes[k])
    if (sizes[k] > 1 && walk.strides[k] != stride) return false;
  return walk.offset % kMostLanes == 0;
}

}  // namespace

RowShape RowShape::of(const Graph& graph) {
  const ReductionSpace space = reduction_space(graph);
  const std::vector<int64_t> sizes = constant_sizes(space.shape);
  const auto batch_rank = static_cast<size_t>(space.reduced_begin);
  RowShape shape;
  shape.columns = sizes.back();
  for (size_t k = 0; k + 1 < sizes.size(); ++k)
    (k < batch_rank ? shape.rows : shape.repeats) *= sizes[k];
  const auto moves = [&](const Walk& walk, size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k)
      if (sizes[k] > 1 && walk.strides[k] != 0) return true;
    return false;
  };
  int64_t common = kMostLanes;
  if (shape.repeats > 1) common = std::gcd(common, shape.columns);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.shape != space.shape || !reads_an_input(graph, node)) continue;
    const Walk walk = walk_of(node);
    if (!moves(walk, batch_rank, sizes.size())) continue;
    if (shape.rows > 1 && !moves(walk, 0, batch_rank)) continue;
    shape.reads.push_back(id);
    shape.read_bytes += size_of(node.dtype);
    shape.in_step = shape.in_step && lies_in_step(walk, sizes);
    if (walk.strides.back() != 1) continue;
    common = std::gcd(common, walk.offset);
    for (size_t k = 0; k + 1 < sizes.size(); ++k)
      if (sizes[k] > 1) common = std::gcd(common, walk.strides[k]);
  }
  if (shape.rows > 1)
    for (NodeId id : graph.outputs())
      if (graph.node(id).shape == space.shape) common = std::gcd(common, shape.elements());
  shape.alignment = common & -common;
  return shape;
}

}  // namespace kiln
