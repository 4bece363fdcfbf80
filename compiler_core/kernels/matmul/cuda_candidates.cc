#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/ranked_space.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// Bounds of any target that kernels are written for.
constexpr int kMostSharedBytes = 227 << 10;
constexpr int kMostRegisters = 272;  // as registers() counts them: beyond, a thread's 255 spill
constexpr int kMostSums = 128;       // registers of a thread's sums
constexpr int kOtherRegisters = 56;  // addresses, counters
constexpr size_t kMostCudaCandidates = 10, kFewCandidates = 6;

int stored_bytes(const Product& product) {
  return static_cast<int>(size_of(product.stored));
}
int second_bytes(const Product& product) {
  return static_cast<int>(size_of(product.narrow.value_or(product.stored)));
}
// Bytes of a sum.
int value_bytes(const Product& product) {
  return product.result == DType::kF64 || product.result == DType::kI64 ? 8 : 4;
}
// The depth of one instruction.
int core_depth(MatmulCore core) {
  switch (core) {
    case MatmulCore::kHalves:
      return 16;
    case MatmulCore::kF32:
      return 8;
    case MatmulCore::kThreads:
      return 1;
  }
  return 1;
}

int sums_of_a_thread(const CudaMatmulSchedule& schedule) {
  return schedule.bm * schedule.bn / schedule.threads();
}

// Rows of so many bytes fall into chunks of 16 that matmul/device/mma.cuh can lay out.
bool has_whole_chunks(int bytes) {
  const int chunks = bytes / 16;
  return bytes % 16 == 0 && (chunks % 8 == 0 || chunks == 1 || chunks == 2 || chunks == 4);
}

}  // namespace

MatmulCore matmul_core(const Product& product) {
  if (product.stored == DType::kF32) return MatmulCore::kF32;
  return is_16_bit_float(product.stored) ? MatmulCore::kHalves : MatmulCore::kThreads;
}

int CudaMatmulSchedule::shared_bytes(const Product& product) const {
  const int pipeline = stages * (bm * stored_bytes(product) * bk +
                                 bn * second_bytes(product) * bk / product.in_byte);
  const int staged = bm * (bn + 8) * value_bytes(product);  // matmul.cuh: Staging
  return std::max(pipeline, staged);
}

int CudaMatmulSchedule::registers(const Product& product, const ProductReads& reads) const {
  const MatmulCore core = matmul_core(product);
  const int words = value_bytes(product) / 4;
  int count = sums_of_a_thread(*this) * words + kOtherRegisters;
  // One step's operands; some of the next's.
  if (core == MatmulCore::kThreads)
    count += 2 * (bm / (4 * warps_m) + bn / (8 * warps_n)) * words;
  else
    count += core == MatmulCore::kF32 ? bm / warps_m / 16 * 10 + bn / warps_n / 8 * 6
                                      : bn / warps_n / 8 * 3;
  if (product.narrow) count += bn / warps_n / 8 * 4 + 4;  // widened words of it, and constants
  // Sums of a group, its scales and zeros, those of the next, and where they lie.
  if (product.narrow_groups)
    count += 8 + sums_of_a_thread(*this) + bn / warps_n / 8 * (product.narrow_shift ? 8 : 5);
  if (product.narrow_shift) count += bm / warps_m / 16 * 4;
  // Chunks that wait in registers for their way into shared memory.
  const int chunk_words = bk * stored_bytes(product) / 4;
  if (!reads.a_async) count += bm * chunk_words / threads() + 16;
  if (!reads.b_async) count += bn * chunk_words / threads() + 16;
  return count;
}

int CudaMatmulSchedule::blocks_an_sm(const Product& product, const ProductReads& reads,
                                     const CudaLimits& limits) const {
  const auto rounded = static_cast<int>(round_up(registers(product, reads), 8));
  const int by_registers = limits.sm_registers / (threads() * rounded);
  const int by_shared = limits.sm_shared_bytes / (shared_bytes(product) + 1024);
  return std::clamp(std::min(by_registers, by_shared), 1, limits.sm_threads / threads());
}

bool fits(const CudaMatmulSchedule& schedule, const Product& product) {
  const MatmulCore core = matmul_core(product);
  const int size = stored_bytes(product), second = second_bytes(product);
  const bool threads = core == MatmulCore::kThreads;
  // A warp's, at least; kernels that widen weights have rows as the second operand.
  const int rows = threads ? 4 : product.narrow ? 8 : 16, columns = threads ? 8 : 16;
  const bool shape = schedule.bm % (rows * schedule.warps_m) == 0 &&
                     schedule.bn % (columns * schedule.warps_n) == 0 &&
                     schedule.bk % core_depth(core) == 0;
  if (product.word_depth > 0 && schedule.bk % product.word_depth != 0) return false;
  const bool chunks = has_whole_chunks(schedule.bm * size) &&
                      has_whole_chunks(schedule.bn * second) &&
                      has_whole_chunks(schedule.bk * size) &&
                      has_whole_chunks(schedule.bk * second / product.in_byte);
  return shape && chunks && sums_of_a_thread(schedule) * value_bytes(product) / 4 <= kMostSums &&
         schedule.shared_bytes(product) <= kMostSharedBytes;
}

bool fits_groups(const CudaMatmulSchedule& schedule, int64_t group) {
  return group == 0 || schedule.bk % group == 0 || group % schedule.bk == 0;
}

bool fits(const CudaMatmulSchedule& schedule, const MatmulProblem& problem) {
  const Product& product = problem;
  const int64_t tiles =
      ceil_div(problem.m, schedule.bm) * ceil_div(problem.n, schedule.bn) * problem.batches;
  return fits(schedule, product) && schedule.splits <= ceil_div(problem.k, schedule.bk) &&
         (!problem.narrow || fits_groups(schedule, problem.b.dequantised->group)) &&
         tiles * schedule.splits < int64_t{1} << 31;
}

namespace {

struct BlockTile {
  int bm, bn, warps_m, warps_n;
};
constexpr std::array<BlockTile, 15> kHalfTiles = {{{128, 256, 2, 4},
                                                   {256, 128, 4, 2},
                                                   {128, 192, 2, 4},
                                                   {128, 128, 2, 2},
                                                   {128, 128, 2, 4},
                                                   {128, 64, 2, 2},
                                                   {64, 128, 2, 2},
                                                   {64, 64, 2, 2},
                                                   {32, 128, 1, 4},
                                                   {32, 64, 1, 4},
                                                   {128, 16, 4, 1},
                                                   {32, 32, 1, 2},
                                                   {16, 128, 1, 4},
                                                   {16, 64, 1, 4},
                                                   {16, 32, 1, 2}}};
// For kernels that widen weights, and few rows.
constexpr std::array<BlockTile, 4> kNarrowTiles = {
    {{8, 128, 1, 4}, {8, 64, 1, 4}, {8, 64, 1, 2}, {8, 32, 1, 2}}};
constexpr std::array<BlockTile, 10> kF32Tiles = {{{128, 128, 4, 2},
                                                  {128, 64, 2, 2},
                                                  {64, 128, 2, 2},
                                                  {64, 64, 2, 2},
                                                  {32, 128, 1, 4},
                                                  {32, 64, 1, 4},
                                                  {128, 16, 4, 1},
                                                  {16, 128, 1, 4},
                                                  {16, 64, 1, 4},
                                                  {16, 32, 1, 2}}};
constexpr std::array<BlockTile, 4> kThreadTiles = {
    {{64, 64, 4, 2}, {32, 64, 4, 2}, {64, 32, 4, 2}, {16, 64, 2, 2}}};

std::span<const BlockTile> tiles_for(MatmulCore core) {
  if (core == MatmulCore::kHalves) return kHalfTiles;
  if (core == MatmulCore::kF32) return kF32Tiles;
  return kThreadTiles;
}

// An SM's work in a cycle: enough to rank schedules, never to reject one.
constexpr double kSharedBytes = 128, kL2Bytes = 40, kMemoryBytes = 20;
constexpr double kBlockCycles = 2000;    // until the first step, and after the last
constexpr double kCopyCycles = 900;      // until a copy from memory has come
constexpr double kBarrierCycles = 30;    // of a step
constexpr double kLaunchCycles = 4000;   // of a second kernel
constexpr double kMeetingCycles = 1500;  // of a cluster
double products_a_cycle(MatmulCore core) {
  switch (core) {
    case MatmulCore::kHalves:
      return 1400;
    case MatmulCore::kF32:
      return 220;
    case MatmulCore::kThreads:
      return 40;
  }
  return 1;
}

// Cycles that one step of a block keeps its SM busy: the slowest part of it decides.
double step_cycles(const CudaMatmulSchedule& schedule, const MatmulProblem& problem) {
  const double bm = schedule.bm, bn = schedule.bn, bk = schedule.bk, size = stored_bytes(problem);
  const double second = static_cast<double>(second_bytes(problem)) / problem.in_byte;
  const double compute = bm * bn * bk / products_a_cycle(matmul_core(problem));
  const double fragments =
      bk * (size * bm * schedule.warps_n + second * bn * schedule.warps_m) / kSharedBytes;
  const double operands = bk * (size * bm + second * bn) / kL2Bytes;
  return std::max({compute, fragments, operands}) + 0.15 * (compute + fragments + operands) +
         kBarrierCycles;
}

// Cycles until all operands have come from memory, at the best.
double memory_cycles(const MatmulProblem& problem, int64_t sms) {
  const auto bytes = [&](const MatmulOperand& operand, int64_t elements, int size) {
    return static_cast<double>(elements * size * (operand.is_shared() ? 1 : problem.batches));
  };
  return (bytes(problem.a, problem.m * problem.k, stored_bytes(problem)) +
          bytes(problem.b, problem.n * problem.k / problem.in_byte, second_bytes(problem))) /
         (kMemoryBytes * static_cast<double>(sms));
}

// Cycles of the whole launch, roughly.
double estimate(const CudaMatmulSchedule& schedule, const MatmulProblem& problem,
                const ProductReads& reads, const CudaLimits& limits) {
  const int64_t steps = ceil_div(ceil_div(problem.k, schedule.bk), schedule.splits);
  const int64_t blocks = problem.batches * ceil_div(problem.m, schedule.bm) *
                         ceil_div(problem.n, schedule.bn) * schedule.splits;
  const int64_t most = ceil_div(blocks, limits.sms);  // blocks that the busiest SM gets
  const int64_t together = std::min<int64_t>(schedule.blocks_an_sm(problem, reads, limits), most);
  const double warps = static_cast<double>(together * schedule.threads()) / 32;
  // All blocks of the SM do a step; its copies have been under way for stages - 1 of them.
  const double step = static_cast<double>(together) * step_cycles(schedule, problem) *
                      (warps >= 8 ? 1.0 : 1.0 + (8 - warps) * 0.06);
  const double wait = std::max(0.0, kCopyCycles / (schedule.stages - 1) - step);
  const double block = static_cast<double>(steps) * (step + wait) + kBlockCycles +
                       static_cast<double>(together * schedule.bm * schedule.bn) / 12;
  const double rounds = static_cast<double>(most) / static_cast<double>(together);
  double cycles = std::max(
      rounds * block, memory_cycles(problem, std::min<int64_t>(blocks, limits.sms)) + kBlockCycles);
  if (schedule.cluster > 1)
    cycles += kMeetingCycles;
  else if (schedule.splits > 1)
    cycles += kLaunchCycles +
              static_cast<double>(schedule.splits * problem.batches * problem.m * problem.n) * 8 /
                  (kL2Bytes * limits.sms);
  return cycles;
}

// `most_cluster`: blocks of a cluster, whose shared memory is where splits meet if it holds them.
std::vector<CudaMatmulSchedule> all_schedules(const MatmulProblem& problem, int most_cluster) {
  const MatmulCore core = matmul_core(problem);
  const bool halves = core == MatmulCore::kHalves;
  std::vector<CudaMatmulSchedule> all;
  const std::span<const BlockTile> known = tiles_for(core);
  std::vector<BlockTile> tiles(known.begin(), known.end());
  if (problem.narrow) tiles.insert(tiles.end(), kNarrowTiles.begin(), kNarrowTiles.end());
  const int least = problem.narrow ? 8 : 16;
  for (const BlockTile tile : tiles) {
    // A tile of which at most half is used has a smaller sister.
    if ((tile.bm > least && tile.bm >= 2 * problem.m) || (tile.bn > 64 && tile.bn >= 2 * problem.n))
      continue;
    for (const int bk : {16, 32, 64, 128})
      for (const int stages : {2, 8, 4, 3, 6})
        for (const int splits : {1, 2, 4, 8, 16, 32}) {
          if (core == MatmulCore::kThreads ? stages != 2 : stages == 2) continue;
          if (stages == 8 && tile.bm > 8) continue;  // of small steps more are under way
          if (halves ? bk < 32 : bk == 128) continue;
          const bool deep = bk == 128 && problem.word_depth != 128;  // than there is need for
          if (deep && tile.bm > 32 && tile.bn > 32) continue;
          all.push_back({tile.bm, tile.bn, bk, tile.warps_m, tile.warps_n, stages, splits, 8,
                         splits <= most_cluster ? splits : 1});
        }
  }
  return all;
}

// Steps of the depth that a block takes.
int64_t steps_of(const CudaMatmulSchedule& schedule, const MatmulProblem& problem) {
  return ceil_div(ceil_div(problem.k, schedule.bk), schedule.splits);
}

// Whether `more` does what `less` does and, beside it, what nobody needs: it keeps room for steps that
// there are not, or brings zeros behind the whole depth or, where one step brings all, beside all
// columns. REQUIRES: equal rows and splits.
bool only_idles_more(const CudaMatmulSchedule& more, const CudaMatmulSchedule& less,
                     const MatmulProblem& problem) {
  const bool one_step = problem.k <= less.bk;
  const bool same_columns =
      more.bn == less.bn && more.warps_m == less.warps_m && more.warps_n == less.warps_n;
  if (!same_columns && !(one_step && less.bn < more.bn && problem.n <= less.bn)) return false;
  if (more.bk != less.bk && !(one_step && less.bk < more.bk)) return false;
  if (more.stages != less.stages)
    return less.stages < more.stages && steps_of(less, problem) < less.stages;
  return !same_columns || more.bk != less.bk;
}

void leave_out_idle(std::vector<RankedDecisions<CudaMatmulSchedule>>& ranked,
                    const MatmulProblem& problem) {
  const auto is_short = [&](const CudaMatmulSchedule& x) {
    return steps_of(x, problem) < x.stages;
  };
  std::map<std::pair<int, int>, std::vector<CudaMatmulSchedule>> alike;
  for (const auto& [cost, made] : ranked)
    if (is_short(made)) alike[{made.bm, made.splits}].push_back(made);
  std::erase_if(ranked, [&](const auto& entry) {
    const CudaMatmulSchedule& made = entry.decisions;
    return is_short(made) && std::ranges::any_of(alike[{made.bm, made.splits}], [&](const auto& x) {
             return only_idles_more(made, x, problem);
           });
  });
}

}  // namespace

std::vector<Schedule> cuda_matmul_candidates(const Workload& workload, const Target& target) {
  return cuda_matmul_candidates(MatmulProblem::of(workload.graph), target);
}

std::vector<Schedule> cuda_matmul_candidates(const MatmulProblem& problem, const Target& target) {
  const CudaLimits limits = cuda_limits(target);
  const ProductReads reads = ProductReads::of(problem);
  std::vector<RankedDecisions<CudaMatmulSchedule>> ranked;
  for (const CudaMatmulSchedule& schedule : all_schedules(problem, limits.max_cluster))
    if (fits(schedule, problem) && schedule.shared_bytes(problem) <= limits.block_shared_bytes &&
        schedule.registers(problem, reads) <= kMostRegisters)
      ranked.push_back({estimate(schedule, problem, reads, limits), schedule});
  leave_out_idle(ranked, problem);
  using Decisions = CudaMatmulSchedule;
  const auto tile = [](const Decisions& x) { return std::make_tuple(x.bm, x.bn, x.warps_n); };
  const auto form = [](const Decisions& x) {
    return std::make_tuple(x.bm, x.bn, x.warps_n, x.bk, x.splits);
  };
  // Where there are few tiles, more of each.
  return most_promising(std::move(ranked), kMostCudaCandidates, tile, form, kFewCandidates);
}

namespace {

// A split's sums lie in a workspace of constant size.
std::optional<CudaMatmulSchedule> adapt(const Graph& /*graph*/, CudaMatmulSchedule chosen) {
  chosen.splits = chosen.cluster = 1;
  return chosen;
}

// On an H200 (tests/gpu/RESULTS.md): mma.sync reaches some half of what the tensor cores do on
// halves, three tf32 products stand for one of f32, and few rows are read at half of the bandwidth:
// beside cuda.matmul.few_rows it takes 1.2 to 1.8 times as long.
double efficiency(const Workload& workload) {
  constexpr int64_t kFewRows = 64, kFewColumns = 64;
  const SizedMatmul problem = SizedMatmul::of(workload.graph);
  if (workload.graph.symbols().empty() && is_short_stream(MatmulProblem::of(workload.graph)))
    return kShortStreamEfficiency;
  if (problem.m.is_constant() && problem.m.constant() <= kFewRows) return 0.56;
  if (!is_16_bit_float(problem.stored)) return 0.15;
  // Of fewer columns than a tile has it is not known how far behind wgmma it is.
  return problem.n.is_constant() && problem.n.constant() < kFewColumns ? 0.59 : 0.55;
}

}  // namespace

const KernelTemplate& cuda_matmul() {
  static const PrintedTemplate<CudaMatmulSchedule> made({
      .version = 12,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .check = check_operands_are_stored,
      .candidates = cuda_matmul_candidates,
      .print_for = print_cuda_matmul,
      .adapt = adapt,
      .expected_efficiency = efficiency,
  });
  return made;
}

namespace {

std::vector<Schedule> narrow_candidates(const Workload& workload, const Target& target) {
  std::vector<Schedule> space = cuda_matmul_candidates(workload, target);
  for (Schedule& schedule : space) schedule.template_name = CudaNarrowMatmulSchedule::kTemplate;
  return space;
}

std::optional<CudaNarrowMatmulSchedule> adapt_narrow(const Graph& /*graph*/,
                                                     CudaNarrowMatmulSchedule chosen) {
  chosen.splits = chosen.cluster = 1;
  return chosen;
}

}  // namespace

const KernelTemplate& cuda_narrow_matmul() {
  static const PrintedTemplate<CudaNarrowMatmulSchedule> made({
      .version = 15,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .check = check_cuda_narrow,
      .candidates = narrow_candidates,
      .print_for = print_cuda_narrow_matmul,
      .adapt = adapt_narrow,
      .expected_efficiency = efficiency,
  });
  return made;
}

}  // namespace kiln
