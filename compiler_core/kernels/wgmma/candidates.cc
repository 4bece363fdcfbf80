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
constexpr size_t kMostOfBothForms =
    5;  // where the second operand may be kept, and is not in others
// Candidates with several blocks an SM. Products of at most kFlatSteps steps have them.
constexpr size_t kMostTogether = 2;
constexpr int kFlatSteps = 8;
constexpr int64_t kMostKeptColumns = 12;  // tiles side by side: blocks are so many times a number

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
  return bn % 64 == 0 && ring_bytes() + groups * 64 * 72 * 4 < most_shared_bytes(blocks) - 2048
             ? 64
             : 32;
}

int WgmmaMatmulSchedule::boxes() const {
  const int columns = staged_columns(true), all = bm / groups / 64 * (bn / columns);
  const int left = most_shared_bytes(blocks) - 2048 - ring_bytes();
  return std::clamp(left / (groups * 4 * 16 * columns * 2), std::min(all, 2), std::min(all, 4));
}

int WgmmaMatmulSchedule::staged_bytes(bool boxes) const {
  const int columns = staged_columns(boxes);
  return boxes ? this->boxes() * 16 * columns * 2 : 16 * (columns + 8) * 4;
}

int WgmmaMatmulSchedule::shared_bytes(bool boxes) const {
  constexpr int kAlignment = 1024;
  const int barriers = 2 * stages + (boxes ? groups * 4 * this->boxes() : 0);
  return ring_bytes() + groups * 4 * staged_bytes(boxes) + barriers * 8 + kAlignment;
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

bool fits_blocks(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, bool boxes,
                 int64_t steps) {
  // Tiles of the same columns follow each other where neighbouring blocks stay in one row of tiles.
  const bool keeps = schedule.kept == steps && schedule.raster == 1 &&
                     (problem.b.is_shared() || problem.batches == 1);
  return schedule.go_together() && (schedule.kept == 0 || keeps) &&
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
         fits_blocks(schedule, problem, ends_in_boxes(workload, problem.n),
                     ceil_div(problem.k, step_depth(problem)));
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

double tile_cycles(const WgmmaMatmulSchedule& schedule, double steps) {
  // Three warpgroups compute results side by side, which shows where there is little else; narrow boxes
  // are more.
  const double boxes = schedule.bn % 64 == 0 ? 1 : 1.3;
  const double together = schedule.groups == 3 && steps <= kFlatSteps ? 36 : 24;
  return kTileCycles + boxes * schedule.bm * schedule.bn / together;
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
  return std::max(waves * (multiplies + tile_cycles(schedule, steps)),
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

namespace {

// The schedules of one product that fit, by estimated cycles.
class TileRanking {
 public:
  using Fits = std::function<bool(const WgmmaMatmulSchedule&)>;

  TileRanking(const MatmulProblem& problem, const Target& target, const Fits& fits, double operands)
      : problem_(problem), fits_(fits), sms_(cuda_limits(target).sms), operands_(operands) {}

  void add(const WgmmaTile& tile) {
    // A tile of which at most half is used has a smaller sister.
    if ((tile.bm > 64 && tile.bm >= 2 * problem_.m) || (tile.bn > 32 && tile.bn >= 2 * problem_.n))
      return;
    const int64_t columns = ceil_div(problem_.n, tile.bn);
    const int64_t tiles = problem_.batches * ceil_div(problem_.m, tile.bm) * columns;
    // Where every tile has an SM, all have the L2 together in whatever order: the plainest one.
    const int raster = tiles <= sms_ ? 1 : 8;
    for (int blocks = 1; blocks <= (is_flat() ? 3 : 1); ++blocks) {
      if (blocks > 1 && tiles < 2 * sms_ * blocks) break;
      const WgmmaMatmulSchedule most{tile.bm, tile.bn, tile.groups, blocks > 1 ? 4 : 8,
                                     raster,  blocks};
      const bool has_turns = is_flat() && tiles >= 2 * sms_ * blocks;
      // To stay in its columns may cost a block more than to bring them again: where there are several
      // tiles side by side, both are tried.
      if (has_turns && columns <= kMostKeptColumns && add_with_stages(keeping(most))) {
        if (columns == 1 || blocks > 1) continue;
        has_both_forms_ = true;
      }
      add_with_stages(most);
    }
  }

  // Best first.
  std::vector<WgmmaMatmulSchedule> best() {
    std::vector<WgmmaMatmulSchedule> best;
    take(alone_, has_both_forms_ ? kMostOfBothForms : kMostCandidates, best);
    take(together_, kMostTogether, best);
    std::vector<WgmmaMatmulSchedule> useful;
    for (const WgmmaMatmulSchedule& schedule : best)
      if (!wastes_columns(schedule, problem_.n)) useful.push_back(schedule);
    return useful.empty() ? best : useful;
  }

 private:
  using Ranked = std::vector<std::pair<double, WgmmaMatmulSchedule>>;

  // Products of few steps spend their time around them: several blocks an SM do that side by side, and
  // blocks of many tiles bring the second operand once.
  bool is_flat() const { return problem_.k <= kFlatSteps * step_depth(problem_); }

  WgmmaMatmulSchedule keeping(WgmmaMatmulSchedule schedule) const {
    schedule.kept = static_cast<int>(ceil_div(problem_.k, step_depth(problem_)));
    schedule.raster = 1;
    return schedule;
  }

  // With as many stages as fit; false: too few do.
  bool add_with_stages(WgmmaMatmulSchedule schedule) {
    const bool alone = schedule.blocks == 1;
    while (schedule.stages > (alone ? 3 : 2) && !fits_(schedule)) --schedule.stages;
    if (!fits_(schedule)) return false;
    if (!alone && !has_registers_together(schedule, is_f8(problem_.a.dtype))) return false;
    (alone ? alone_ : together_)
        .emplace_back(estimate(schedule, problem_, sms_, operands_), schedule);
    return true;
  }

  static void take(Ranked& from, size_t most, std::vector<WgmmaMatmulSchedule>& best) {
    std::ranges::stable_sort(from, {}, [](const auto& entry) { return entry.first; });
    for (size_t i = 0; i < std::min(most, from.size()); ++i) best.push_back(from[i].second);
  }

  const MatmulProblem& problem_;
  const Fits& fits_;
  const int sms_;
  const double operands_;
  Ranked alone_, together_;  // of one block an SM, and of several
  bool has_both_forms_ = false;
};

}  // namespace

std::vector<WgmmaMatmulSchedule> ranked_tiles(
    const MatmulProblem& problem, const Target& target,
    const std::function<bool(const WgmmaMatmulSchedule&)>& fits, std::optional<double> bytes) {
  TileRanking ranking(problem, target, fits, bytes.value_or(operand_bytes(problem)));
  for (const WgmmaTile& tile : kTiles) ranking.add(tile);
  return ranking.best();
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
      .version = 13,
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
