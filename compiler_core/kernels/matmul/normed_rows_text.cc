#include "compiler_core/kernels/matmul/normed_rows_text.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

int norm_pieces(const Graph& graph, const NormedRows& normed) {
  if (normed.columns == kInvalidNode) return 0;
  return static_cast<int>(size_of(graph.node(normed.columns).dtype)) * NormedRowsText::kLanes / 16;
}

std::string NormedRowsText::members() const {
  if (!normed_) return "  static constexpr int norm_pieces = -1;\n";
  return fmt::format("  static constexpr int norm_pieces = {};\n", norm_pieces(graph_, *normed_)) +
         print_times();
}

// x * w of a chunk: the operand with a scale of 1, rounded as it is in the end.
std::string NormedRowsText::print_times() const {
  const Node& operand = graph_.node(normed_->nodes.back());
  ExpressionPrinter printer(graph_, Dialect::kCuda);
  printer.whole_vectors(kLanes);
  const std::string stored(memory_type(operand.dtype));
  printer.bind_packed(normed_->rows, fmt::format("as_vector<{}>(of_rows)", stored));
  if (normed_->columns != kInvalidNode)
    printer.bind_packed(
        normed_->columns,
        fmt::format("as_vector<{}>(norm)", memory_type(graph_.node(normed_->columns).dtype)));
  printer.bind(normed_->scale, {"one", Level::kInner, true});
  const std::vector<Index> at = {
      LoopVar{"row", LoopVar::Kind::kScalar, Level::kInner, 0, operand.shape[0]},
      LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, operand.shape[1], kLanes}};
  const std::string value = printer.value(normed_->nodes.back(), at).name;
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

std::optional<int> NormedRowsText::input() const {
  if (!normed_ || normed_->columns == kInvalidNode) return std::nullopt;
  const Node& view = graph_.node(normed_->columns);
  return std::get<InputAttr>(graph_.node(view.operands[0]).attr).index;
}

std::string NormedRowsText::pointer() const {
  const auto from = input();
  if (!from) return "nullptr";
  const auto& view = std::get<ViewAttr>(graph_.node(normed_->columns).attr);
  return fmt::format("in{} + {}", *from, view.offset.constant());
}

}  // namespace kiln
