#include "compiler_core/kernels/scatter/cpu_scatter.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/analysis/vector_width.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kMostParts = 1024;
constexpr int64_t kColumnBytes = 256;      // of a row, that a block should have at least
constexpr int64_t kFewUpdates = 4096;      // not worth sorting
constexpr int64_t kSmallElements = 16384;  // one block does as well

}  // namespace

Result<CpuScatterSchedule> CpuScatterSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cpu.scatter")
    return fail(Code::kInvalidArgument, "not a scatter's schedule");
  const int64_t lanes = schedule.get("lanes", 8), parts = schedule.get("parts", 1);
  const int64_t columns = schedule.get("columns", 1), sorted = schedule.get("sorted", 0);
  TRY_STATUS(check_lanes(lanes));
  if (parts < 1 || parts > kMostParts || columns < 1 || columns > kMostParts || sorted < 0 ||
      sorted > 1)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CpuScatterSchedule{static_cast<int>(lanes), parts, columns, sorted == 1};
}

Schedule CpuScatterSchedule::to_schedule() const {
  return {"cpu.scatter",
          {{"lanes", lanes}, {"parts", parts}, {"columns", columns}, {"sorted", sorted}}};
}

std::vector<Schedule> cpu_scatter_candidates(const Workload& workload, const Target& target) {
  const ScatterExtent extent = ScatterExtent::of(workload.graph);
  const int64_t units = std::max(target.units, 1);
  const int lanes = lane_choices(workload.graph, target)[0];
  std::vector<Schedule> space;
  const auto add = [&](int64_t parts, int64_t columns, bool sorted) {
    parts = std::clamp<int64_t>(parts, 1, std::min(extent.rows, kMostParts));
    Schedule made = CpuScatterSchedule{lanes, parts, columns, sorted}.to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  };
  if (std::max(extent.rows, extent.count) * extent.row <= kSmallElements) {
    add(1, 1, false);
    return space;
  }
  const int64_t columns =
      std::clamp<int64_t>(extent.row * size_of(extent.dtype) / kColumnBytes, 1, 4 * units);
  // What a block reads of the index list in vain, against what it reads of updates.
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
Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return candidates_at_measured_sizes(workload, target, cpu_scatter_candidates);
}

Result<Source> print(const Graph& graph, const CpuScatterSchedule& schedule,
                     const Target& /*target*/) {
  return print_cpu_scatter(graph, schedule);
}

}  // namespace

const KernelTemplate& cpu_scatter() {
  static const PrintedTemplate<CpuScatterSchedule> made("cpu.scatter", 1, Backend::kCpu,
                                                        Family::kScatter, candidates, print);
  return made;
}

}  // namespace kiln
