#include "compiler_core/kernels/scatter/cuda_scatter.h"

#include <algorithm>
#include <bit>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kMostTile = 4096;  // whose entries fit the shared memory that needs no asking
constexpr int64_t kLeastTile = 64;

}  // namespace

Result<CudaScatterSchedule> CudaScatterSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cuda.scatter")
    return fail(Code::kInvalidArgument, "not a scatter's schedule");
  const int64_t lanes = schedule.get("lanes", 4), threads = schedule.get("threads", 256);
  const int64_t tile = schedule.get("tile", 1024);
  if (!is_power_of_two(lanes) || lanes > 16 || !is_power_of_two(threads) || threads < 32 ||
      threads > 1024 || !is_power_of_two(tile) || tile < kLeastTile || tile > kMostTile)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CudaScatterSchedule{static_cast<int>(lanes), static_cast<int>(threads),
                             static_cast<int>(tile)};
}

Schedule CudaScatterSchedule::to_schedule() const {
  return {"cuda.scatter", {{"lanes", lanes}, {"threads", threads}, {"tile", tile}}};
}

std::vector<Schedule> cuda_scatter_candidates(const Workload& workload, const Target&) {
  const ScatterExtent extent = ScatterExtent::of(workload.graph);
  int64_t lanes = std::clamp<int64_t>(16 / size_of(extent.dtype), 2, 8);
  while (extent.row % lanes != 0) lanes /= 2;
  const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent.count)));
  std::vector<Schedule> space;
  const auto add = [&](int64_t width, int threads, int64_t tile) {
    Schedule made = CudaScatterSchedule{static_cast<int>(width), threads,
                                        static_cast<int>(std::clamp(tile, kLeastTile, kMostTile))}
                        .to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  };
  for (const int64_t tile : {std::min<int64_t>(all, 2048), std::min<int64_t>(all, 1024)}) {
    add(lanes, 256, tile);
    add(lanes, 128, tile);
    add(1, 256, tile);
  }
  return space;
}

namespace {

std::optional<CudaScatterSchedule> adapt(const Graph& graph, CudaScatterSchedule chosen) {
  const SizedScatter extent = SizedScatter::of(graph);
  if (!has_whole_vectors(extent.row, chosen.lanes)) chosen.lanes = 1;
  chosen.tile = dynamic_tile(graph, extent.count, chosen.tile);
  return chosen;
}

Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return dynamic_candidates<CudaScatterSchedule>(workload, target, cuda_scatter_candidates, adapt);
}

Result<Source> print(const Graph& graph, const CudaScatterSchedule& schedule,
                     const Target& /*target*/) {
  return print_cuda_scatter(graph, schedule);
}

}  // namespace

const KernelTemplate& cuda_scatter() {
  static const PrintedTemplate<CudaScatterSchedule> made("cuda.scatter", 1, Backend::kCuda,
                                                         Family::kScatter, candidates, print);
  return made;
}

}  // namespace kiln
