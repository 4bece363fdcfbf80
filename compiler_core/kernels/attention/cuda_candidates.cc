#include "compiler_core/kernels/attention/cuda_attention.h"

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {

bool registers_hold(int keys, const AttentionProblem& problem) {
  // Scores twice, as they are and as weights on their way into the second product, and both in two
  // parts where f32 is multiplied so. Beyond, the compiler spills.
  constexpr int64_t kMostHeld = 168;
  const int64_t scores = problem.stored == DType::kF32 ? 3 * keys : keys;
  return round_up(problem.columns, int64_t{16}) / 2 + scores <= kMostHeld;
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
                      registers_hold(schedule.keys, problem);
    const bool wasteful = schedule.keys > 32 && schedule.keys >= 2 * problem.keys.constant();
    if (fits && !wasteful) space.push_back(to_schedule(schedule));
  }
  // Wide heads of f32, on any target.
  if (space.empty()) space.push_back(to_schedule(CudaAttentionSchedule{4, 16, 1}));
  return space;
}

const KernelTemplate& cuda_attention() {
  static const PrintedTemplate<CudaAttentionSchedule> made({
      .version = 11,
      .backend = Backend::kCuda,
      .family = Family::kAttention,
      .check = check_operands_lie_in_memory,
      .candidates = cuda_attention_candidates,
      .print = print_cuda_attention,
  });
  return made;
}

}  // namespace kiln
