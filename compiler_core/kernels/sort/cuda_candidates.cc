#include "compiler_core/kernels/sort/cuda_sort.h"

#include <algorithm>
#include <bit>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kMostTile = 4096;   // whose entries fit the shared memory that needs no asking
constexpr int64_t kLeastTile = 64;    // two entries a thread of a warp
constexpr int64_t kUsualTile = 1024;  // that rows shorter than this fill together

}  // namespace

Result<CudaSortSchedule> CudaSortSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cuda.sort")
    return fail(Code::kInvalidArgument, "not a sort's schedule");
  const int64_t tile = schedule.get("tile", 1024), threads = schedule.get("threads", 256);
  const auto power = [](int64_t x) { return x > 0 && (x & (x - 1)) == 0; };
  if (!power(tile) || tile < kLeastTile || tile > kMostTile || !power(threads) || threads < 32 ||
      threads > 1024)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CudaSortSchedule{static_cast<int>(tile), static_cast<int>(threads)};
}

Schedule CudaSortSchedule::to_schedule() const {
  return {"cuda.sort", {{"tile", tile}, {"threads", threads}}};
}

std::vector<Schedule> cuda_sort_candidates(const Workload& workload, const Target&) {
  const SortExtent extent = SortExtent::of(workload.graph);
  const int64_t most = size_of(extent.dtype) == 8 ? kMostTile / 2 : kMostTile;
  const auto power = [](int64_t x) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x)));
  };
  const int64_t row = power(extent.size);
  std::vector<Schedule> space;
  const auto add = [&](int64_t tile) {
    for (const int64_t threads : {tile / 2, tile / 4}) {
      const auto fitting = static_cast<int>(std::clamp<int64_t>(threads, 32, 1024));
      Schedule made = CudaSortSchedule{static_cast<int>(tile), fitting}.to_schedule();
      if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
    }
  };
  const auto fitting = [&](int64_t tile) { return std::clamp(tile, kLeastTile, most); };
  // A row whole where it fits; rows together where they are short.
  add(fitting(row < kUsualTile && extent.rows > 1
                  ? std::min(row * power(std::min(extent.rows, kUsualTile)), kUsualTile)
                  : row));
  if (row > most) add(most / 2);
  if (row < kUsualTile) add(fitting(row));
  return space;
}

namespace {

std::optional<CudaSortSchedule> adapt(const Graph& graph, CudaSortSchedule chosen) {
  const int tile = dynamic_tile(graph, SizedSort::of(graph).size, chosen.tile);
  if (tile != chosen.tile) chosen.threads = std::max(chosen.threads, tile / 4);
  chosen.tile = tile;
  return chosen;
}

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CudaSortSchedule>(workload, target, cuda_sort_candidates, adapt);
}

Result<Source> print(const Graph& graph, const CudaSortSchedule& schedule,
                     const Target& /*target*/) {
  return print_cuda_sort(graph, schedule);
}

}  // namespace

const KernelTemplate& cuda_sort() {
  static const PrintedTemplate<CudaSortSchedule> made("cuda.sort", 1, Backend::kCuda, Family::kSort,
                                                      candidates, print);
  return made;
}

}  // namespace kiln
