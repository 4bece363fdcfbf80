#include "compiler_core/tune/cpu/space_scatter.h"

#include <algorithm>

#include "compiler_core/tune/axis_extents.h"
#include "compiler_core/tune/cpu/vector_width.h"

namespace kiln {
namespace {

constexpr int64_t kMostParts = 1024;
constexpr int64_t kColumnBytes = 256;      // of a row, that a block should have at least
constexpr int64_t kFewUpdates = 4096;      // not worth sorting
constexpr int64_t kSmallElements = 16384;  // one block does as well

}  // namespace

Result<ScatterSchedule> ScatterSchedule::from(const Schedule& schedule) {
  if (schedule.family != Family::kScatter)
    return fail(Code::kInvalidArgument, "not a scatter's schedule");
  const int64_t lanes = schedule.get("lanes", 8), parts = schedule.get("parts", 1);
  const int64_t columns = schedule.get("columns", 1), sorted = schedule.get("sorted", 0);
  TRY_STATUS(check_lanes(lanes));
  if (parts < 1 || parts > kMostParts || columns < 1 || columns > kMostParts || sorted < 0 ||
      sorted > 1)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return ScatterSchedule{static_cast<int>(lanes), parts, columns, sorted == 1};
}

Schedule ScatterSchedule::to_schedule() const {
  return {Family::kScatter,
          {{"lanes", lanes}, {"parts", parts}, {"columns", columns}, {"sorted", sorted}}};
}

std::vector<Schedule> scatter_space(const Workload& workload, const Target& target) {
  const ScatterExtent extent = ScatterExtent::of(workload.graph);
  const int64_t units = std::max(target.units, 1);
  const int lanes = lane_choices(workload.graph, target)[0];
  std::vector<Schedule> space;
  const auto add = [&](int64_t parts, int64_t columns, bool sorted) {
    parts = std::clamp<int64_t>(parts, 1, std::min(extent.rows, kMostParts));
    Schedule made = ScatterSchedule{lanes, parts, columns, sorted}.to_schedule();
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

}  // namespace kiln
