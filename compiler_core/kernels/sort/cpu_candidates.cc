#include "compiler_core/kernels/sort/cpu_sort.h"

#include <algorithm>
#include <bit>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kMostSplit = 256;
constexpr int64_t kSplitElements = 16384;               // a shorter row is sorted by one thread
constexpr int64_t kMostThreadBytes = int64_t{1} << 27;  // of scratch, for a row in one piece
constexpr int64_t kWideDigitElements = 4096;            // that tables of 2048 counts pay for

}  // namespace

Result<CpuSortSchedule> CpuSortSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cpu.sort")
    return fail(Code::kInvalidArgument, "not a sort's schedule");
  const int64_t digit = schedule.get("digit", 8), split = schedule.get("split", 1);
  if ((digit != 8 && digit != 11) || split < 1 || split > kMostSplit ||
      !std::has_single_bit(static_cast<uint64_t>(split)))
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CpuSortSchedule{static_cast<int>(digit), split};
}

Schedule CpuSortSchedule::to_schedule() const {
  return {"cpu.sort", {{"digit", digit}, {"split", split}}};
}

int64_t sort_entry_bytes(DType dtype) {
  return size_of(dtype) == 8 ? 16 : 8;
}

std::vector<Schedule> cpu_sort_candidates(const Workload& workload, const Target& target) {
  const SortExtent extent = SortExtent::of(workload.graph);
  const auto units = static_cast<uint64_t>(std::max(target.units, 1));
  std::vector<Schedule> space;
  const auto add = [&](int digit, int64_t split) {
    Schedule made = CpuSortSchedule{digit, std::min(split, kMostSplit)}.to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  };
  std::vector<int> digits = {8};
  if (size_of(extent.dtype) >= 4 && extent.size >= kWideDigitElements) digits.push_back(11);
  const bool fits = 2 * extent.size * sort_entry_bytes(extent.dtype) <= kMostThreadBytes;
  const auto threads = static_cast<int64_t>(std::bit_ceil(units));
  const bool splits = extent.rows < 2 * threads && extent.size >= kSplitElements;
  for (const int digit : digits) {
    if (splits || !fits) add(digit, std::max<int64_t>(threads, fits ? 2 : 16));
    if (splits) add(digit, 4 * threads);
    if (fits) add(digit, 1);
  }
  return space;
}

namespace {

// Rows are cut into pieces only where their length is a constant.
std::optional<CpuSortSchedule> adapt(const Graph& graph, CpuSortSchedule schedule) {
  if (!SizedSort::of(graph).size.is_constant()) schedule.split = 1;
  return schedule;
}

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CpuSortSchedule>(workload, target, cpu_sort_candidates, adapt);
}

Result<Source> print(const Graph& graph, const CpuSortSchedule& schedule,
                     const Target& /*target*/) {
  return print_cpu_sort(graph, schedule);
}

}  // namespace

const KernelTemplate& cpu_sort() {
  static const PrintedTemplate<CpuSortSchedule> made("cpu.sort", 1, Backend::kCpu, Family::kSort,
                                                     candidates, print);
  return made;
}

}  // namespace kiln
