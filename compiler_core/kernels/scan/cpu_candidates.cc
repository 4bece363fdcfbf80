#include "compiler_core/kernels/scan/cpu_scan.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/analysis/vector_width.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kSplitElements = 65536;  // a scan of fewer is not worth three phases

}  // namespace

Result<CpuScanSchedule> CpuScanSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cpu.scan")
    return fail(Code::kInvalidArgument, "not a scan's schedule");
  const int64_t lanes = schedule.get("lanes", 8), unroll = schedule.get("unroll", 4);
  const int64_t split = schedule.get("split", 1);
  TRY_STATUS(check_lanes(lanes));
  if (unroll < 1 || unroll > 16 || split < 1 || split > 4096)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CpuScanSchedule{static_cast<int>(lanes), static_cast<int>(unroll), split};
}

Schedule CpuScanSchedule::to_schedule() const {
  return {"cpu.scan", {{"lanes", lanes}, {"unroll", unroll}, {"split", split}}};
}

std::vector<Schedule> cpu_scan_candidates(const Workload& workload, const Target& target) {
  const ScanExtent extent = ScanExtent::of(workload.graph);
  const int64_t units = std::max(target.units, 1);
  const std::vector<int> lanes = lane_choices(workload.graph, target);
  std::vector<Schedule> space;
  const auto add = [&](CpuScanSchedule schedule) {
    Schedule made = schedule.to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
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

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CpuScanSchedule>(workload, target, cpu_scan_candidates, adapt);
}

Result<Source> print(const Graph& graph, const CpuScanSchedule& schedule,
                     const Target& /*target*/) {
  return print_cpu_scan(graph, schedule);
}

}  // namespace

const KernelTemplate& cpu_scan() {
  static const PrintedTemplate<CpuScanSchedule> made("cpu.scan", 1, Backend::kCpu, Family::kScan,
                                                     candidates, print);
  return made;
}

}  // namespace kiln
