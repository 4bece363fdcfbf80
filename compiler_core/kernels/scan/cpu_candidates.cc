#include "compiler_core/kernels/scan/cpu_scan.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kSplitElements = 65536;  // a scan of fewer is not worth three phases

}  // namespace

std::vector<Schedule> cpu_scan_candidates(const Workload& workload, const Target& target) {
  const ScanExtent extent = ScanExtent::of(workload.graph);
  const int64_t units = std::max(target.units, 1);
  const std::vector<int> lanes = lane_choices(workload.graph, target);
  std::vector<Schedule> space;
  const auto add = [&](CpuScanSchedule schedule) {
    add_unless_present(space, to_schedule(schedule));
  };
  const auto add_widths = [&](int64_t split) {
    for (const int width : {lanes[0], lanes.back()}) {
      if (width > lanes[0]) continue;  // lanes pass one another within one register
      // Along rows a vector waits for the one before it.
      if (extent.inner == 1) add({width, 1, split});
      for (const int unroll : {4, 1, 8})
        if (extent.inner > 1 && (unroll == 1 || extent.inner > width * unroll / 2))
          add({width, unroll, split});
    }
  };
  const int64_t strips = extent.inner == 1 ? 1 : (extent.inner + 63) / 64;
  if (extent.outer * strips < 2 * units &&
      extent.outer * extent.size * extent.inner >= kSplitElements)
    for (const int64_t pieces : {4 * units, units, 16 * units})
      add_widths(std::min({pieces, extent.size, int64_t{4096}}));
  add_widths(1);
  return space;
}

namespace {

// The summed axis is cut into pieces only where its length is a constant.
std::optional<CpuScanSchedule> adapt(const Graph& graph, CpuScanSchedule schedule) {
  if (!SizedScan::of(graph).size.is_constant()) schedule.split = 1;
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_scan() {
  static const PrintedTemplate<CpuScanSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kScan,
      .candidates = cpu_scan_candidates,
      .print = print_cpu_scan,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
