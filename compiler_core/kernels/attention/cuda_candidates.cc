#include "compiler_core/kernels/attention/cuda_attention.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// Registers of a thread that sums and scores take: scores twice, as they are and as weights on
// their way into the second product, and both in two parts where f32 is multiplied so. Beyond, the
// compiler spills.
constexpr int64_t kMostHeld = 168;

int64_t held(const CudaAttentionSchedule& schedule, const AttentionProblem& problem) {
  const int64_t scores = problem.stored == DType::kF32 ? 3 * schedule.keys : schedule.keys;
  return (problem.columns + 15) / 16 * 8 + scores;
}

}  // namespace

Result<CudaAttentionSchedule> CudaAttentionSchedule::from(const Schedule& schedule) {
  if (schedule.template_name != "cuda.attention")
    return fail(Code::kInvalidArgument, "not an attention schedule");
  const int64_t warps = schedule.get("warps", 4), keys = schedule.get("keys", 64);
  const int64_t stages = schedule.get("stages", 2);
  if (warps < 1 || warps > 8 || keys < 16 || keys > 256 || keys % 16 != 0 || stages < 1 ||
      stages > 4)
    return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
  return CudaAttentionSchedule{static_cast<int>(warps), static_cast<int>(keys),
                               static_cast<int>(stages)};
}

Schedule CudaAttentionSchedule::to_schedule() const {
  return {"cuda.attention", {{"warps", warps}, {"keys", keys}, {"stages", stages}}};
}

int shared_row(int64_t elements, int64_t bytes) {
  const int64_t in_chunk = 16 / bytes;
  int64_t chunks = (elements + in_chunk - 1) / in_chunk;
  if (chunks > 8)
    chunks = (chunks + 7) / 8 * 8;
  else
    while ((chunks & (chunks - 1)) != 0 || chunks < 2) ++chunks;
  return static_cast<int>(std::max(chunks * in_chunk, int64_t{16}));
}

int CudaAttentionSchedule::shared_bytes(const AttentionProblem& problem) const {
  const int64_t bytes = size_of(problem.stored);
  const int64_t depth = shared_row(problem.depth, bytes);
  const int64_t columns = shared_row(problem.columns, bytes);
  return static_cast<int>((warps * 16 * depth + stages * keys * (depth + columns)) * bytes);
}

std::vector<Schedule> cuda_attention_candidates(const Workload& workload, const Target& target) {
  const AttentionProblem problem = AttentionProblem::of(workload.graph);
  const CudaLimits limits = cuda_limits(target);
  constexpr CudaAttentionSchedule kSchedules[] = {{4, 64, 2},  {8, 64, 2}, {4, 32, 2}, {8, 32, 2},
                                                  {4, 128, 2}, {4, 64, 1}, {4, 32, 1}, {2, 32, 2}};
  std::vector<Schedule> space;
  for (const CudaAttentionSchedule& schedule : kSchedules) {
    const bool fits = schedule.shared_bytes(problem) <= limits.block_shared_bytes &&
                      held(schedule, problem) <= kMostHeld;
    const bool wasteful = schedule.keys > 32 && schedule.keys >= 2 * problem.keys.constant();
    if (fits && !wasteful) space.push_back(schedule.to_schedule());
  }
  // Wide heads of f32, on any target.
  if (space.empty()) space.push_back(CudaAttentionSchedule{4, 16, 1}.to_schedule());
  return space;
}

namespace {

// A tile's sizes are constants, whatever it is a part of.
Result<std::vector<Schedule>> candidates(const Workload& workload, const Target& target) {
  return candidates_at_measured_sizes(workload, target, cuda_attention_candidates);
}

Result<Source> print(const Graph& graph, const CudaAttentionSchedule& schedule,
                     const Target& /*target*/) {
  return print_cuda_attention(graph, schedule);
}

}  // namespace

const KernelTemplate& cuda_attention() {
  static const PrintedTemplate<CudaAttentionSchedule> made("cuda.attention", 1, Backend::kCuda,
                                                           Family::kAttention, candidates, print);
  return made;
}

}  // namespace kiln
