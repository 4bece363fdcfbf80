#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/column_reduction/cuda_column_fold.h"
#include "compiler_core/kernels/column_reduction/cuda_column_walk.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"

namespace kiln {
namespace {

constexpr int kWantedThreads = 1024;  // resident on an SM; 64 registers each
constexpr int kKeepingThreads = 512;  // that hold rows: 128 registers each

// A block, or a cluster of them, goes down its strip of columns once for every loop.
Source print_strips(const Graph& graph, const ReductionPasses& passes, const ColumnExtent& extent,
                    const CudaColumnReductionSchedule& schedule) {
  ColumnWalk walk(graph, extent, schedule, (extent.rows + schedule.cluster - 1) / schedule.cluster,
                  schedule.lanes);
  for (const ReductionPasses::Pass& pass : passes.passes)
    for (NodeId id : pass.reduces)
      walk.printer().bind(id, {fmt::format("result{}", id), Level::kOuter, false});
  const ThreadRows rows{schedule.across, schedule.threads(), schedule.lanes, schedule.cluster,
                        walk.copy_bytes()};

  std::string loops;
  int shared_bytes = walk.copy_bytes();
  bool again = false;
  for (const ReductionPasses::Pass& pass : passes.passes) {
    if (pass.empty()) continue;
    loops += walk.pass(pass);
    if (pass.reduces.empty()) continue;
    loops += rows.fold(graph, pass.reduces, again);
    again = true;
    shared_bytes = std::max(shared_bytes, rows.offset + rows.shared_bytes(graph, pass.reduces));
  }
  loops += walk.reduced_outputs(passes.reduced_outputs);
  const int most = schedule.keep ? kKeepingThreads : kWantedThreads;
  const std::string body = walk.position() + walk.printer().take(Level::kKernel, 2) + loops;

  Source source;
  source.text = cuda_preamble(graph, schedule.lanes, {"columns.cuh"}) +
                cuda_kernel("kernel", graph, schedule.threads(),
                            std::max(1, most / schedule.threads()), body);
  source.recipe = argument_recipe(graph);
  source.recipe.phases = {
      {"kernel", walk.blocks(), schedule.threads(), schedule.cluster, shared_bytes}};
  return source;
}

}  // namespace

int column_blocks_an_sm(int threads) {
  return std::max(1, kWantedThreads / threads);
}

Result<Source> print_cuda_column_reduction(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule,
                                           const Target& target) {
  if (!graph.symbols().empty()) return print_cuda_symbolic_columns(graph, schedule);
  const auto refuse = [](const std::string& why) { return fail(Code::kInvalidArgument, why); };
  const ReductionPasses passes = ReductionPasses::of(graph, ReductionPasses::Keep::kNothing);
  const ColumnExtent extent(passes.space);
  const CudaLimits limits = cuda_limits(target);
  const int64_t fold = column_fold(extent.columns, schedule.lanes);
  std::optional<Graph> folded;
  if (fold > 1 && schedule.split > 0) folded = fold_columns(graph, passes, extent, fold);
  if (fold > 1 && !folded)
    return refuse(fmt::format("{} lanes do not divide {} columns", schedule.lanes, extent.columns));
  if (schedule.cluster > limits.max_cluster) return refuse("too large a cluster for this device");
  if (schedule.keep && extent.rows > kMostKeptRows * schedule.down * schedule.cluster)
    return refuse(fmt::format("{} rows are too many to keep in registers", extent.rows));
  const Source source =
      schedule.split > 0
          ? print_cuda_split_columns(graph, passes, extent, folded ? &*folded : nullptr, schedule)
          : print_strips(graph, passes, extent, schedule);
  for (const Phase& phase : source.recipe.phases)
    if (phase.shared_bytes > limits.block_shared_bytes)
      return refuse("more than a block's shared memory");
  return source;
}

}  // namespace kiln
