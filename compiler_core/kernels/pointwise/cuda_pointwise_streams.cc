#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"

#include <algorithm>
#include <cstdlib>

namespace kiln {
namespace {

// Axes shorter than this are not worth a tile.
constexpr int64_t kLeastAcross = 8;

int64_t bytes_of(const Node& node) {
  return numel(node.shape).constant() * size_of(node.dtype);
}

// Nodes that are read below a View, Pad, Concat or Gather too: at other indices than the outputs'.
std::vector<bool> nodes_moved(const Graph& graph) {
  std::vector<bool> moved(static_cast<size_t>(graph.size()), false);
  for (NodeId id = graph.size(); id-- > 0;) {
    const Node& node = graph.node(id);
    for (NodeId operand : node.operands)
      if (!is_elementwise(node.op) || moved[static_cast<size_t>(id)])
        moved[static_cast<size_t>(operand)] = true;
  }
  return moved;
}

// The axis along which neighbours are neighbours in memory, when it is not the innermost one.
int across_axis(const std::vector<int64_t>& sizes, const std::vector<Dim>& strides) {
  const int64_t innermost = std::abs(strides.back().constant());
  if (innermost <= 1 || sizes.back() < kLeastAcross) return -1;
  for (size_t k = 0; k + 1 < sizes.size(); ++k)
    if (strides[k].is(1) && sizes[k] >= kLeastAcross) return static_cast<int>(k);
  return -1;
}

class Reader {
 public:
  explicit Reader(const Graph& graph)
      : graph_(graph), sizes_(constant_sizes(graph.node(graph.outputs()[0]).shape)) {
    if (!sizes_.empty()) streams_.columns = sizes_.back();
    for (size_t k = 0; k + 1 < sizes_.size(); ++k) streams_.rows *= sizes_[k];
  }

  PointwiseStreams read() {
    const std::vector<bool> in_space = nodes_in_space(graph_), moved = nodes_moved(graph_);
    for (NodeId id : graph_.inputs()) streams_.bytes_read += bytes_of(graph_.node(id));
    for (NodeId id : graph_.outputs()) {
      streams_.bytes_written += bytes_of(graph_.node(id));
      add_whole(graph_.node(id).dtype);
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (is_elementwise(node.op) && node.op != Op::kCast) ++streams_.arithmetic;
      if (!in_space[static_cast<size_t>(id)]) continue;
      if (node.op == Op::kInput) add_whole(node.dtype);
      if (node.op == Op::kView) add_view(id, moved[static_cast<size_t>(id)]);
      if (node.op == Op::kPad || node.op == Op::kConcat || node.op == Op::kGather) {
        add_whole(node.dtype);
        streams_.rows_differ = true;
        if (node.op == Op::kConcat) add_concat(node);
      }
    }
    return streams_;
  }

 private:
  // Something as large as the space, contiguous.
  void add_whole(DType dtype) {
    const int bytes = static_cast<int>(size_of(dtype));
    streams_.narrowest_bytes = std::min(streams_.narrowest_bytes, bytes);
    streams_.widest_bytes = std::max(streams_.widest_bytes, bytes);
  }

  void add_view(NodeId id, bool moved) {
    const Node& node = graph_.node(id);
    const auto& view = std::get<ViewAttr>(node.attr);
    if (view.strides.empty() || graph_.node(node.operands[0]).op != Op::kInput) return;
    streams_.rows_differ = true;
    const bool repeated = std::all_of(view.strides.begin(), view.strides.end() - 1,
                                      [](const Dim& stride) { return stride.is(0); });
    if (view.strides.back().is(1)) {
      align(view.offset.constant());
      for (size_t k = 0; k + 1 < sizes_.size(); ++k) align(view.strides[k].constant());
    }
    if (repeated && view.strides.size() > 1) {
      if (!view.strides.back().is(0)) streams_.repeats_rows = true;
      return;
    }
    if (!view.strides.back().is(0)) add_whole(node.dtype);
    const int axis = moved ? -1 : across_axis(sizes_, view.strides);
    if (axis < 0 || (streams_.across_axis >= 0 && streams_.across_axis != axis)) return;
    streams_.across_axis = axis;
    streams_.across_size = sizes_[static_cast<size_t>(axis)];
    streams_.across.push_back(id);
  }

  // Where its parts begin along the rows, what is read begins, too.
  void add_concat(const Node& node) {
    streams_.joined += static_cast<int>(node.operands.size());
    const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    if (axis + 1 < sizes_.size()) return;
    for (const NodeId operand : node.operands) align(graph_.node(operand).shape[axis].constant());
  }

  void align(int64_t elements) {
    while (elements % streams_.alignment != 0) streams_.alignment /= 2;
  }

  const Graph& graph_;
  const std::vector<int64_t> sizes_;
  PointwiseStreams streams_;
};

}  // namespace

PointwiseStreams pointwise_streams(const Graph& graph) {
  return Reader(graph).read();
}

std::vector<bool> nodes_in_space(const Graph& graph) {
  std::vector<bool> found(static_cast<size_t>(graph.size()), false);
  for (NodeId id : graph.outputs()) found[static_cast<size_t>(id)] = true;
  for (NodeId id = graph.size(); id-- > 0;) {
    const Node& node = graph.node(id);
    if (!found[static_cast<size_t>(id)] || !is_elementwise(node.op)) continue;
    for (NodeId operand : node.operands) found[static_cast<size_t>(operand)] = true;
  }
  return found;
}

}  // namespace kiln
