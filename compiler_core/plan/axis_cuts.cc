#include "compiler_core/plan/axis_cuts.h"

namespace kiln {

int64_t magnitude(const Dim& size) {
  if (size.is_constant()) return size.constant();
  const std::vector<SymbolId> symbols = size.symbols();
  std::vector<int64_t> values;
  for (SymbolId id = 0; id <= symbols.back(); ++id) values.push_back(4099 + 6 * id);
  return size.evaluate(values).value_or(INT64_MAX);
}

AxisCuts axis_cuts(const Shape& sizes) {
  AxisCuts cuts = {1};
  Dim inside = 1;
  for (size_t i = sizes.size(); i-- > 0;) cuts.insert(inside = inside * sizes[i]);
  return cuts;
}

std::optional<Shape> sizes_between(const AxisCuts& cuts) {
  Shape sizes;
  Dim before = 1;
  for (const Dim& cut : cuts) {
    const auto size = Dim::divide_exact(cut, before);
    if (!size) return std::nullopt;
    if (cut != before) sizes.insert(sizes.begin(), *size);
    before = cut;
  }
  return sizes;
}

}  // namespace kiln
