#include "compiler_core/kernels/sort/cpu_sort.h"

#include <algorithm>
#include <bit>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kSplitElements = 16384;               // a shorter row is sorted by one thread
constexpr int64_t kMostThreadBytes = int64_t{1} << 27;  // of scratch, for a row in one piece
constexpr int64_t kWideDigitElements = 4096;            // that tables of 2048 counts pay for

}  // namespace

int64_t sort_entry_bytes(DType dtype) {
  return size_of(dtype) == 8 ? 16 : 8;
}

std::vector<Schedule> cpu_sort_candidates(const Workload& workload, const Target& target) {
  const SortExtent extent = SortExtent::of(workload.graph);
  const auto units = static_cast<uint64_t>(std::max(target.units, 1));
  std::vector<Schedule> space;
  const auto add = [&](int digit, int64_t split) {
    add_unless_present(
        space, to_schedule(CpuSortSchedule{digit, std::min(split, CpuSortSchedule::kMostSplit)}));
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

}  // namespace

const KernelTemplate& cpu_sort() {
  static const PrintedTemplate<CpuSortSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kSort,
      .candidates = cpu_sort_candidates,
      .print = print_cpu_sort,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
