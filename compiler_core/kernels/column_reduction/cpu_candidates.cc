#include "compiler_core/kernels/column_reduction/cpu_column_reduction.h"

#include <algorithm>

#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

using Keep = ReductionPasses::Keep;

// Past this a block's kept values fall out of a core's second-level cache.
constexpr int64_t kMostKeptBytes = int64_t{1} << 20;
// Going down columns touches a page a row: above this size streaming through whole rows wins.
constexpr int64_t kStreamElements = int64_t{1} << 18;
constexpr int64_t kLeastSplitElements = int64_t{1} << 14;

struct Extent {
  int64_t groups = 1, rows = 1, columns = 1;
};
Extent extent_of(const ReductionSpace& space) {
  Extent extent;
  const std::vector<int64_t> sizes = constant_sizes(space.shape);
  const int last = static_cast<int>(sizes.size()) - 1;
  for (int k = 0; k <= last; ++k) {
    const int64_t size = sizes[static_cast<size_t>(k)];
    const bool reduced = k >= space.reduced_begin && k < space.reduced_end;
    (k == last ? extent.columns : reduced ? extent.rows : extent.groups) *= size;
  }
  return extent;
}

}  // namespace

std::vector<Schedule> cpu_column_reduction_candidates(const Workload& workload,
                                                      const Target& target) {
  const Graph& graph = workload.graph;
  const ReductionPasses plain = ReductionPasses::of(graph, Keep::kNothing);
  const Extent extent = extent_of(plain.space);
  const int64_t units = std::max(target.units, 1);
  const int64_t elements = extent.groups * extent.rows * extent.columns;

  std::vector<Schedule> down, streaming;
  const auto add = [](std::vector<Schedule>& to, CpuColumnReductionSchedule schedule) {
    add_unless_present(to, to_schedule(schedule));
  };
  const std::vector<int> lanes = lane_choices(graph, target);
  const int fitting = static_cast<int>(std::clamp<int64_t>(extent.columns / lanes[0], 1, 4));
  std::vector<Keep> keeps = {Keep::kNothing};
  const int64_t kept = ReductionPasses::of(graph, Keep::kCostly).kept_bytes_per_element(graph);
  if (kept > 0 && kept * extent.rows * fitting * lanes[0] <= kMostKeptBytes)
    keeps.insert(keeps.begin(), Keep::kCostly);
  for (const Keep keep : keeps)
    for (const int vectors : {fitting, std::max(1, fitting / 2)})
      for (const int unroll : {2, 1, 4}) add(down, {lanes[0], vectors, unroll, keep, 0});
  // Pieces: enough for all cores and some balance, of at least 8 rows.
  const int64_t most = std::clamp<int64_t>(extent.rows / 8, 1, 4096);
  const bool splits = elements >= kLeastSplitElements && most > 1;
  if (splits)
    for (const int64_t pieces : {4 * units, 16 * units})
      for (const int unroll : {4, 8, 2})
        add(streaming, {lanes[0], 1, unroll, Keep::kNothing, std::min(pieces, most)});
  for (size_t i = 1; i < lanes.size(); ++i) {
    add(down, {lanes[i], fitting, 2, keeps[0], 0});
    if (splits) add(streaming, {lanes[i], 1, 4, Keep::kNothing, std::min(4 * units, most)});
  }
  const bool stream_first = extent.rows * extent.columns >= kStreamElements;
  std::vector<Schedule>& first = stream_first ? streaming : down;
  std::vector<Schedule>& second = stream_first ? down : streaming;
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

namespace {

std::optional<CpuColumnReductionSchedule> adapt(const Graph& graph,
                                                CpuColumnReductionSchedule schedule) {
  const ReductionPasses passes = ReductionPasses::of(graph, schedule.keep);
  Dim rows = 1;
  for (int k = passes.space.reduced_begin; k < passes.space.reduced_end; ++k)
    rows = rows * passes.space.shape[static_cast<size_t>(k)];
  const int64_t kept =
      passes.kept_bytes_per_element(graph) * schedule.vectors * int64_t{schedule.lanes};
  if (kept > 0 && upper_bound(rows * kept, graph.symbols()) > kMostKeptBytes)
    schedule.keep = ReductionPasses::Keep::kNothing;
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_column_reduction() {
  static const PrintedTemplate<CpuColumnReductionSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kColumnReduction,
      .candidates = cpu_column_reduction_candidates,
      .print = print_cpu_column_reduction,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
