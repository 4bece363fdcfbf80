#include "compiler_core/kernels/matmul/factor_text.h"

#include <fmt/core.h>

#include <vector>

#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

Index index_of(const FactorParameter& parameter) {
  const LoopVar variable{std::string(parameter.name), LoopVar::Kind::kScalar, Level::kInner, 0,
                         parameter.count};
  return Index(variable) * parameter.unit;
}

}  // namespace

std::string factor_function(const Graph& graph, std::string_view name, NodeId factor,
                            size_t operand, const FactorParameter& line,
                            const FactorParameter& depth, bool is_negated) {
  if (factor == kInvalidNode)
    return fmt::format("  const auto {} = [](index_t, index_t) {{ return 1.0f; }};\n", name);
  const Shape& shape = graph.node(factor).shape;
  std::vector<NamedAxis> axes;
  std::vector<Index> at;
  for (size_t axis = 0; axis + 2 < shape.size(); ++axis) {
    axes.push_back({fmt::format("batch{}", axis), shape[axis]});
    at.push_back(LoopVar{axes.back().name, LoopVar::Kind::kScalar, Level::kInner, 0, shape[axis]});
  }
  at.push_back(index_of(operand == 0 ? line : depth));
  at.push_back(index_of(operand == 0 ? depth : line));
  ExpressionPrinter printer(graph, Dialect::kCuda);
  const std::string value = printer.value(factor, at).name;
  std::string text = fmt::format(
      "  const auto {0} = [&]([[maybe_unused]] index_t {1}, [[maybe_unused]] index_t {2}) {{\n"
      "    {1} = smaller({1}, {3});\n    {2} = smaller({2}, {4});\n",
      name, line.name, depth.name, size_text(line.count - 1), size_text(depth.count - 1));
  if (!axes.empty()) text += declare_coordinates("index_t", "batch", axes, 4);
  for (const Level level : {Level::kKernel, Level::kOuter, Level::kInner})
    text += printer.take(level, 4);
  return text + fmt::format("    return {}{}[0];\n  }};\n", is_negated ? "-" : "", value);
}

}  // namespace kiln
