#include "compiler_core/plan/row_update.h"

#include <algorithm>
#include <set>

#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr int64_t kLeastBytes = int64_t{64} << 10;

// Looks through what rounds an f32 to a half, and what widens a half.
NodeId behind_cast(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op != Op::kCast) return id;
  const DType from = graph.node(node.operands[0]).dtype;
  const bool widens = is_half(from) && node.dtype == DType::kF32;
  const bool rounds = from == DType::kF32 && is_half(node.dtype);
  return widens || rounds ? node.operands[0] : id;
}

class RowFinder {
 public:
  explicit RowFinder(const Graph& graph) : graph_(graph), users_(users_of(graph)) {}

  // The update that `output` is, whatever else the graph computes.
  std::optional<RowUpdate> find(NodeId output) const {
    RowUpdate found;
    const NodeId select = behind_cast(graph_, output);
    const Node& node = graph_.node(select);
    if (node.op != Op::kSelect || (select != output && readers(select) != 1)) return std::nullopt;
    const NodeId base = behind_cast(graph_, node.operands[2]);
    const Node& input = graph_.node(base);
    if (input.op != Op::kInput || input.shape != node.shape ||
        input.dtype != graph_.node(output).dtype || readers(base) != 1 ||
        readers(node.operands[2]) != 1 || !find_index(node.operands[0], found))
      return std::nullopt;
    found.bases = {base};
    return found;
  }

  int64_t outputs(NodeId id) const { return std::ranges::count(graph_.outputs(), id); }

  // Whether all that comes of `id`, rounded or not, is the values of `selects`.
  bool is_of_rows(NodeId id, const std::set<NodeId>& selects) const {
    const auto& users = users_[static_cast<size_t>(id)];
    return !users.empty() && std::ranges::all_of(users, [&](NodeId user) {
      return graph_.node(user).op == Op::kCast ? is_of_rows(user, selects) : selects.contains(user);
    });
  }

 private:
  int64_t readers(NodeId id) const {
    return std::ssize(users_[static_cast<size_t>(id)]) + outputs(id);
  }

  bool find_index(NodeId id, RowUpdate& found) const {
    const Node& equal = graph_.node(id);
    if (equal.op != Op::kEq) return false;
    for (size_t i = 0; i < 2; ++i) {
      const auto axis = counted_axis(equal.operands[i]);
      if (!axis || *axis + 1 >= equal.shape.size() || !is_uniform(equal.operands[1 - i])) continue;
      found.axis = *axis;
      found.is_there = id;
      found.index = equal.operands[1 - i];
      return true;
    }
    return false;
  }

  // The axis whose positions, from 0 on, the value is.
  std::optional<size_t> counted_axis(NodeId id) const {
    const Node& view = graph_.node(id);
    if (view.op != Op::kView || graph_.node(view.operands[0]).op != Op::kIota) return std::nullopt;
    const auto& [strides, offset] = std::get<ViewAttr>(view.attr);
    if (!offset.is(0)) return std::nullopt;
    std::optional<size_t> axis;
    for (size_t i = 0; i < strides.size(); ++i) {
      if (strides[i].is(0)) continue;
      if (axis || !strides[i].is(1)) return std::nullopt;
      axis = i;
    }
    return axis;
  }

  // Whether all elements are one value.
  bool is_uniform(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.shape.empty()) return true;
    if (node.op == Op::kView)
      return std::ranges::all_of(std::get<ViewAttr>(node.attr).strides,
                                 [](const Dim& stride) { return stride.is(0); });
    return is_elementwise(node.op) &&
           std::ranges::all_of(node.operands, [this](NodeId each) { return is_uniform(each); });
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> users_;
};

int64_t bytes_at_hints(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const int64_t elements = size_at_hints(graph, numel(node.shape));
  return elements > INT64_MAX / 16 ? INT64_MAX : elements * size_of(node.dtype);
}

}  // namespace

std::optional<RowUpdate> find_row_update(const Graph& graph) {
  for (const NodeId output : graph.outputs())  // most kernels are none, which costs nothing to see
    if (graph.node(behind_cast(graph, output)).op != Op::kSelect) return std::nullopt;
  const RowFinder finder(graph);
  std::optional<RowUpdate> all;
  for (const NodeId output : graph.outputs()) {
    auto found = finder.find(output);
    if (!found) return std::nullopt;
    if (!all)
      all = std::move(found);
    else if (found->is_there == all->is_there)  // their bases differ, as each is read once
      all->bases.push_back(found->bases[0]);
    else
      return std::nullopt;
  }
  return all;
}

Dim rows_of_update(const Workload& workload) {
  if (workload.family != Family::kRowUpdate) return 1;
  const Graph& graph = workload.graph;
  const auto update = find_row_update(graph);
  return update ? graph.node(graph.outputs()[0]).shape[update->axis] : Dim(1);
}

bool RowUpdates::are_all(const std::vector<NodeId>& values) const {
  return std::ranges::all_of(values,
                             [this](NodeId id) { return outputs[static_cast<size_t>(id)]; });
}

RowUpdates find_row_updates(const Graph& graph) {
  RowUpdates updates;
  updates.outputs.assign(static_cast<size_t>(graph.size()), false);
  updates.row_views = updates.outputs;
  const RowFinder finder(graph);
  std::set<NodeId> selects;
  for (const NodeId output : graph.outputs()) {
    if (finder.outputs(output) != 1 || bytes_at_hints(graph, output) < kLeastBytes ||
        !finder.find(output))
      continue;
    updates.outputs[static_cast<size_t>(output)] = true;
    selects.insert(behind_cast(graph, output));
  }
  for (NodeId id = 0; !selects.empty() && id < graph.size(); ++id)
    updates.row_views[static_cast<size_t>(id)] =
        graph.node(id).op == Op::kView && finder.is_of_rows(id, selects);
  return updates;
}

}  // namespace kiln
