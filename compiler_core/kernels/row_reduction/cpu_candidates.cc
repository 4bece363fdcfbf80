#include "compiler_core/kernels/row_reduction/cpu_row_reduction.h"

#include <algorithm>

#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

using Keep = ReductionPasses::Keep;

// Past this a row's kept values fall out of a core's second-level cache.
constexpr int64_t kMostKeptBytes = int64_t{1} << 20;
// From here on an output is larger than what the caches keep for its reader.
constexpr int64_t kStreamBytes = int64_t{8} << 20;
constexpr int64_t kLeastBlock = 512;
constexpr int64_t kSplitElements = 65536;  // rows shorter than this are not worth two phases

struct Extent {
  int64_t rows = 1, row = 1;  // rows, and elements of one
};
Extent extent_of(const ReductionSpace& space) {
  Extent extent;
  const std::vector<int64_t> sizes = constant_sizes(space.shape);
  for (size_t k = 0; k < sizes.size(); ++k)
    (static_cast<int>(k) < space.reduced_begin ? extent.rows : extent.row) *= sizes[k];
  return extent;
}

}  // namespace

std::vector<Schedule> cpu_row_reduction_candidates(const Workload& workload, const Target& target) {
  const Graph& graph = workload.graph;
  const ReductionPasses plain = ReductionPasses::of(graph, Keep::kNothing);
  const Extent extent = extent_of(plain.space);
  const int64_t units = std::max(target.units, 1);

  // Only what keeps different values, and keeps them in cache.
  std::vector<Keep> keeps = {Keep::kNothing};
  int64_t kept_before = 0;
  for (Keep keep : {Keep::kCostly, Keep::kAnything}) {
    const int64_t kept = ReductionPasses::of(graph, keep).kept_bytes_per_element(graph);
    if (kept == kept_before || kept * extent.row > kMostKeptBytes) continue;
    // Costly values first, what is cheap to compute again last.
    keeps.insert(keep == Keep::kCostly ? keeps.begin() : keeps.end(), keep);
    kept_before = kept;
  }
  int64_t full_outputs = 0;
  for (const ReductionPasses::Pass& pass : plain.passes)
    full_outputs += static_cast<int64_t>(pass.outputs.size());
  const bool large = full_outputs * extent.rows * extent.row * 2 >= kStreamBytes;

  std::vector<Schedule> space;
  const auto add = [&](CpuRowReductionSchedule schedule) {
    add_unless_present(space, to_schedule(schedule));
  };
  // Blocks of some 16 K elements, and several for each core; of some hundreds at least, for which
  // a core is worth waking.
  const int64_t share = std::max(extent.rows / (units * 8), kLeastBlock / extent.row);
  const int64_t rows = std::clamp<int64_t>(std::min(16384 / extent.row, share), 1, extent.rows);
  const std::vector<int> lanes = lane_choices(graph, target);
  if (extent.rows < 2 * units && extent.row >= kSplitElements)
    for (const int64_t pieces : {4 * units, 2 * units, 16 * units})
      for (const int unroll : {4, 8})
        add({lanes[0], unroll, 1, Keep::kNothing, large, std::min<int64_t>(pieces, 4096)});
  const auto fitting = [&](int width) {
    return static_cast<int>(std::clamp<int64_t>(extent.row / width, 1, 4));
  };
  const int unroll = fitting(lanes[0]);
  for (const Keep keep : keeps)
    for (const int vectors : {unroll, std::max(1, unroll / 2), 2 * unroll})
      add({lanes[0], vectors, rows, keep, large, 1});
  if (large)
    for (const Keep keep : keeps) add({lanes[0], unroll, rows, keep, false, 1});
  for (const int64_t block : {int64_t{1}, rows * 4})
    add({lanes[0], unroll, std::min(block, extent.rows), keeps[0], large, 1});
  for (size_t i = 1; i < lanes.size(); ++i)
    for (const Keep keep : keeps) add({lanes[i], fitting(lanes[i]), rows, keep, large, 1});
  return space;
}

namespace {

std::optional<CpuRowReductionSchedule> adapt(const Graph& graph, CpuRowReductionSchedule schedule) {
  const ReductionPasses passes = ReductionPasses::of(graph, schedule.keep);
  Dim row = 1;
  for (size_t k = static_cast<size_t>(passes.space.reduced_begin); k < passes.space.shape.size();
       ++k)
    row = row * passes.space.shape[k];
  if (row.is_constant()) return schedule;
  if (schedule.split > 1) return std::nullopt;
  const int64_t kept = passes.kept_bytes_per_element(graph);
  if (kept > 0 && upper_bound(row * kept, graph.symbols()) > kMostKeptBytes)
    schedule.keep = ReductionPasses::Keep::kNothing;
  return schedule;
}

// A row of any length is not cut into pieces.
CpuRowReductionSchedule uncut(const Graph& /*graph*/, CpuRowReductionSchedule schedule) {
  schedule.split = 1;
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_row_reduction() {
  static const PrintedTemplate<CpuRowReductionSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kRowReduction,
      .candidates = cpu_row_reduction_candidates,
      .print = print_cpu_row_reduction,
      .adapt = adapt,
      .fallback = uncut,
  });
  return made;
}

}  // namespace kiln
