#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/factor_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"

namespace kiln {
namespace {

bool is_depth_inner(const MatmulOperand& operand, bool is_a) {
  return (is_a ? operand.column_stride : operand.row_stride) == 1;
}

TensorMap map_of(const WgmmaProduct& product, const MatmulProblem& problem,
                 const WgmmaMatmulSchedule& schedule, bool is_a) {
  const MatmulOperand& operand = is_a ? problem.a : problem.b;
  const bool depth_inner = is_depth_inner(operand, is_a);
  const Dim lines = is_a ? product.sizes().rows : Dim(problem.n);
  const int64_t line_stride = is_a ? operand.row_stride : operand.column_stride;
  const int64_t depth_stride = is_a ? operand.column_stride : operand.row_stride;
  TensorMap map;
  map.sizes = {depth_inner ? Dim(problem.k) : lines, depth_inner ? lines : Dim(problem.k)};
  map.strides = {(depth_inner ? line_stride : depth_stride) * size_of(operand.dtype)};
  const auto depth = static_cast<int>(step_depth(problem));  // or so many lines, of halves
  map.box = {depth, depth_inner ? (is_a ? schedule.bm : schedule.bn) : depth};
  return product.with_batches(std::move(map), operand);
}

// A copy of one box: [depth, line, batch axes...], the contiguous axis first.
std::string print_operand(const WgmmaProduct& product, const MatmulOperand& operand, bool is_a) {
  const bool depth_inner = is_depth_inner(operand, is_a);
  return fmt::format(
      "struct {} {{\n"
      "  static constexpr bool depth_inner = {};\n"
      "  static KILN_MEMBER void copy(char* to, const CUtensorMap* map, char* barrier, int "
      "line,\n"
      "                               int depth, [[maybe_unused]] int batch) {{\n"
      "{}    copy_box(to, map, barrier, at);\n  }}\n}};\n",
      is_a ? "A" : "B", depth_inner,
      product.print_place(depth_inner ? "depth, line" : "line, depth", operand));
}

// Declares `scales`; nothing where no operand is scaled.
std::string print_scales(const Graph& graph, const MatmulProblem& problem, const Dim& rows) {
  const auto scale_of = [](const MatmulOperand& operand) {
    return operand.dequantised ? operand.dequantised->scale : kInvalidNode;
  };
  const NodeId row = scale_of(problem.a), column = scale_of(problem.b);
  if (row == kInvalidNode && column == kInvalidNode) return "";
  const int64_t all = problem.n, columns = std::max<int64_t>(scale_columns(problem), 1);
  const int64_t one = column == kInvalidNode ? all : std::min(columns, all);
  const FactorParameter step{"step", ceil_div(problem.k, step_depth(problem)), step_depth(problem)};
  return factor_function(graph, "row_scale", row, 0, {"row", rows}, step) +
         factor_function(graph, "column_scale", column, 1, {"number", ceil_div(all, one), one},
                         step) +
         fmt::format(
             "  const StepScales<{}, decltype(row_scale), decltype(column_scale)> "
             "scales{{row_scale, column_scale}};\n",
             column == kInvalidNode ? 1 << 16 : columns);
}

}  // namespace

Result<Source> print_wgmma_matmul(const Graph& graph, const WgmmaMatmulSchedule& schedule,
                                  const Target& target) {
  if (!fits(schedule, graph))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  const MatmulProblem problem = *measured_problem(graph);
  const SizedMatmul sized = SizedMatmul::of(graph);
  const WgmmaProduct product(graph, graph, schedule, problem, {sized.m, sized.batch}, target);
  WgmmaOperands operands;
  operands.types =
      print_operand(product, problem.a, true) + print_operand(product, problem.b, false);
  operands.device = {"wgmma_tiles.cuh"};
  if (schedule.splits > 1) operands.device.emplace_back("wgmma_divided.cuh");
  operands.early_input = problem.b.input;
  operands.source = fmt::format("BoxTiles{{&a_map, &b_map, sizes, ready{} != 0}}", problem.b.input);
  operands.maps = {{"a", map_of(product, problem, schedule, true)},
                   {"b", map_of(product, problem, schedule, false)}};
  operands.a_inner = is_depth_inner(problem.a, true);
  operands.b_inner = is_depth_inner(problem.b, false);
  operands.steps = ceil_div(problem.k, step_depth(problem));
  operands.scales = print_scales(graph, problem, product.sizes().rows);
  return product.print(operands);
}

}  // namespace kiln
