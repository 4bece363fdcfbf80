#include "compiler_core/kernels/pointwise/cpu_pointwise.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// From here on an output is larger than what a core's caches keep for its reader.
constexpr int64_t kStreamBytes = int64_t{8} << 20;

int64_t output_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (NodeId id : graph.outputs())
    bytes += numel(graph.node(id).shape).constant() * size_of(graph.node(id).dtype);
  return bytes;
}

// Whether an input is read across its contiguous axis: a transpose.
bool reads_across(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    if (node.op != Op::kView || node.shape.size() < 2) return false;
    if (graph.node(node.operands[0]).op != Op::kInput) return false;
    const std::vector<Dim>& strides = std::get<ViewAttr>(node.attr).strides;
    const auto far = [](const Dim& stride) { return !stride.is(0) && !stride.is(1); };
    return far(strides.back()) && std::any_of(strides.begin(), strides.end() - 1,
                                              [&](const Dim& stride) { return stride.is(1); });
  });
}

// Whether each lane's place is computed: a View of a value that no kernel stores, as patches and windows
// of padded images are. Places have 64 bits, so eight of them fill a register.
bool computes_places(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return node.op == Op::kView && !is_leaf(graph.node(node.operands[0]).op);
  });
}

}  // namespace

std::vector<Schedule> cpu_pointwise_candidates(const Workload& workload, const Target& target) {
  const Graph& graph = workload.graph;
  const int64_t elements = numel(graph.node(graph.outputs()[0]).shape).constant();
  const bool large = output_bytes(graph) >= kStreamBytes;
  // At least some blocks a core, so that a core that falls behind gives work away.
  const int64_t units = std::max(target.units, 1);
  const int64_t share = std::max<int64_t>(elements / (units * 8), 1024);
  std::vector<Schedule> space;
  const auto add = [&](CpuPointwiseSchedule schedule) {
    schedule.block = std::min(schedule.block, share);
    add_unless_present(space, to_schedule(schedule));
  };
  std::vector<int> lanes = lane_choices(graph, target);
  if (lanes[0] == 16 && computes_places(graph)) std::swap(lanes[0], lanes[1]);
  // Tiles: a line of the input that is read across serves all rows of the tile.
  if (reads_across(graph))
    for (const int64_t columns : {32, 16, 64})
      for (const int64_t block : {4096, 1024}) add({lanes[0], 1, block, columns, false});
  for (const bool stream : {large, !large}) {
    if (stream && elements * 4 < kStreamBytes / 8) continue;
    add({lanes[0], 2, 16384, 0, stream});
    add({lanes[0], 1, 16384, 0, stream});
    add({lanes[0], 4, 16384, 0, stream});
    add({lanes[0], 2, 65536, 0, stream});
    add({lanes[0], 1, 4096, 0, stream});
  }
  for (size_t i = 1; i < lanes.size(); ++i) {
    add({lanes[i], 2, 16384, 0, large});
    add({lanes[i], 4, 16384, 0, large});
  }
  return space;
}

namespace {

// A block is whole rows only where their length is a constant.
std::optional<CpuPointwiseSchedule> adapt(const Graph& graph, CpuPointwiseSchedule schedule) {
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  if (shape.size() > 1 && !shape.back().is_constant() && schedule.columns == 0)
    schedule.columns =
        std::clamp<int64_t>(at_measured_sizes(shape.back(), graph.symbols()), 1, schedule.block);
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_pointwise() {
  static const PrintedTemplate<CpuPointwiseSchedule> made({
      .version = 2,
      .backend = Backend::kCpu,
      .family = Family::kPointwise,
      .candidates = cpu_pointwise_candidates,
      .print = print_cpu_pointwise,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
