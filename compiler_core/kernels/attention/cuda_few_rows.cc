// cuda.attention.few_rows: attention that waits for keys and values.

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/attention/cuda_attention.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr int kBlockRows = 16;
constexpr size_t kMostCandidates = 6;

// What a warp, or a block, has of its rows: PartOfRows in attention_few_rows.cuh.
int64_t part_bytes(const AttentionProblem& problem) {
  const int64_t columns = round_up(problem.columns, int64_t{16});
  return (2 * kBlockRows + kBlockRows * (columns + 8)) * 4;
}

class FewRowsAttentionKernel {
 public:
  FewRowsAttentionKernel(const Graph& graph, const CudaFewRowsAttentionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        text_(graph, AttentionProblem::of(graph).with_heads_as_rows(), kBlockRows, schedule.keys) {}

  Source print() const {
    const AttentionProblem& problem = text_.problem();
    const int64_t bytes = size_of(problem.stored);
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, text_.lanes(), {"mma.cuh"}) + text_.print_problem() +
                  fmt::format(
                      "struct Tiling {{\n"
                      "  static constexpr int warps = {}, row_warps = 1, keys = {}, stages = {};\n"
                      "  static constexpr int depth = {}, columns = {};\n}};\n",
                      schedule_.warps, schedule_.keys, schedule_.stages,
                      shared_row(problem.depth, bytes), shared_row(problem.columns, bytes)) +
                  std::string(device_text("attention_seen.cuh")) +
                  std::string(device_text("attention.cuh")) +
                  std::string(device_text("attention_few_rows.cuh"));
    source.text += cuda_kernel("attend_rows", graph_, schedule_.threads(), 1, print_body());
    Phase phase;
    phase.entry = "attend_rows";
    phase.grid =
        Grid({GridAxis{problem.batches * schedule_.splits}, GridAxis{problem.rows, kBlockRows}});
    phase.threads = schedule_.threads();
    phase.cluster = schedule_.splits;
    phase.shared_bytes = static_cast<int>(schedule_.shared_bytes(problem));
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  std::string print_body() const {
    const bool splits = schedule_.splits > 1;
    return fmt::format(
               "  const int block = static_cast<int>(block_index(){});\n"
               "  const int split = {};\n"
               "  const index_t batch = block / {};\n"
               "  const int first_row = block % {} * {};\n",
               splits ? fmt::format(" / {}", schedule_.splits) : "",
               splits ? "cluster_rank()" : "0", text_.row_blocks(), text_.row_blocks(),
               kBlockRows) +
           print_batch_coordinates(text_.problem().batch) + text_.print_sizes() +
           text_.print_pointers() + text_.print_scores(text_.problem().pattern.query_key) +
           text_.print_store() + text_.print_store_log_sum() +
           fmt::format(
               "  attend_few_rows<{}, {}>(problem, query, key, value, first_row, split, "
               "shared_memory(), scores, store_result, store_log_sum);\n",
               attention_core(text_.problem().stored), schedule_.splits);
  }

  const Graph& graph_;
  const CudaFewRowsAttentionSchedule schedule_;
  const AttentionText text_;
};

Status check_few_rows_attention(const Workload& workload) {
  const AttentionProblem problem = AttentionProblem::of(workload.graph).with_heads_as_rows();
  const bool few = problem.heads_axis >= 0 ||
                   (problem.rows.is_constant() && problem.rows.constant() <= kBlockRows);
  if (few) return {};
  return fail(
      Code::kUnsupported,
      fmt::format("attention of more than {} rows has kernels of other templates", kBlockRows));
}

bool has_room(const CudaFewRowsAttentionSchedule& schedule, const AttentionProblem& problem,
              const CudaLimits& limits) {
  return schedule.shared_bytes(problem) <= limits.block_shared_bytes &&
         schedule.splits <= limits.max_cluster;
}

// The same where keys and values are computed, and what they are made of may wait. A target that has no
// instruction for 8-bit floats converts them in more registers.
bool registers_hold_computed(const CudaFewRowsAttentionSchedule& schedule,
                             const AttentionProblem& problem, const Target& target) {
  constexpr int64_t kOfSm = 65536, kMost = 255, kWaiting = 32, kSchedulers = 4;
  const int64_t elsewhere = target.isa == "sm_90a" ? 56 : 64;
  const int64_t held =
      round_up(problem.columns, int64_t{16}) / 2 + schedule.keys + kWaiting + elsewhere;
  // Each scheduler has a quarter of them, for as many warps as the busiest one.
  const int64_t most = kOfSm / (round_up(int64_t{schedule.warps}, kSchedulers) * 32) / 8 * 8;
  return held <= std::min(kMost, most) && registers_hold(schedule.keys, problem);
}

std::vector<Schedule> few_rows_attention_candidates(const Workload& workload,
                                                    const Target& target) {
  const AttentionProblem problem = AttentionProblem::of(workload.graph).with_heads_as_rows();
  const CudaLimits limits = cuda_limits(target);
  const int64_t blocks =
      problem.batches.constant() * ceil_div(problem.rows.constant(), int64_t{kBlockRows});
  // Blocks for two fifths of the SMs, or twice as many: but no more than have a tile for every warp. A
  // cluster of more waits longer for one another than its blocks read faster.
  int enough = 1;
  while (enough < limits.max_cluster && blocks * enough * 5 < int64_t{limits.sms} * 2) enough *= 2;
  // As they came out (tests/gpu/LOG.md, "Attention of one row", "Caches that a step does not read as they
  // lie"): of heads of 128, tiles of 16 keys. What is computed waits in registers, and no stage does.
  constexpr CudaFewRowsAttentionSchedule kSchedules[] = {
      {8, 16, 2, 1}, {4, 32, 3, 1}, {8, 32, 2, 1}, {8, 16, 3, 1},
      {4, 64, 2, 1}, {4, 16, 4, 1}, {2, 16, 2, 1}, {8, 16, 2, 2}};
  constexpr CudaFewRowsAttentionSchedule kOfComputed[] = {
      {12, 16, 1, 1}, {8, 16, 1, 1}, {4, 16, 1, 2}, {8, 16, 1, 2}, {4, 16, 1, 1}, {2, 16, 1, 1}};
  using Schedules = std::span<const CudaFewRowsAttentionSchedule>;
  std::vector<Schedule> space;
  for (CudaFewRowsAttentionSchedule schedule :
       problem.moves_operands ? Schedules(kSchedules) : Schedules(kOfComputed)) {
    schedule.splits = std::min(schedule.splits * enough, limits.max_cluster);
    const int64_t at_once = int64_t{schedule.splits} * schedule.warps * schedule.keys;
    const bool idle = at_once > 32 && at_once >= 2 * problem.keys.constant();
    const bool holds = problem.moves_operands ? registers_hold(schedule.keys, problem)
                                              : registers_hold_computed(schedule, problem, target);
    if (!idle && has_room(schedule, problem, limits) && holds && space.size() < kMostCandidates)
      add_unless_present(space, to_schedule(schedule));
  }
  // Few keys that no other template reads; its room any device has.
  if (space.empty() && problem.computes_operands())
    space.push_back(to_schedule(CudaFewRowsAttentionSchedule{2, 16, 1, 1}));
  return space;
}

// Of few keys there is nothing to divide among warps.
double few_rows_attention_efficiency(const Workload& workload) {
  constexpr int64_t kManyKeys = 256;
  const Dim keys = AttentionProblem::of(workload.graph).keys;
  return size_at_hints(workload.graph, keys) >= kManyKeys ? 0.8 : 0.4;
}

Result<Source> print_few_rows_attention(const Graph& graph,
                                        const CudaFewRowsAttentionSchedule& schedule,
                                        const Target& target) {
  const AttentionProblem problem = AttentionProblem::of(graph).with_heads_as_rows();
  if (!has_room(schedule, problem, cuda_limits(target)))
    return fail(Code::kUnsupported,
                fmt::format("{} on {}", to_schedule(schedule).to_string(), target.isa));
  return FewRowsAttentionKernel(graph, schedule).print();
}

}  // namespace

int64_t CudaFewRowsAttentionSchedule::shared_bytes(const AttentionProblem& problem) const {
  const int64_t bytes = size_of(problem.stored);
  const int64_t depth = shared_row(problem.depth, bytes);
  const int64_t columns = shared_row(problem.columns, bytes);
  const int64_t tiles =
      (kBlockRows * depth + int64_t{warps} * stages * keys * (depth + columns)) * bytes;
  return std::max(tiles, (warps + (splits > 1 ? 1 : 0)) * part_bytes(problem));
}

const KernelTemplate& cuda_few_rows_attention() {
  static const PrintedTemplate<CudaFewRowsAttentionSchedule> made({
      .version = 4,
      .backend = Backend::kCuda,
      .family = Family::kAttention,
      .check = check_few_rows_attention,
      .candidates = few_rows_attention_candidates,
      .print_for = print_few_rows_attention,
      .expected_efficiency = few_rows_attention_efficiency,
  });
  return made;
}

}  // namespace kiln
