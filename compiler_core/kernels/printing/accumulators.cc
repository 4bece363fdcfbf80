#include "compiler_core/kernels/printing/accumulators.h"

#include <fmt/core.h>

#include "compiler_core/base/check.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

std::string_view combiner(Op op) {
  switch (op) {
    case Op::kReduceSum:
      return "Sum";
    case Op::kReduceMax:
      return "Max";
    case Op::kReduceMin:
      return "Min";
    case Op::kReduceProd:
      return "Prod";
    default:
      CHECK(false, "not a reduction");
      return "";
  }
}

std::string identity_text(const Node& reduce) {
  if (reduce.op == Op::kReduceSum) return "0";
  if (reduce.op == Op::kReduceProd) return "1";
  const bool max = reduce.op == Op::kReduceMax;
  if (is_float(reduce.dtype))
    return fmt::format("{}infinity_{}()", max ? "-" : "",
                       reduce.dtype == DType::kF64 ? "f64" : "f32");
  if (reduce.dtype == DType::kU8) return max ? "0" : "255";
  const int64_t greatest = INT64_MAX >> (64 - 8 * size_of(reduce.dtype));
  return max ? fmt::format("-{} - 1", greatest) : std::to_string(greatest);
}

std::string finished(const Node& reduce, const std::string& accumulated) {
  switch (reduce.dtype) {
    case DType::kI8:
      return fmt::format("wrap_i8({})", accumulated);
    case DType::kI16:
      return fmt::format("wrap_i16({})", accumulated);
    case DType::kU8:
      return fmt::format("wrap_u8({})", accumulated);
    case DType::kF16:
      return fmt::format("round_f16({})", accumulated);
    case DType::kBF16:
      return fmt::format("round_bf16({})", accumulated);
    default:
      return accumulated;
  }
}

std::string ReductionLoop::declare(int indent) const {
  std::string text;
  for (NodeId id : reduces)
    for (int u = 0; u < unroll; ++u)
      text += fmt::format("{:{}}{} acc{}_{} = splat<{}>({});\n", "", indent,
                          register_type(graph.node(id).dtype), id, u,
                          register_type(graph.node(id).dtype), identity_text(graph.node(id)));
  return text;
}

std::string ReductionLoop::arguments(int u) const {
  std::string text;
  for (NodeId id : reduces) text += fmt::format(", acc{}_{}", id, u);
  return text;
}

std::string ReductionLoop::parameters() const {
  std::string text;
  for (NodeId id : reduces)
    text += fmt::format(", {}& acc{}", register_type(graph.node(id).dtype), id);
  return text;
}

std::string ReductionLoop::combine(int indent) const {
  std::string text;
  for (NodeId id : reduces)
    for (int width = unroll; width > 1; width = (width + 1) / 2)
      for (int u = 0; u < width / 2; ++u)
        text += fmt::format("{:{}}acc{}_{} = {}::combine(acc{}_{}, acc{}_{});\n", "", indent, id, u,
                            combiner(graph.node(id).op), id, u, id, (width + 1) / 2 + u);
  return text;
}

}  // namespace kiln
