#include "compiler_core/tune/symbolic_space.h"

#include <algorithm>
#include <optional>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/specialise.h"
#include "compiler_core/tune/axis_extents.h"
#include "compiler_core/tune/cpu/space_attention.h"
#include "compiler_core/tune/cpu/space_column_reduction.h"
#include "compiler_core/tune/cpu/space_convolution.h"
#include "compiler_core/tune/cpu/space_matmul.h"
#include "compiler_core/tune/cpu/space_pointwise.h"
#include "compiler_core/tune/cpu/space_row_reduction.h"
#include "compiler_core/tune/cpu/space_scan.h"
#include "compiler_core/tune/cpu/space_sort.h"
#include "compiler_core/tune/cuda/symbolic_schedules.h"

namespace kiln {
namespace {

using Keep = ReductionPasses::Keep;

constexpr int64_t kMostKeptBytes = int64_t{1} << 20;
constexpr int64_t kLeastDepth = 256, kLeastBlock = 96;  // of products whose sizes may grow
constexpr int64_t kLeastKeys = 128;
// Of a convolution's panel of windows, where it had none.
constexpr int64_t kMostDepth = 512, kMostPositions = 512;

int64_t at_sizes(const Dim& size, std::span<const Symbol> symbols) {
  return size.evaluate(measured_sizes(symbols)).value_or(INT64_MAX);
}

// The summed axis is cut into pieces where it is known how long it is.
std::optional<ScanSchedule> take_over(const Graph& graph, ScanSchedule schedule) {
  if (!SizedScan::of(graph).size.is_constant()) schedule.split = 1;
  return schedule;
}

// The same of rows that are sorted.
std::optional<SortSchedule> take_over(const Graph& graph, SortSchedule schedule) {
  if (!SizedSort::of(graph).size.is_constant()) schedule.split = 1;
  return schedule;
}

// A block is whole rows only where it is known how long these are.
std::optional<PointwiseSchedule> take_over(const Graph& graph, PointwiseSchedule schedule) {
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  if (shape.size() > 1 && !shape.back().is_constant() && schedule.columns == 0)
    schedule.columns =
        std::clamp<int64_t>(at_sizes(shape.back(), graph.symbols()), 1, schedule.block);
  return schedule;
}

std::optional<RowReductionSchedule> take_over(const Graph& graph, RowReductionSchedule schedule) {
  const ReductionPasses passes = ReductionPasses::of(graph, schedule.keep);
  Dim row = 1;
  for (size_t k = static_cast<size_t>(passes.space.reduced_begin); k < passes.space.shape.size();
       ++k)
    row = row * passes.space.shape[k];
  if (row.is_constant()) return schedule;
  if (schedule.split > 1) return std::nullopt;
  const int64_t kept = passes.kept_bytes_per_element(graph);
  if (kept > 0 && upper_bound(row * kept, graph.symbols()) > kMostKeptBytes)
    schedule.keep = Keep::kNothing;
  return schedule;
}

std::optional<ColumnReductionSchedule> take_over(const Graph& graph,
                                                 ColumnReductionSchedule schedule) {
  const ReductionPasses passes = ReductionPasses::of(graph, schedule.keep);
  Dim rows = 1;
  for (int k = passes.space.reduced_begin; k < passes.space.reduced_end; ++k)
    rows = rows * passes.space.shape[static_cast<size_t>(k)];
  const int64_t kept =
      passes.kept_bytes_per_element(graph) * schedule.vectors * int64_t{schedule.lanes};
  if (kept > 0 && upper_bound(rows * kept, graph.symbols()) > kMostKeptBytes)
    schedule.keep = Keep::kNothing;
  return schedule;
}

int64_t whole_tiles(int64_t least, int64_t size, int64_t tile) {
  return (std::max(least, size) + tile - 1) / tile * tile;
}

// Sizes that may grow far beyond the measured ones are cut into blocks of the usual size.
std::optional<MatmulSchedule> take_over(const Graph& graph, MatmulSchedule schedule) {
  const SizedMatmul problem = SizedMatmul::of(graph);
  if (!fits(schedule, problem)) return std::nullopt;
  if (schedule.dot) return schedule;
  if (!problem.k.is_constant()) schedule.kc = std::max(schedule.kc, kLeastDepth);
  if (!problem.m.is_constant()) schedule.mc = whole_tiles(kLeastBlock, schedule.mc, schedule.mr);
  if (!problem.n.is_constant()) schedule.nc = whole_tiles(kLeastBlock, schedule.nc, schedule.nr);
  return schedule;
}

// Blocks of the usual size, where there may be far more queries and keys than were measured.
std::optional<AttentionSchedule> take_over(const Graph& graph, AttentionSchedule schedule) {
  const AttentionProblem problem = AttentionProblem::of(graph);
  if (!problem.rows.is_constant())
    schedule.queries = whole_tiles(kLeastBlock, schedule.queries, schedule.mr);
  if (!problem.keys.is_constant())
    schedule.keys = whole_tiles(kLeastKeys, schedule.keys, schedule.lanes * schedule.vectors);
  return schedule;
}

// A block is tiles and not rows of the result, and a copy of x as large as it turns out to be.
std::optional<ConvolutionSchedule> take_over(const Graph& graph, ConvolutionSchedule schedule) {
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  if (problem.sized.is_constant()) return schedule;
  schedule.slide = false;
  schedule.kc = std::min(schedule.kc, kMostDepth);
  schedule.nc = whole_tiles(kLeastBlock, std::min(schedule.nc, kMostPositions), schedule.nr);
  if (!problem.is_inside() || schedule.x_from == XFrom::kBlock) schedule.x_from = XFrom::kField;
  if (!fits(schedule, problem)) return std::nullopt;
  return schedule;
}

// What can be written whatever the symbols are.
MatmulSchedule plain(const MatmulSchedule& chosen) {
  MatmulSchedule schedule;
  schedule.lanes = chosen.lanes;
  schedule.nr = 2 * chosen.lanes;
  schedule.mr = 6;
  return schedule;
}

template <class Decisions>
Result<std::vector<Schedule>> take_over_all(const Graph& graph, std::span<const Schedule> chosen) {
  std::vector<Schedule> space;
  for (const Schedule& schedule : chosen) {
    TRY(const Decisions decisions, Decisions::from(schedule));
    const std::optional<Decisions> taken = take_over(graph, decisions);
    if (!taken) continue;
    Schedule made = taken->to_schedule();
    if (std::find(space.begin(), space.end(), made) == space.end()) space.push_back(made);
  }
  return space;
}

Result<std::vector<Schedule>> cpu_space(const Workload& workload,
                                        std::span<const Schedule> chosen) {
  switch (workload.family) {
    case Family::kPointwise:
      return take_over_all<PointwiseSchedule>(workload.graph, chosen);
    case Family::kRowReduction: {
      TRY(std::vector<Schedule> space, take_over_all<RowReductionSchedule>(workload.graph, chosen));
      if (space.empty()) {
        TRY(RowReductionSchedule uncut, RowReductionSchedule::from(chosen[0]));
        uncut.split = 1;
        space.push_back(uncut.to_schedule());
      }
      return space;
    }
    case Family::kColumnReduction:
      return take_over_all<ColumnReductionSchedule>(workload.graph, chosen);
    case Family::kMatmul: {
      TRY(std::vector<Schedule> space, take_over_all<MatmulSchedule>(workload.graph, chosen));
      if (space.empty()) {
        TRY(const MatmulSchedule first, MatmulSchedule::from(chosen[0]));
        space.push_back(plain(first).to_schedule());
      }
      return space;
    }
    case Family::kScan:
      return take_over_all<ScanSchedule>(workload.graph, chosen);
    case Family::kSort:
      return take_over_all<SortSchedule>(workload.graph, chosen);
    case Family::kAttention:
      return take_over_all<AttentionSchedule>(workload.graph, chosen);
    case Family::kConvolution: {
      TRY(std::vector<Schedule> space, take_over_all<ConvolutionSchedule>(workload.graph, chosen));
      if (space.empty()) {
        TRY(ConvolutionSchedule packed, ConvolutionSchedule::from(chosen[0]));
        packed.a_packed = true;  // whatever the weight is
        space.push_back(take_over(workload.graph, packed)->to_schedule());
      }
      return space;
    }
    case Family::kScatter:  // a constant number of parts, some of which may be empty
      return std::vector<Schedule>(chosen.begin(), chosen.end());
    default:
      return fail(Code::kUnsupported, "kernels of the family " +
                                          std::string(to_string(workload.family)) +
                                          " are not written for sizes known only at run time yet");
  }
}

}  // namespace

Result<Workload> sized_workload(const Workload& workload, std::span<const int64_t> sizes) {
  std::vector<Symbol> symbols;
  for (const int64_t size : sizes) symbols.push_back({{size, size}, size});
  TRY(Graph graph, specialise(workload.graph, symbols));
  return Workload{std::move(graph), workload.family, workload.digest};
}

Result<std::vector<Schedule>> symbolic_space(const Workload& workload, const Target& target,
                                             std::span<const Schedule> chosen) {
  if (target.backend == Backend::kCuda) return cuda_symbolic_schedules(workload, chosen);
  return cpu_space(workload, chosen);
}

}  // namespace kiln
