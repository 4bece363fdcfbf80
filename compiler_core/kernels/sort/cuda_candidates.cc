#include "compiler_core/kernels/sort/cuda_sort.h"

#include <algorithm>
#include <bit>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kUsualTile = 1024;  // that rows shorter than this fill together

}  // namespace

std::vector<Schedule> cuda_sort_candidates(const Workload& workload, const Target&) {
  const SortExtent extent = SortExtent::of(workload.graph);
  const int64_t most =
      size_of(extent.dtype) == 8 ? CudaSortSchedule::kMostTile / 2 : CudaSortSchedule::kMostTile;
  const auto power = [](int64_t x) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x)));
  };
  const int64_t row = power(extent.size);
  std::vector<Schedule> space;
  const auto add = [&](int64_t tile) {
    for (const int64_t threads : {tile / 2, tile / 4}) {
      const auto fitting = static_cast<int>(std::clamp<int64_t>(threads, 32, 1024));
      add_unless_present(space, to_schedule(CudaSortSchedule{static_cast<int>(tile), fitting}));
    }
  };
  const auto fitting = [&](int64_t tile) {
    return std::clamp(tile, CudaSortSchedule::kLeastTile, most);
  };
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

}  // namespace

const KernelTemplate& cuda_sort() {
  static const PrintedTemplate<CudaSortSchedule> made({
      .version = 5,
      .backend = Backend::kCuda,
      .family = Family::kSort,
      .candidates = cuda_sort_candidates,
      .print = print_cuda_sort,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
