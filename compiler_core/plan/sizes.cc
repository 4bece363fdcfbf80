#include "compiler_core/plan/sizes.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kMostMeasured = 1024;  // of a symbol that nobody gave a hint for

// `size` as number * unit. The number is what all coefficients have in common when there is one
// monomial; of a sum it stays 1.
FactoredSize factored(const Dim& size) {
  if (size.is_constant()) return {size.constant(), 1};
  const std::vector<SymbolId> symbols = size.symbols();
  const std::vector<int64_t> ones(static_cast<size_t>(symbols.back()) + 1, 1);
  const auto number = size.evaluate(ones);
  if (!number || *number < 2) return {1, size};
  auto unit = Dim::divide_exact(size, *number);
  return unit ? FactoredSize{*number, *std::move(unit)} : FactoredSize{1, size};
}

}  // namespace

std::vector<int64_t> measured_sizes(std::span<const Symbol> symbols) {
  std::vector<int64_t> sizes;
  for (const Symbol& symbol : symbols) {
    const auto [min, max] = symbol.range;
    const int64_t middle = std::min(min + (max - min) / 2, kMostMeasured);
    const int64_t wanted = std::max<int64_t>(symbol.hint > 0 ? symbol.hint : middle, 2);
    sizes.push_back(std::clamp(wanted, min, std::max(min, max)));
  }
  return sizes;
}

int64_t size_at_hints(const Graph& graph, const Dim& size) {
  if (size.is_constant()) return size.constant();
  return size.evaluate(measured_sizes(graph.symbols())).value_or(INT64_MAX);
}

std::optional<std::vector<int>> walk_order(const Graph& graph, const Node& view) {
  const auto& attr = std::get<ViewAttr>(view.attr);
  if (!attr.offset.is(0) || numel(view.shape) != numel(graph.node(view.operands[0]).shape))
    return std::nullopt;
  std::vector<int> left, order;
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (!view.shape[i].is(1)) left.push_back(static_cast<int>(i));
  // From the innermost axis outwards, each one's stride is the product of the sizes inside it.
  for (Dim expected = 1; !left.empty();) {
    const auto next = std::find_if(left.begin(), left.end(), [&](int axis) {
      return attr.strides[static_cast<size_t>(axis)] == expected;
    });
    if (next == left.end()) return std::nullopt;
    expected = expected * view.shape[static_cast<size_t>(*next)];
    order.push_back(*next);
    left.erase(next);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

FactoredSize factored(const Shape& shape) {
  FactoredSize product;
  Dim number = 1;
  for (const Dim& size : shape) {
    const FactoredSize part = factored(size);
    number = number * Dim(part.number);
    product.unit = product.unit * part.unit;
  }
  if (!number.is_valid()) return {1, numel(shape)};
  product.number = number.constant();
  return product;
}

}  // namespace kiln
