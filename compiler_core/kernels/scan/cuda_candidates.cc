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

constexpr int64_t kLeastPiece = 64;           // rows of a piece, where sums run down columns
constexpr int64_t kCudaSplitElements = 8192;  // a line of fewer is one block's work

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
    add_unless_present(space_, to_schedule(CudaScanSchedule{
                                   static_cast<int>(lanes), static_cast<int>(threads),
                                   std::clamp<int64_t>(split, 1, CudaScanSchedule::kMostSplit)}));
  }

  int64_t widest() const { return std::clamp<int64_t>(16 / size_of(extent_.dtype), 2, 8); }

  void add_rows() {
    const int64_t size = extent_.size;
    const auto threads_for = [&](int64_t lanes, int64_t most) {
      const auto needed = std::bit_ceil(static_cast<uint64_t>((size + lanes - 1) / lanes));
      return std::clamp<int64_t>(static_cast<int64_t>(needed), 32, most);
    };
    if (extent_.outer < limits_.sms && size >= kCudaSplitElements)
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

std::vector<Schedule> cuda_scan_candidates(const Workload& workload, const Target& target) {
  return ScanSpace(ScanExtent::of(workload.graph), target).list();
}

namespace {

std::optional<CudaScanSchedule> adapt(const Graph& graph, CudaScanSchedule chosen) {
  const SizedScan extent = SizedScan::of(graph);
  if (!extent.inner.is(1) && !has_whole_vectors(extent.inner, chosen.lanes)) chosen.lanes = 1;
  return chosen;
}

}  // namespace

const KernelTemplate& cuda_scan() {
  static const PrintedTemplate<CudaScanSchedule> made({
      .version = 5,
      .backend = Backend::kCuda,
      .family = Family::kScan,
      .candidates = cuda_scan_candidates,
      .print = print_cuda_scan,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
