// cuda.matmul.few_rows: products of few rows, which wait for memory.

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/ranked_space.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/matmul/rms_norm_text.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr size_t kMostListed = 6;

tl::unexpected<Error> cannot_stream(std::string_view what) {
  return fail(Code::kUnsupported, fmt::format("kernels of few rows are not written for {}", what));
}

// Lines that are contiguous by depth, 16 bytes at a time.
bool streams_lines(const MatmulProblem& problem) {
  const MatmulLines rows = matmul_rows_of_a(problem), columns = matmul_columns_of_b(problem);
  return rows.depth_inner && rows.async && columns.depth_inner && columns.async &&
         problem.k % 8 == 0;
}

bool multiplies_halves(const MatmulProblem& problem) {
  return is_16_bit_float(problem.stored) && problem.result == DType::kF32 && !problem.narrow;
}

Status check_few_rows(const Workload& workload) {
  if (!workload.graph.symbols().empty()) return cannot_stream("sizes with symbols");
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  if (!problem.rms_norm) TRY_STATUS(check_operands_are_stored(workload));
  if (problem.rms_norm && product_lanes(workload.graph, problem.n) != RmsNormText::kLanes)
    return cannot_stream(
        "rows that a norm scales and results of other than whole 16 bytes of halves");
  if (!multiplies_halves(problem))
    return cannot_stream("products of other dtypes than fp16 and bf16");
  if (problem.m > kMostFewRows) return cannot_stream("more than 32 rows");
  if (!streams_lines(problem))
    return cannot_stream("lines that are not contiguous by depth, 16 bytes at a time");
  return {};
}

// Cycles of the launch, enough to rank schedules.
double estimate(const CudaFewRowsSchedule& schedule, const MatmulProblem& problem,
                const CudaLimits& limits) {
  constexpr double kMemory = 20, kL2 = 40;          // an SM's bytes in a cycle
  constexpr double kLatency = 2600;                 // of a load from memory, where many are
  constexpr double kBlock = 1500, kMeeting = 1500;  // of a cluster
  constexpr double kStep = 50;                      // of a warp
  const int64_t depth = ceil_div(problem.k, schedule.splits);
  const int64_t blocks = problem.batches * ceil_div(problem.n, schedule.bn) * schedule.splits;
  const int64_t most = ceil_div(blocks, limits.sms);
  const int64_t together = std::min<int64_t>(schedule.blocks_an_sm(problem, limits), most);
  const auto bytes = static_cast<double>(most * depth * 2);
  // Two steps of every warp are under way, where there are so many.
  const int64_t lines = std::min<int64_t>(int64_t{schedule.warps} * 2 * schedule.bk, depth);
  const auto under_way = static_cast<double>(together * lines * 2) * schedule.bn;
  const double rate = std::min(kMemory, under_way / kLatency);
  const auto steps = static_cast<double>(ceil_div(depth, schedule.warps * schedule.bk));
  // Blocks that share an SM begin and end side by side; clusters that do meet one after the other.
  const auto rounds = static_cast<double>(ceil_div(most, together));
  return std::max(bytes * schedule.bn / rate, bytes * (schedule.bn + schedule.bm) / kL2) +
         kBlock * rounds + kStep * steps +
         (schedule.splits > 1 ? kMeeting * static_cast<double>(most) : 0);
}

std::vector<Schedule> few_rows_candidates(const Workload& workload, const Target& target) {
  return ranked_few_rows(MatmulProblem::of(workload.graph), target);
}

}  // namespace

bool is_short_stream(const MatmulProblem& problem) {
  return problem.m <= kMostRmsNormRows && problem.batches == 1 && multiplies_halves(problem) &&
         streams_lines(problem) && problem.n * problem.k * 2 <= kMostRmsNormOperand;
}

std::vector<Schedule> ranked_few_rows(const MatmulProblem& problem, const Target& target,
                                      int parts) {
  const CudaLimits limits = cuda_limits(target);
  std::vector<RankedDecisions<CudaFewRowsSchedule>> ranked;
  for (const int columns : {16, 32, 64})
    for (const int warps : {16, 8, 4})  // a tie goes to more warps
      for (const int depth : {32, 64, 128})
        for (int splits = 1; splits <= limits.max_cluster; splits *= 2) {
          CudaFewRowsSchedule schedule;
          schedule.bm = problem.m <= 8 ? 8 : problem.m <= 16 ? 16 : 32;
          schedule.bn = columns;
          schedule.bk = depth;
          schedule.warps = warps;
          schedule.splits = splits;
          if (columns % (16 * parts) == 0 && fits(schedule, problem))
            ranked.push_back({estimate(schedule, problem, limits), schedule});
        }
  const auto tile = [](const CudaFewRowsSchedule& x) { return std::make_pair(x.bn, x.splits); };
  const auto form = [](const CudaFewRowsSchedule& x) {
    return std::make_tuple(x.bn, x.splits, x.warps);
  };
  return most_promising(std::move(ranked), kMostListed, tile, form, kMostListed);
}

int CudaFewRowsSchedule::shared_bytes(const MatmulProblem& problem) const {
  const int staged = warps * bm * (bn + 8) * 4;      // matmul.cuh: Staging
  const int brought = splits > 1 ? bm * bn * 4 : 0;  // tile_sums.cuh
  const int squares = problem.rms_norm ? warps * bm * 4 : 0;
  const int norm =  // halves of each column, or f32
      problem.rms_norm ? static_cast<int>(problem.k) * 2 * norm_pieces(*problem.rms_norm) : 0;
  return staged + brought + squares + norm;
}

int CudaFewRowsSchedule::registers(const MatmulProblem& problem) const {
  const int sixteens = bn / 16, eights = bm / 8, turns = bk / 32;
  const int norms = problem.rms_norm ? norm_pieces(*problem.rms_norm) * 4 + eights * 4 + 8 : 0;
  return 2 * turns * (sixteens * 2 + eights) * 4 + sixteens * eights * 4 + 40 + norms;
}

int CudaFewRowsSchedule::blocks_an_sm(const MatmulProblem& problem,
                                      const CudaLimits& limits) const {
  const auto rounded = static_cast<int>(round_up(registers(problem), 8));
  return std::clamp(std::min(limits.sm_registers / (threads() * rounded),
                             limits.sm_shared_bytes / (shared_bytes(problem) + 1024)),
                    1, limits.sm_threads / threads());
}

CudaMatmulSchedule CudaFewRowsSchedule::tiles() const {
  return {bm, bn, bk, 1, warps, 2, splits, 8, splits};
}

bool fits(const CudaFewRowsSchedule& schedule, const MatmulProblem& problem) {
  constexpr int kMostRegisters = 255, kMostSmRegisters = 65536;
  constexpr int kMostSharedBytes = 99 << 10;  // of a block on every GPU since 8.0
  const int64_t steps = ceil_div(problem.k, schedule.bk);
  const int registers = schedule.registers(problem);
  // Squares are added up by one block.
  const bool divides = schedule.splits == 1 ||
                       (!problem.rms_norm && steps >= int64_t{schedule.splits} * schedule.warps);
  return schedule.bm >= problem.m && registers <= kMostRegisters &&
         schedule.threads() * round_up(registers, 8) <= kMostSmRegisters &&
         schedule.shared_bytes(problem) <= kMostSharedBytes && divides;
}

const KernelTemplate& cuda_few_rows() {
  static const PrintedTemplate<CudaFewRowsSchedule> made({
      .version = 8,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .check = check_few_rows,
      .candidates = few_rows_candidates,
      .print_for = print_cuda_few_rows,
      .expected_efficiency = [](const Workload&) { return 0.75; },
  });
  return made;
}

}  // namespace kiln
