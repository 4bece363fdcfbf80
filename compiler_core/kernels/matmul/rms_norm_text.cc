#include "compiler_core/kernels/matmul/rms_norm_text.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

int norm_pieces(const RmsNorm& rms_norm) {
  if (rms_norm.columns == kInvalidNode) return 0;
  return static_cast<int>(size_of(rms_norm.columns_dtype)) * RmsNormText::kLanes / 16;
}

std::string RmsNormText::members() const {
  if (!rms_norm_) return "  static constexpr int norm_pieces = -1;\n";
  return fmt::format("  static constexpr int norm_pieces = {};\n", norm_pieces(*rms_norm_)) +
         print_times();
}

// Whether the operand is x * s, or x * s * w of bf16, and nothing else: with a scale of 1 it is x, or one
// product of halves that is rounded once.
bool RmsNormText::is_one_product() const {
  if (rms_norm_->columns != kInvalidNode && rms_norm_->columns_dtype != DType::kBF16) return false;
  int columns = 0;
  std::vector<NodeId> stack = {rms_norm_->nodes.back()};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (id == rms_norm_->rows || id == rms_norm_->scale) continue;
    const Node& node = graph_.node(id);
    if (id == rms_norm_->columns)
      ++columns;
    else if (node.op == Op::kMul ||
             (node.op == Op::kCast && (node.dtype == DType::kBF16 || node.dtype == DType::kF32)))
      stack.insert(stack.end(), node.operands.begin(), node.operands.end());
    else
      return false;
  }
  return columns == (rms_norm_->columns != kInvalidNode ? 1 : 0);
}

// x * w of a chunk: the operand with a scale of 1, rounded as it is in the end.
std::string RmsNormText::print_times() const {
  if (is_one_product()) {
    const bool has_columns = rms_norm_->columns != kInvalidNode;
    return fmt::format(
        "  template <int pieces>\n"
        "  KILN_INLINE Bits<16> times(const Bits<16>& rows, const Bits<16> (&{})[pieces]) {{\n"
        "    return {};\n  }}\n",
        has_columns ? "norm" : "", has_columns ? "times_bf16(rows, norm[0])" : "rows");
  }
  const Node& operand = graph_.node(rms_norm_->nodes.back());
  ExpressionPrinter printer(graph_, Dialect::kCuda);
  printer.whole_vectors(kLanes);
  const std::string stored(memory_type(operand.dtype));
  printer.bind_packed(rms_norm_->rows, fmt::format("as_vector<{}>(of_rows)", stored));
  if (rms_norm_->columns != kInvalidNode)
    printer.bind_packed(rms_norm_->columns,
                        fmt::format("as_vector<{}>(norm)", memory_type(rms_norm_->columns_dtype)));
  printer.bind(rms_norm_->scale, {"one", Level::kInner, true});
  const std::vector<Index> at = {
      LoopVar{"row", LoopVar::Kind::kScalar, Level::kInner, 0, operand.shape[0]},
      LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, operand.shape[1], kLanes}};
  const std::string value = printer.value(rms_norm_->nodes.back(), at).name;
  std::string text =
      "  template <int pieces>\n"
      "  KILN_INLINE Bits<16> times(const Bits<16>& rows, const Bits<16> (&norm)[pieces]) {\n"
      "    const Bits<16> of_rows[1] = {rows};\n"
      "    const vf32 one = splat<vf32>(1.0f);\n";
  for (const Level level : {Level::kKernel, Level::kOuter, Level::kInner})
    text += printer.take(level, 4);
  return text + fmt::format(
                    "    const Packed<{0}> x = pack<{0}>({1});\n"
                    "    return {{{{x.word[0], x.word[1], x.word[2], x.word[3]}}}};\n  }}\n",
                    stored, value);
}

std::optional<int> RmsNormText::input() const {
  if (!rms_norm_ || rms_norm_->columns == kInvalidNode) return std::nullopt;
  const Node& view = graph_.node(rms_norm_->columns);
  return std::get<InputAttr>(graph_.node(view.operands[0]).attr).index;
}

std::string RmsNormText::pointer() const {
  const auto from = input();
  if (!from) return "nullptr";
  const auto& view = std::get<ViewAttr>(graph_.node(rms_norm_->columns).attr);
  return fmt::format("in{} + {}", *from, view.offset.constant());
}

}  // namespace kiln
