#include "compiler_core/kernels/scan/cuda_scan.h"

#include <algorithm>
#include <bit>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kMostSplit = 1024;
constexpr int64_t kLeastPiece = 64;       // rows of a piece, where sums run down columns
constexpr int64_t kSplitElements = 8192;  // a line of fewer is one block's work

class ScanSpace {
 public:
  ScanSpace(const ScanExtent& extent, const Target& target)
      : extent_(extent), limits_(cuda_limits(target)) {}

  std::vector<Schedule> list() {
    extent_.inner == 1 ? add_rows() : add_columns();
    return std::move(space_);
  }

 private:
  void add(int64_t lanes, int64_t threads, int64_t split) {
    Schedule made = CudaScanSchedule{static_cast<int>(lanes), static_cast<int>(threads),
                                     std::clamp<int64_t>(split, 1, kMostSplit)}
                        .to_schedule();
    if (std::find(space_.begin(), space_.end(), made) == space_.end()) space_.push_back(made);
  }

  int64_t widest() const { return std::clamp<int64_t>(16 / size_of(extent_.dtype), 2, 8); }

  void add_rows() {
    const int64_t size = extent_.size;
    const auto threads_for = [&](int64_t lanes, int64_t most) {
      const auto needed = std::bit_ceil(static_cast<uint64_t>((size + lanes - 1) / lanes));
      return std::clamp<int64_t>(static_cast<int64_t>(needed), 32, most);
    };
    if (extent_.outer < limits_.sms && size >= kSplitElements)
      for (const int64_t threads : {256, 1024})
        for (const int64_t waves : {2, 4})
          add(widest(), threads,
              std::min(limits_.sms * waves / extent_.outer, size / (threads * widest())));
    for (const int64_t lanes : {widest(), int64_t{1}})
      for (const int64_t most : {256, 1024}) add(lanes, threads_for(lanes, most), 1);
  }

  void add_columns() {
    int64_t lanes = widest();
    while (extent_.inner % lanes != 0) lanes /= 2;
    for (const int64_t width : {lanes, int64_t{1}}) {
      const auto needed = std::bit_ceil(static_cast<uint64_t>(extent_.inner / width));
      const auto threads = std::clamp<int64_t>(static_cast<int64_t>(needed), 32, 128);
      const int64_t blocks = extent_.outer * ((extent_.inner / width + threads - 1) / threads);
      if (blocks < 2 * limits_.sms && extent_.size >= 2 * kLeastPiece)
        for (const int64_t waves : {4, 8})
          add(width, threads, std::min(limits_.sms * waves / blocks, extent_.size / kLeastPiece));
      add(width, threads, 1);
    }
  }

  const ScanExtent extent_;
  const CudaLimits limits_;
  std::vector<Schedule> space_;
};

}  // namespace

Result<CudaScanSchedule> CudaScanSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cuda.scan")
    return fail(Code::kInvalidArgument, "not a scan's schedule");
  const int64_t lanes = schedule.get("lanes", 4), threads = schedule.get("threads", 256);
  const int64_t split = schedule.get("split", 1);
  if (!is_power_of_two(lanes) || lanes > 16 || !is_power_of_two(threads) || threads < 32 ||
      threads > 1024 || split < 1 || split > kMostSplit)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CudaScanSchedule{static_cast<int>(lanes), static_cast<int>(threads), split};
}

Schedule CudaScanSchedule::to_schedule() const {
  return {"cuda.scan", {{"lanes", lanes}, {"threads", threads}, {"split", split}}};
}

std::vector<Schedule> cuda_scan_candidates(const Workload& workload, const Target& target) {
  return ScanSpace(ScanExtent::of(workload.graph), target).list();
}

namespace {

std::optional<CudaScanSchedule> adapt(const Graph& graph, CudaScanSchedule chosen) {
  const SizedScan extent = SizedScan::of(graph);
  if (!extent.inner.is(1) && !has_whole_vectors(extent.inner, chosen.lanes)) chosen.lanes = 1;
  return chosen;
}

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CudaScanSchedule>(workload, target, cuda_scan_candidates, adapt);
}

Result<Source> print(const Graph& graph, const CudaScanSchedule& schedule,
                     const Target& /*target*/) {
  return print_cuda_scan(graph, schedule);
}

}  // namespace

const KernelTemplate& cuda_scan() {
  static const PrintedTemplate<CudaScanSchedule> made("cuda.scan", 1, Backend::kCuda, Family::kScan,
                                                      candidates, print);
  return made;
}

}  // namespace kiln
