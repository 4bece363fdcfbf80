#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/column_terms.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {
namespace {

constexpr int kStepBytes = WgmmaMatmulSchedule::kStepBytes;

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
  if (bn % 32 != 0) return 16;
  if (boxes) return bn % 64 == 0 ? 64 : 32;
  return bn % 64 == 0 && ring_bytes() + groups * 64 * 72 * 4 < most_shared_bytes(blocks) - 2048
             ? 64
             : 32;
}

int WgmmaMatmulSchedule::boxes() const {
  const int columns = staged_columns(true), all = rows() / 64 * (bn / columns);
  const int left = most_shared_bytes(blocks) - 2048 - ring_bytes();
  return std::clamp(left / (groups * 4 * 16 * columns * 2), std::min(all, 2), std::min(all, 4));
}

int WgmmaMatmulSchedule::staged_bytes(bool boxes) const {
  const int columns = staged_columns(boxes);
  return boxes ? this->boxes() * 16 * columns * 2 : 16 * (columns + 8) * 4;
}

int WgmmaMatmulSchedule::brought_bytes(bool boxes) const {
  const int pieces = rows() / 64 * (bn / staged_columns(boxes));  // of a warp
  return (splits - 1) * ceil_div(pieces, splits) * groups * 4 * 16 * staged_columns(boxes) * 4;
}

int WgmmaMatmulSchedule::shared_bytes(bool boxes) const {
  constexpr int kAlignment = 1024;
  const int barriers = 2 * stages + (boxes ? groups * 4 * this->boxes() : 0);
  return ring_bytes() + groups * 4 * staged_bytes(boxes) + barriers * 8 + kAlignment;
}

Status check_wgmma(const Workload& workload) {
  TRY(const MatmulProblem problem, measured_problem(workload.graph));
  if (problem.b.picked_by >= 0) return lacks("matrices that an index picks");
  if (problem.rms_norm) return lacks("rows that a norm scales");
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

namespace {

bool has_room(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, bool boxes,
              int64_t steps) {
  // Tiles of the same columns follow each other where neighbouring blocks stay in one row of tiles.
  const bool keeps = schedule.kept == steps && schedule.raster == 1 &&
                     (problem.b.is_shared() || problem.batches == 1);
  return schedule.go_together() && (schedule.kept == 0 || keeps) &&
         schedule.shared_bytes(boxes) <= most_shared_bytes(schedule.blocks) &&
         ceil_div(problem.m, schedule.bm) * ceil_div(problem.n, schedule.bn) * problem.batches <
             int64_t{1} << 31;
}

}  // namespace

bool fits_blocks(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, bool boxes,
                 int64_t steps) {
  return schedule.splits == 1 && schedule.bn % 32 == 0 && has_room(schedule, problem, boxes, steps);
}

int64_t step_depth(const MatmulProblem& problem) {
  return kStepBytes / size_of(problem.a.dtype);
}

bool fits(const WgmmaMatmulSchedule& schedule, const Graph& workload) {
  constexpr int kMostRegisters = 192;  // of 240, or of 160 where three warpgroups multiply
  const MatmulProblem problem = *measured_problem(workload);
  const bool has_registers =
      !is_f8(problem.a.dtype) ||
      schedule.registers(true) <= (schedule.groups == 3 ? kMostRegisters * 2 / 3 : kMostRegisters);
  // Products of halves alone were timed by turns. One warpgroup promotes sums of 8-bit floats while another
  // multiplies in any case.
  const bool has_turns = schedule.ping_pong == 0 || is_16_bit_float(problem.a.dtype);
  const bool boxes = ends_in_boxes(workload, problem.n);
  const int64_t steps = ceil_div(problem.k, step_depth(problem));
  // Blocks bring each other sums of halves alone, and boxes of 16 columns are for halves.
  const bool can_divide =
      schedule.splits == 1 ||
      (is_16_bit_float(problem.a.dtype) && workload.symbols().empty() && schedule.splits <= steps &&
       schedule.brought_bytes(boxes) <= schedule.ring_bytes());
  const bool has_boxes = schedule.bn % 32 == 0 || is_16_bit_float(problem.a.dtype);
  const int64_t columns = scale_columns(problem);
  const bool has_scales = columns % schedule.bn == 0;
  return has_registers && has_turns && can_divide && has_boxes && has_scales &&
         (problem.b.row_stride == 1 || schedule.bn % 64 == 0) &&
         has_room(schedule, problem, boxes, steps);
}

namespace {

// Whether warpgroups that take tiles by turns are worth a try. They would compute what depends on columns alone
// for every row, in registers that they lack. Deep products that are stored as they are gain nothing
// (tests/gpu/LOG.md): smaller tiles read more, at the limit of a card's power.
bool may_take_turns(const Graph& graph, const MatmulProblem& problem) {
  constexpr int64_t kDeepSteps = 48;
  bool is_stored_as_it_is = true;
  for (NodeId id = problem.product + 1; id < graph.size(); ++id) {
    const Op op = graph.node(id).op;
    is_stored_as_it_is &= op == Op::kCast || !is_elementwise(op);
  }
  return column_terms(graph, problem.product).empty() &&
         (!is_stored_as_it_is || ceil_div(problem.k, step_depth(problem)) < kDeepSteps);
}

}  // namespace

std::vector<Schedule> wgmma_candidates(const Workload& workload, const Target& target) {
  const MatmulProblem problem = MatmulProblem::of(workload.graph);
  const bool has_turns = may_take_turns(workload.graph, problem);
  return ranked_schedules<WgmmaMatmulSchedule>(problem, target, [&](const auto& tried) {
    return (tried.ping_pong == 0 || has_turns) && fits(tried, workload.graph);
  });
}

double wgmma_efficiency(const MatmulProblem& problem) {
  constexpr int64_t kFewRows = 64;
  if (is_short_stream(problem)) return kShortStreamEfficiency;
  return problem.m <= kFewRows ? 0.55 : 0.92;
}

const KernelTemplate& wgmma_matmul() {
  static const PrintedTemplate<WgmmaMatmulSchedule> made({
      .version = 18,
      .backend = Backend::kCuda,
      .family = Family::kMatmul,
      .isa = "sm_90a",
      .check = check_wgmma,
      .candidates = wgmma_candidates,
      .print_for = print_wgmma_matmul,
      .expected_efficiency =
          [](const Workload& workload) {
            return wgmma_efficiency(*measured_problem(workload.graph));
          },
  });
  return made;
}

}  // namespace kiln
