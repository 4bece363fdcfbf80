#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/row_reduction/cuda_row_loops.h"

namespace kiln {
namespace {

Status check(const RowLayout& layout, const Target& target) {
  const CudaRowReductionSchedule& schedule = layout.schedule;
  const CudaLimits limits = cuda_limits(target);
  const auto refuse = [&](std::string_view why) {
    return fail(Code::kInvalidArgument,
                fmt::format("{}: {}", to_schedule(schedule).to_string(), why));
  };
  if (schedule.threads * schedule.rows > limits.max_block_threads)
    return refuse("too many threads a block");
  if (schedule.cluster > limits.max_cluster) return refuse("too large a cluster for this device");
  if (layout.shape.several && !is_multiple(layout.shape.columns, schedule.lanes))
    return refuse("vectors would straddle two of several reduced axes");
  if (schedule.storage != RowStorage::kReread && layout.vectors > 64)
    return refuse("more of a row than a thread can hold");
  const bool open_row = !layout.shape.row.is_constant();
  if (open_row && !layout.rereads())
    return refuse("rows of any length are read again by every loop");
  if (layout.shape.rows.is_constant() && !open_row) return {};
  if (layout.is_cut() || schedule.walk > 0 || (open_row && schedule.split > 1))
    return refuse("pieces and walks are of known rows");
  if (schedule.lanes > layout.shape.alignment)
    return refuse("vectors that are aligned for some sizes only");
  return {};
}

// The thread's part in its row.
std::string member_text(const RowLayout& layout) {
  const CudaRowReductionSchedule& s = layout.schedule;
  std::string text = "  const int member = thread_index()";
  if (s.rows > 1) text += fmt::format(" % {}", s.threads);
  if (s.cluster > 1) text += fmt::format(" + cluster_rank() * {}", s.threads);
  return text + ";\n";
}

// The row, in group `group`.
std::string row_text(const RowLayout& layout, const std::string& group) {
  const CudaRowReductionSchedule& s = layout.schedule;
  std::string text = "  const index_t row = ";
  if (s.rows > 1) {
    const std::string row = fmt::format(
        "static_cast<index_t>({}) * {} + "
        "thread_index() / {}",
        group, s.rows, s.threads);
    // Past the last row groups do the last one again, so that barriers see every thread.
    text += is_multiple(layout.shape.rows, s.rows)
                ? row
                : fmt::format("smaller({}, {})", row, layout.shape.rows - 1);
  } else {
    text += fmt::format("static_cast<index_t>({})", group);
    if (const int64_t parts = s.cluster * layout.pieces; parts > 1)
      text += fmt::format(" / {}", parts);
  }
  return text + ";\n";
}

// All loops over a row in one kernel.
Status print_whole(const RowLayout& layout, const Target& target, Source& source) {
  const CudaRowReductionSchedule& s = layout.schedule;
  RowLoops loops(layout, 0, layout.passes.passes.size());
  const auto row_of = [&](const std::string& group) { return row_text(layout, group); };
  std::string body = member_text(layout);
  body += s.walk > 0 ? loops.walk_text(row_of) : row_of("block_index()") + loops.text();
  const int threads = s.threads * s.rows;
  if (loops.shared_bytes() > cuda_limits(target).block_shared_bytes)
    return fail(Code::kInvalidArgument,
                to_schedule(s).to_string() + ": more than a block's shared memory");
  source.text += cuda_kernel("kernel", layout.graph, threads, s.blocks, loops.head() + body);
  Grid grid({{layout.shape.rows, s.rows}, {s.cluster, 1}});
  if (s.walk > 0) {
    const int64_t groups = (layout.shape.rows.constant() + s.rows - 1) / s.rows;
    grid = std::min(s.walk, groups);
  }
  source.recipe.phases = {{"kernel", grid, threads, s.cluster, loops.shared_bytes()}};
  return {};
}

// Rows cut into pieces: one phase a loop, its reductions meet in the workspace.
void print_cut(const RowLayout& layout, Source& source) {
  const CudaRowReductionSchedule& s = layout.schedule;
  const int64_t rows = layout.shape.rows.constant();
  int64_t reduces = 0;
  for (size_t p = 0; p < layout.passes.passes.size(); ++p) {
    const ReductionPasses::Pass& pass = layout.passes.passes[p];
    reduces += static_cast<int64_t>(pass.reduces.size());
    // A pass without a loop is done once a row.
    const int64_t pieces = pass.empty() ? 1 : layout.pieces;
    if (pass.empty() && layout.passes.reduced_outputs.empty()) continue;
    RowLoops loops(layout, p, p + 1);
    const std::string body = loops.text();
    std::string head = loops.head() + "  const int member = thread_index();\n";
    head +=
        fmt::format("  const index_t row = static_cast<index_t>(block_index()) / {};\n", pieces);
    if (!pass.empty())
      head += fmt::format(
          "  const index_t piece = static_cast<index_t>(block_index()) % {0};\n"
          "  const index_t begin = piece * {1}, end = smaller(begin + {1}, {2});\n",
          pieces, layout.piece_vectors, layout.row_vectors);
    const std::string entry = fmt::format("phase{}", p);
    source.text += cuda_kernel(entry, layout.graph, s.threads, s.blocks, head + body);
    source.recipe.phases.push_back({entry, rows * pieces, s.threads, 1, loops.shared_bytes()});
  }
  source.recipe.workspace_bytes = reduces * rows * layout.pieces * 8;
}

}  // namespace

Result<Source> print_cuda_row_reduction(const Graph& graph,
                                        const CudaRowReductionSchedule& schedule,
                                        const Target& target) {
  const RowLayout layout(graph, schedule);
  TRY_STATUS(check(layout, target));
  Source source;
  source.text = cuda_preamble(graph, schedule.lanes);
  source.recipe = argument_recipe(graph);
  if (layout.pieces > 1)
    print_cut(layout, source);
  else
    TRY_STATUS(print_whole(layout, target, source));
  return source;
}

}  // namespace kiln
