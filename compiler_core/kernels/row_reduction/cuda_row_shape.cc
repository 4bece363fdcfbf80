#include "compiler_core/kernels/row_reduction/cuda_row_shape.h"

#include <algorithm>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

constexpr int64_t kMostLanes = 16;

// How a full node walks the flat memory of the input it reads.
struct Walk {
  std::vector<Dim> strides;  // by axis of the space
  Dim offset = 0;
};

Walk walk_of(const Node& node) {
  Walk walk;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    walk.strides = view.strides;
    walk.offset = view.offset;
  } else {
    walk.strides = contiguous_strides(node.shape);
  }
  return walk;
}

bool reads_an_input(const Graph& graph, const Node& node) {
  return node.op == Op::kInput ||
         (node.op == Op::kView && graph.node(node.operands[0]).op == Op::kInput);
}

bool is_one(const Dim& size) {
  return size.is_constant() && size.constant() <= 1;
}

bool lies_in_step(const Walk& walk, const Shape& sizes) {
  Dim stride = 1;
  for (size_t k = sizes.size(); k-- > 0; stride = stride * sizes[k])
    if (!is_one(sizes[k]) && walk.strides[k] != stride) return false;
  return is_multiple(walk.offset, kMostLanes);
}

}  // namespace

RowShape RowShape::of(const Graph& graph) {
  const ReductionSpace space = reduction_space(graph);
  const Shape& sizes = space.shape;
  const auto batch_rank = static_cast<size_t>(space.reduced_begin);
  RowShape shape;
  shape.columns = sizes.back();
  for (size_t k = 0; k < batch_rank; ++k) shape.rows = shape.rows * sizes[k];
  Dim repeats = 1;
  for (size_t k = batch_rank; k + 1 < sizes.size(); ++k) repeats = repeats * sizes[k];
  shape.row = repeats * shape.columns;
  shape.several = !is_one(repeats);
  const auto moves = [&](const Walk& walk, size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k)
      if (!is_one(sizes[k]) && !walk.strides[k].is(0)) return true;
    return false;
  };
  int64_t common = kMostLanes;
  const bool one_row = is_one(shape.rows);
  if (shape.several) common = known_divisor(shape.columns, common);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.shape != space.shape || !reads_an_input(graph, node)) continue;
    const Walk walk = walk_of(node);
    if (!moves(walk, batch_rank, sizes.size())) continue;
    if (!one_row && !moves(walk, 0, batch_rank)) continue;
    shape.reads.push_back(id);
    shape.read_bytes += size_of(node.dtype);
    shape.in_step = shape.in_step && lies_in_step(walk, sizes);
    if (!walk.strides.back().is(1)) continue;
    common = known_divisor(walk.offset, common);
    for (size_t k = 0; k + 1 < sizes.size(); ++k)
      if (!is_one(sizes[k])) common = known_divisor(walk.strides[k], common);
  }
  if (!one_row)
    for (NodeId id : graph.outputs())
      if (graph.node(id).shape == space.shape) common = known_divisor(shape.row, common);
  shape.alignment = common;
  return shape;
}

}  // namespace kiln
