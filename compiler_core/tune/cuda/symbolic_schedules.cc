#include "compiler_core/tune/cuda/symbolic_schedules.h"

#include <algorithm>
#include <bit>

#include "compiler_core/ir/affine.h"
#include "compiler_core/tune/axis_extents.h"
#include "compiler_core/tune/cuda/row_shape.h"
#include "compiler_core/tune/cuda/space_column_reduction.h"
#include "compiler_core/tune/cuda/space_matmul.h"
#include "compiler_core/tune/cuda/space_pointwise.h"
#include "compiler_core/tune/cuda/space_row_reduction.h"
#include "compiler_core/tune/cuda/space_scan.h"
#include "compiler_core/tune/cuda/space_scatter.h"
#include "compiler_core/tune/cuda/space_sort.h"

namespace kiln {
namespace {

bool has_whole_vectors(const Dim& size, int lanes) {
  return Dim::divide_exact(size, lanes).has_value();
}

CudaPointwiseSchedule plain(const Graph& graph, const CudaPointwiseSchedule& chosen) {
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  CudaPointwiseSchedule schedule;
  schedule.threads = chosen.tile > 0 ? schedule.threads : chosen.threads;
  schedule.lanes =
      shape.size() < 2 || has_whole_vectors(shape.back(), chosen.lanes) ? chosen.lanes : 1;
  schedule.stream = chosen.stream;
  return schedule;
}

// A row that is a block's, and read again by every loop.
CudaRowReductionSchedule plain(const Graph& graph, const CudaRowReductionSchedule& chosen) {
  const Dim& columns = reduction_space(graph).shape.back();
  CudaRowReductionSchedule schedule;
  schedule.lanes = has_whole_vectors(columns, chosen.lanes) ? chosen.lanes : 1;
  schedule.threads = std::clamp(chosen.threads * chosen.cluster, 32, 1024);
  schedule.storage = RowStorage::kReread;
  schedule.vectors = 1;
  schedule.stream = chosen.stream;
  return schedule;
}

// A thread a column.
CudaColumnReductionSchedule plain(const Graph& /*graph*/,
                                  const CudaColumnReductionSchedule& chosen) {
  CudaColumnReductionSchedule schedule;
  schedule.lanes = schedule.down = schedule.unroll = 1;
  schedule.across = std::min(chosen.threads(), 256);
  return schedule;
}

// A split's sums lie in a workspace of constant size.
CudaMatmulSchedule plain(const Graph& /*graph*/, CudaMatmulSchedule chosen) {
  chosen.splits = 1;
  return chosen;
}

CudaScanSchedule plain(const Graph& graph, CudaScanSchedule chosen) {
  const SizedScan extent = SizedScan::of(graph);
  if (!extent.inner.is(1) && !has_whole_vectors(extent.inner, chosen.lanes)) chosen.lanes = 1;
  return chosen;
}

constexpr int64_t kOpenTile = 1024;  // entries of a tile, where there may be any number of them

// A tile that serves what there may be at most, and many of which are merged in few turns.
int open_tile(const Graph& graph, const Dim& entries, int chosen) {
  if (entries.is_constant()) return chosen;
  const int64_t most = std::clamp<int64_t>(upper_bound(entries, graph.symbols()), 64, kOpenTile);
  return std::max(chosen, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(most))));
}

CudaSortSchedule plain(const Graph& graph, CudaSortSchedule chosen) {
  const int tile = open_tile(graph, SizedSort::of(graph).size, chosen.tile);
  if (tile != chosen.tile) chosen.threads = std::max(chosen.threads, tile / 4);
  chosen.tile = tile;
  return chosen;
}

CudaScatterSchedule plain(const Graph& graph, CudaScatterSchedule chosen) {
  const SizedScatter extent = SizedScatter::of(graph);
  if (!has_whole_vectors(extent.row, chosen.lanes)) chosen.lanes = 1;
  chosen.tile = open_tile(graph, extent.count, chosen.tile);
  return chosen;
}

template <class Decisions>
Result<std::vector<Schedule>> plain_forms(const Graph& graph, std::span<const Schedule> chosen) {
  std::vector<Schedule> space;
  for (const Schedule& schedule : chosen) {
    TRY(const Decisions decisions, Decisions::from(schedule));
    Schedule made = plain(graph, decisions).to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  }
  return space;
}

Result<std::vector<Schedule>> plain_convolutions(const Graph& graph,
                                                 std::span<const Schedule> chosen) {
  std::vector<Schedule> products(chosen.begin(), chosen.end());
  for (Schedule& schedule : products) schedule.family = Family::kMatmul;
  TRY(std::vector<Schedule> space, plain_forms<CudaMatmulSchedule>(graph, products));
  for (Schedule& schedule : space) schedule.family = Family::kConvolution;
  return space;
}

// Any number of rows of one length: all that a row's threads do is known, but where the memory's
// vectors lie when that differs from row to row.
Result<std::vector<Schedule>> any_number_of_rows(const Graph& graph,
                                                 std::span<const Schedule> chosen) {
  const int64_t alignment = RowShape::of(graph).alignment;
  std::vector<Schedule> space;
  for (const Schedule& schedule : chosen) {
    TRY(const CudaRowReductionSchedule decisions, CudaRowReductionSchedule::from(schedule));
    if (decisions.split == 1 && decisions.walk == 0 && decisions.lanes <= alignment)
      space.push_back(schedule);
  }
  if (!space.empty()) return space;
  TRY(CudaRowReductionSchedule first, CudaRowReductionSchedule::from(chosen[0]));
  first.lanes = static_cast<int>(std::min<int64_t>(first.lanes, alignment));
  return std::vector<Schedule>{plain(graph, first).to_schedule()};
}

// What a row's threads were chosen for, rows that stay in registers, is not what they do here.
Result<std::vector<Schedule>> with_other_threads(std::vector<Schedule> space) {
  TRY(CudaRowReductionSchedule schedule, CudaRowReductionSchedule::from(space[0]));
  for (const int threads : {64, 128, 256, 512, 1024}) {
    schedule.threads = threads;
    Schedule made = schedule.to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  }
  return space;
}

}  // namespace

Result<std::vector<Schedule>> cuda_symbolic_schedules(const Workload& workload,
                                                      std::span<const Schedule> chosen) {
  switch (workload.family) {
    case Family::kPointwise:
      return plain_forms<CudaPointwiseSchedule>(workload.graph, chosen);
    case Family::kRowReduction: {
      if (has_constant_rows(workload.graph)) return any_number_of_rows(workload.graph, chosen);
      TRY(std::vector<Schedule> space,
          plain_forms<CudaRowReductionSchedule>(workload.graph, chosen));
      return with_other_threads(space);
    }
    case Family::kColumnReduction:
      return plain_forms<CudaColumnReductionSchedule>(workload.graph, chosen);
    case Family::kMatmul:
      return plain_forms<CudaMatmulSchedule>(workload.graph, chosen);
    case Family::kAttention:  // a tile's sizes are constants, whatever it is a part of
      return std::vector<Schedule>(chosen.begin(), chosen.end());
    case Family::kScan:
      return plain_forms<CudaScanSchedule>(workload.graph, chosen);
    case Family::kSort:
      return plain_forms<CudaSortSchedule>(workload.graph, chosen);
    case Family::kScatter:
      return plain_forms<CudaScatterSchedule>(workload.graph, chosen);
    case Family::kConvolution:
      return plain_convolutions(workload.graph, chosen);
    default:
      return fail(Code::kUnsupported, "CUDA kernels of the family " +
                                          std::string(to_string(workload.family)) +
                                          " are not written for sizes known only at run time yet");
  }
}

}  // namespace kiln
