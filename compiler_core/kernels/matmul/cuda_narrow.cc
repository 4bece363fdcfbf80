#include "compiler_core/kernels/matmul/cuda_narrow.h"

#include <fmt/core.h>

#include <cmath>

#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/matmul/factor_text.h"

namespace kiln {
namespace {

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("kernels that widen weights are not written for {}", what));
}

}  // namespace

Status check_cuda_narrow(const Workload& workload) {
  constexpr int64_t kLeastGroup = 32;
  const SizedMatmul problem = SizedMatmul::of(workload.graph);
  if (!problem.narrow) return lacks("operands that both, or of which the first, have 8 bits");
  const Dequantised& weights = *problem.b.dequantised;
  if (*problem.narrow != DType::kI8 && *problem.narrow != DType::kU8)
    return lacks("weights of other dtypes than i8 and u8");
  if (!is_16_bit_float(problem.stored) || problem.result != DType::kF32)
    return lacks("products of other dtypes than fp16 and bf16");
  if (weights.group % kLeastGroup != 0) return lacks("groups that are not multiples of 32");
  if (!weights.has_whole_zeros() && *weights.zero_dtype != problem.stored)
    return lacks("zeros of other dtypes than integers and the product's");
  if (!problem.a.column_stride.is(1)) return lacks("rows that are not contiguous");
  const MatmulLines lines = matmul_columns_of_b(problem);
  if (!lines.depth_inner || !lines.async)
    return lacks("weights whose columns do not begin at multiples of 16 bytes");
  if (!workload.graph.symbols().empty() && !has_open_rows_alone(problem))
    return lacks("sizes with symbols, but for the number of rows");
  const Node& operand = workload.graph.node(weights.nodes.front());
  for (const NodeId factor : {weights.zero, weights.scale, weights.shift}) {
    if (factor == kInvalidNode) continue;
    const Node& node = workload.graph.node(factor);
    const bool known =
        node.dtype == DType::kF32 || (factor == weights.zero && is_integer(node.dtype));
    if (!known || node.shape != operand.shape || operand.op == Op::kView)
      return lacks("weights that are computed in other types than f32, or read in another order");
  }
  return {};
}

std::string NarrowWeights::print_type() const {
  return fmt::format(
      "struct Weights {{\n"
      "  static constexpr int group = {};\n"
      "  static constexpr bool scaled = {}, zeroed = {}, shifted = {}, whole_zeros = {};\n"
      "  static constexpr bool is_signed = {}, packed = {}, high_first = {};\n"
      "  static constexpr int word_depth = {}, common_zero = {};\n}};\n",
      weights().group, weights().scale != kInvalidNode,
      weights().zero != kInvalidNode && !common_zero(), weights().shift != kInvalidNode,
      weights().has_whole_zeros(),
      *problem_.narrow == DType::kI8 || weights().packing != Packing::kNone,
      weights().packing != Packing::kNone, weights().packing == Packing::kHighFirst,
      problem_.word_depth, common_zero().value_or(0));
}

std::optional<int> NarrowWeights::common_zero() const {
  if (weights().packing == Packing::kNone || weights().zero == kInvalidNode) return std::nullopt;
  const Node* node = &graph_.node(weights().zero);
  while (node->op == Op::kView) node = &graph_.node(node->operands[0]);
  if (node->op != Op::kConstant) return std::nullopt;
  constexpr double kMost = 64;  // sums of it and of halves' powers of two are exact
  const double value = std::get<ConstantAttr>(node->attr).as_double();
  if (value != std::floor(value) || std::abs(value) > kMost) return std::nullopt;
  return static_cast<int>(weights().adds_zero ? -value : value);
}

std::string NarrowWeights::print_multiply(std::string_view shift) const {
  const FactorParameter line{"line", problem_.n}, depth{"depth", problem_.k};
  return factor_function(graph_, "scale", weights().scale, 1, line, depth) +
         factor_function(graph_, "zero", weights().zero, 1, line, depth, weights().adds_zero) +
         factor_function(graph_, "addend", weights().shift, 1, line, depth) +
         fmt::format(
             "  const Factors<decltype(scale), decltype(zero), decltype(addend)> factors{{scale, "
             "zero, addend}};\n"
             "  multiply_narrow_tile<{}, A, B, Tiling, Weights>(a, b, row0{}, column0, begin, end, "
             "shared_memory(), factors);\n",
             problem_.stored == DType::kBF16 ? "WideBf16" : "WideF16", shift);
}

}  // namespace kiln
