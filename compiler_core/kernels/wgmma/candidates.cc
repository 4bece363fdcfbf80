#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {
namespace {

constexpr int kStepBytes = WgmmaMatmulSchedule::kStepBytes;
// A core compiles one in 0.2 s. tests/gpu/LOG.md: the best, or one 2 % from it, is among so many.
constexpr size_t kMostCandidates = 4;
// Candidates with several blocks an SM. Products of at most kFlatSteps steps have them.
constexpr size_t kMostTogether = 2;
constexpr int64_t kFlatSteps = 8;

bool is_8_bit_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8;
}

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported, fmt::format("wgmma kernels are not written for {}", what));
}

// Scales that are the same for each step of 8-bit floats: sums are promoted there. Those of the
// second operand are the same for so many columns as a tile has. Results in more than half precision
// would show how few bits the tensor cores add in, where the reference has f32.
Status check_scales(const Workload& workload, const MatmulProblem& problem) {
  const Graph& graph = workload.graph;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const MatmulOperand& operand = i == 0 ? problem.a : problem.b;
    if (!operand.dequantised || !operand.dequantised->is_scaled()) continue;
    const Dequantised& scaled = *operand.dequantised;
    if (!is_f8(problem.a.dtype) || !is_f8(problem.b.dtype) || scaled.zero != kInvalidNode ||
        scaled.shift != kInvalidNode)
      return lacks("operands that are scaled, but for 8-bit floats");
    if (scaled.group % step_depth(problem) != 0) return lacks("scales of parts of a step");
    const Node& scale = graph.node(scaled.scale);
    const Node& whole = graph.node(graph.node(problem.product).operands[i]);
    if (scale.dtype != DType::kF32 || scale.shape != whole.shape || whole.op == Op::kView)
      return lacks("scales of other types than f32, or that are read in another order");
    if (!problem.batch.empty()) return lacks("batches of scaled operands");
    if (i == 1 && scale_columns(problem) == 0)
      return lacks("scales of columns that are no blocks of 128");
    if (!is_16_bit_float(graph.node(graph.outputs()[0]).dtype))
      return lacks("scaled products that are not rounded to halves");
  }
  return {};
}

}  // namespace

bool is_mappable(const MatmulOperand& operand, bool by_rows) {
  const int64_t unit = 16 / size_of(operand.dtype);
  by_rows |= operand.column_stride == 1;
  const int64_t across = by_rows ? operand.row_stride : operand.column_stride;
  const auto is_stride = [&](int64_t stride) { return stride > 0 && stride % unit == 0; };
  return (by_rows ? operand.column_stride : operand.row_stride) == 1 && is_stride(across) &&
         operand.offset % unit == 0 &&
         std::ranges::all_of(operand.batch_strides,
                             [&](int64_t stride) { return stride == 0 || is_stride(stride); });
}

bool ends_in_boxes(const Graph& workload, int64_t columns) {
  return is_16_bit_float(workload.node(workload.outputs()[0]).dtype) && columns % 8 == 0 &&
         !has_random_values(workload);  // too much text for every pair of sums
}

int WgmmaMatmulSchedule::copying_registers(int least, bool promotes) const {
  const int sums = registers(promotes);
  return std::max(groups == 3 ? 32 : groups == 2 && sums > 112 ? 24 : 40, least);
}

// A block begins with equal parts of its share of 64 K registers, in multiples of 8 a thread. The
// multiplying warpgroups share what the copying one leaves of those: asked for more, they would wait for
// ever.
int WgmmaMatmulSchedule::multiplying_registers(int least_copying, bool promotes) const {
  const int warpgroups = groups + 1;
  const int all = 65536 / blocks / 128 / warpgroups / 8 * 8 * warpgroups;
  const int each = (all - copying_registers(least_copying, promotes)) / groups;
  return std::min(each, groups == 1 ? 232 : 240) / 8 * 8;
}

int WgmmaMatmulSchedule::staged_columns(bool boxes) const {
  if (boxes) return bn % 64 == 0 ? 64 : 32;
  return bn % 64 == 0 && stages * (bm + bn) * kStepBytes + groups * 64 * 72 * 4 <
                             most_shared_bytes(blocks) - 2048
             ? 64
             : 32;
}

int WgmmaMatmulSchedule::boxes() const {
  const int columns = staged_columns(true), all = bm / groups / 64 * (bn / columns);
  const int left = most_shared_bytes(blocks) - 2048 - stages * (bm + bn) * kStepBytes;
  return std::clamp(left / (groups * 4 * 16 * columns * 2), std::min(all, 2), std::min(all, 4));
}

int WgmmaMatmulSchedule::staged_bytes(bool boxes) const {
  const int columns = staged_columns(boxes);
  return boxes ? this->boxes() * 16 * columns * 2 : 16 * (columns + 8) * 4;
}

int WgmmaMatmulSchedule::shared_bytes(bool boxes) const {
  constexpr int kAlignment = 1024;
  const int barriers = 2 * stages + (boxes ? groups * 4 * this->boxes() : 0);
  return stages * (bm + bn) * kStepBytes + groups * 4 * staged_bytes(boxes) + barriers * 8 +
         kAlignment;
}

Status check_wgmma(const Workload& workload) {
  if (!workload.graph.symbols().empty()) return lacks("sizes with symbols");
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  if (problem.b.picked_by >= 0) return lacks("matrices that an index picks");
  const DType a = problem.a.dtype, b = problem.b.dtype;
  const bool halves = is_16_bit_float(a) && a == b && problem.stored == a;
  const bool integers = is_8_bit_integer(a) && is_8_bit_integer(b);
  if (!halves && !integers && !(is_f8(a) && is_f8(b)))
    return lacks("products of other dtypes than fp16 and bf16, 8-bit floats and 8-bit integers");
  if (problem.result != (integers ? DType::kI32 : DType::kF32))
    return lacks("sums of other dtypes than f32, or i32 of integers");
  if (!halves && (problem.a.column_stride != 1 || problem.b.row_stride != 1))
    return lacks("operands of 8 bits that are not contiguous along the depth");
  TRY_STATUS(check_scales(workload, problem));
  if (problem.batches * problem.m * problem.n * problem.k == 0) return lacks("empty products");
  if (problem.batch.size() > 3) return lacks("more than three batch axes");
  if (!is_mappable(problem.a) || !is_mappable(problem.b))
    return lacks("operands whose rows or columns do not begin at multiples of 16 bytes");
  return {};
}

int64_t scale_columns(const MatmulProblem& problem) {
  constexpr int64_t kLeast = 128;
  if (!problem.b.dequantised || problem.b.dequantised->scale == kInvalidNode) return 0;
  const int64_t columns = problem.b.dequantised->lines;
  // All of them, however many a tile has.
  if (columns == problem.n) return round_up(columns, int64_t{1} << 16);
  return columns % kLeast == 0 ? columns : 0;
}

bool fits_blocks(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, bool boxes) {
  return schedule.go_together() &&
         schedule.shared_bytes(boxes) <= most_shared_bytes(schedule.blocks) &&
         ceil_div(problem.m, schedule.bm) * ceil_div(problem.n, schedule.bn) * problem.batches <
             int64_t{1} << 31;
}

int64_t step_depth(const MatmulProblem& problem) {
  return kStepBytes / size_of(problem.a.dtype);
}

bool fits(const WgmmaMatmulSchedule& schedule, const Graph& workload) {
  constexpr int kMostRegisters = 192;  // of 240, or of 160 where three warpgroups multiply
  const MatmulProblem problem = MatmulProblem::of(workload);
  const bool has_registers =
      !is_f8(problem.a.dtype) ||
      schedule.registers(true) <= (schedule.groups == 3 ? kMostRegisters * 2 / 3 : kMostRegisters);
  const int64_t columns = scale_columns(problem);
  const bool has_scales = columns % schedule.bn == 0;
  return has_registers && has_scales && (problem.b.row_stride == 1 || schedule.bn % 64 == 0) &&
         fits_blocks(schedule, problem, ends_in_boxes(workload, problem.n));
}

namespace {

// Sums of a thread: at most 128 registers.
constexpr WgmmaTile kTiles[] = {
    {128, 256, 2}, {128, 128, 2}, {256, 128, 2}, {128, 192, 2}, {128, 224, 2}, {128, 160, 2},
    {64, 256, 1},  {64, 128, 1},  {192, 128, 3}, {128, 96, 2},  {64, 192, 1},  {64, 64, 1},
    {192, 64, 3},  {128, 64, 2},  {64, 96, 1},   {64, 32, 1},   {256, 32, 2},  {192, 32, 3}};

// An SM's work in a cycle, enough to rank tiles: products, and bytes that come from the L2.
constexpr double kProducts = 1900, kL2Bytes = 60, kMemoryBytes = 20;
constexpr double kTileCycles = 1500;  // until the first step has come, and the last is stored

double operand_bytes(const MatmulProblem& problem) {
  return static_cast<double>(problem.batches * size_of(problem.a.dtype) * (problem.m + problem.n) *
                             problem.k);
}

}  // namespace

std::span<const WgmmaTile> wgmma_tiles() {
  return kTiles;
}

double step_cycles(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem) {
  const double bm = schedule.bm, bn = schedule.bn;
  // One warpgroup alone leaves the tensor cores idle while it stores, or adds up what they have added.
  const double alone = schedule.groups > 1 ? 1 : is_f8(problem.a.dtype) ? 0.6 : 0.9;
  // kProducts are of halves; of 8 bits there are twice as many in a step, and in a cycle.
  const double compute = bm * bn * (kStepBytes / 2.0) / (alone * kProducts);
  return std::max({compute, (bm + bn) * kStepBytes / kL2Bytes, 130.0});
}

double tile_cycles(const WgmmaMatmulSchedule& schedule) {
  return kTileCycles + static_cast<double>(schedule.bm) * schedule.bn / 24;
}

double memory_cycles(double bytes, int64_t blocks) {
  return bytes / (kMemoryBytes * static_cast<double>(blocks));
}

namespace {

double estimate(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, int sms,
                double operands) {
  const auto steps = static_cast<double>(ceil_div(problem.k, step_depth(problem)));
  const int64_t tiles =
      problem.batches * ceil_div(problem.m, schedule.bm) * ceil_div(problem.n, schedule.bn);
  const auto waves = static_cast<double>(ceil_div(tiles, int64_t{sms} * schedule.blocks));
  // Blocks of one SM take turns to multiply, and wait side by side.
  const double multiplies = schedule.blocks * steps * step_cycles(schedule, problem);
  return std::max(waves * (multiplies + tile_cycles(schedule)),
                  memory_cycles(operands, std::min<int64_t>(sms, tiles)));
}

// Whether the compiler finds registers for blocks that share an SM. It has those that a block begins
// with, and needs 26 beside the sums of a thread; where there were fewer than 48 beside them while they
// are multiplied, kernels spilled or were slower than those of one block (tests/gpu/LOG.md, "Tuning").
bool has_registers_together(const WgmmaMatmulSchedule& schedule, bool promotes) {
  constexpr int kToCompile = 26, kToMultiply = 48, kLeastCopying = 40;
  const int first = 65536 / schedule.blocks / (128 * (schedule.groups + 1)) / 8 * 8;
  const int sums = schedule.registers(promotes);
  return sums + kToCompile <= first &&
         sums + kToMultiply <= schedule.multiplying_registers(kLeastCopying, promotes);
}

// Whether a tile computes columns that there are not, and its columns come in no 64s, so that it is
// stored in narrower boxes: such tiles never won.
bool wastes_columns(const WgmmaMatmulSchedule& schedule, int64_t columns) {
  const double used =
      static_cast<double>(columns) / static_cast<double>(round_up(columns, int64_t{schedule.bn}));
  return schedule.bn > 32 && schedule.bn % 64 != 0 && used < (schedule.blocks == 1 ? 0.85 : 0.7);
}

}  // namespace

std::vector<WgmmaMatmulSchedule> ranked_tiles(
    const MatmulProblem& problem, const Target& target,
    const std::function<bool(const WgmmaMatmulSchedule&)>& fits, std::optional<double> bytes) {
  const int sms = cuda_limits(target).sms;
  const double operands = bytes.value_or(operand_bytes(problem));
  // Products of few steps spend their time around them: several blocks an SM do that side by side.
  const bool is_flat = problem.k <= kFlatSteps * step_depth(problem);
  std::vector<std::pair<double, WgmmaMatmulSchedule>> ranked, together;
  for (const WgmmaTile& tile : kTiles) {
    // A tile of which at most half is used has a smaller sister.
    if ((tile.bm > 64 && tile.bm >= 2 * problem.m) || (tile.bn > 32 && tile.bn >= 2 * problem.n))
      continue;
    const int64_t tiles =
        problem.batches * ceil_div(problem.m, tile.bm) * ceil_div(problem.n, tile.bn);
    // Where every tile has an SM, all have the L2 together in whatever order: the plainest one.
    const int raster = tiles <= sms ? 1 : 8;
    WgmmaMatmulSchedule schedule{tile.bm, tile.bn, tile.groups, 8, raster};
    while (schedule.stages > 3 && !fits(schedule)) --schedule.stages;
    if (fits(schedule)) ranked.emplace_back(estimate(schedule, problem, sms, operands), schedule);
    for (schedule.blocks = 2; is_flat && schedule.blocks <= 3; ++schedule.blocks) {
      if (tiles < 2 * sms * schedule.blocks) break;
      schedule.stages = 4;
      while (schedule.stages > 2 && !fits(schedule)) --schedule.stages;
      if (fits(schedule) && has_registers_together(schedule, is_f8(problem.a.dtype)))
        together.emplace_back(estimate(schedule, problem, sms, operands), schedule);
    }
  }
  const auto take = [](auto& from, size_t most, std::vector<WgmmaMatmulSchedule>& best) {
    std::ranges::stable_sort(from, {}, [](const auto& entry) { return entry.first; });
    for (size_t i = 0; i < std::min(most, from.size()); ++i) best.push_back(from[i].second);
  };
  std::vector<WgmmaMatmulSchedule> best;
  take(ranked, kMostCandidates, best);
  take(together, kMostTogether, best);
  std::vector<WgmmaMatmulSchedule> useful;
  for (const WgmmaMatmulSchedule& schedule : best)
    if (!wastes_columns(schedule, problem.n)) useful.push_back(schedule);
  return useful.empty() ? best : useful;
}

std::vector<Schedule> wgmma_candidates(const Workload& workload, const Target& target) {
  return ranked_schedules<WgmmaMatmulSchedule>(
      MatmulProblem::of(workload.graph), target,
      [&](const auto& tried) { return fits(tried, workload.graph); });
}

double wgmma_efficiency(const MatmulProblem& problem) {
  constexpr int64_t kFewRows = 64;
  return problem.m <= kFewRows ? 0.55 : 0.92;
}

const KernelTemplate& wgmma_matmul() {
  static const PrintedTemplate<WgmmaMatmulSchedule> made({
      .version = 12,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .isa = "sm_90a",
      .check = check_wgmma,
      .candidates = wgmma_candidates,
      .print_for = print_wgmma_matmul,
      .expected_efficiency =
          [](const Workload& workload) {
            return wgmma_efficiency(MatmulProblem::of(workload.graph));
          },
  });
  return made;
}

}  // namespace kiln
