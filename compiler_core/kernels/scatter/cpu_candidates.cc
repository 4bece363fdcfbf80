#include "compiler_core/kernels/scatter/cpu_scatter.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kColumnBytes = 256;      // of a row, that a block should have at least
constexpr int64_t kFewUpdates = 4096;      // not worth sorting
constexpr int64_t kSmallElements = 16384;  // one block does as well

}  // namespace

std::vector<Schedule> cpu_scatter_candidates(const Workload& workload, const Target& target) {
  const ScatterExtent extent = ScatterExtent::of(workload.graph);
  const int64_t units = std::max(target.units, 1);
  const int lanes = lane_choices(workload.graph, target)[0];
  std::vector<Schedule> space;
  const auto add = [&](int64_t parts, int64_t columns, bool sorted) {
    parts = std::clamp<int64_t>(parts, 1, std::min(extent.rows, CpuScatterSchedule::kMostParts));
    add_unless_present(space, to_schedule(CpuScatterSchedule{lanes, parts, columns, sorted}));
  };
  if (std::max(extent.rows, extent.count) * extent.row <= kSmallElements) {
    add(1, 1, false);
    return space;
  }
  const int64_t columns =
      std::clamp<int64_t>(extent.row * size_of(extent.dtype) / kColumnBytes, 1, 4 * units);
  // Indices that a block reads in vain, against what it reads of updates.
  const bool much_in_vain = 8 * units * 8 > extent.row * size_of(extent.dtype);
  if (extent.count >= kFewUpdates && much_in_vain) add(16 * units, 1, true);
  add(4 * units, 1, false);
  if (extent.count >= kFewUpdates) {
    add(16 * units, 1, true);
    add(64 * units, 1, true);
  }
  if (columns > 1) {
    add(1, columns, false);
    add(units, std::max<int64_t>(columns / 2, 1), false);
  }
  return space;
}

namespace {

// The parts are a constant number, some of which may be empty, so that any sizes will do.
}  // namespace

const KernelTemplate& cpu_scatter() {
  static const PrintedTemplate<CpuScatterSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kScatter,
      .candidates = cpu_scatter_candidates,
      .print = print_cpu_scatter,
  });
  return made;
}

}  // namespace kiln
