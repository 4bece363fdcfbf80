#include "compiler_core/kernels/scatter/cuda_scatter.h"

#include <algorithm>
#include <bit>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {}  // namespace

std::vector<Schedule> cuda_scatter_candidates(const Workload& workload, const Target&) {
  const ScatterExtent extent = ScatterExtent::of(workload.graph);
  int64_t lanes = std::clamp<int64_t>(16 / size_of(extent.dtype), 2, 8);
  while (extent.row % lanes != 0) lanes /= 2;
  const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent.count)));
  std::vector<Schedule> space;
  const auto add = [&](int64_t width, int threads, int64_t tile) {
    add_unless_present(space, to_schedule(CudaScatterSchedule{
                                  static_cast<int>(width), threads,
                                  static_cast<int>(std::clamp(tile, CudaScatterSchedule::kLeastTile,
                                                              CudaScatterSchedule::kMostTile))}));
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

}  // namespace

const KernelTemplate& cuda_scatter() {
  static const PrintedTemplate<CudaScatterSchedule> made({
      .version = 5,
      .backend = Backend::kCuda,
      .family = Family::kScatter,
      .candidates = cuda_scatter_candidates,
      .print = print_cuda_scatter,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
