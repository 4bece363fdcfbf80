#include "compiler_core/kernels/pointwise/written_row.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {

Shape WrittenRow::other_axes() const {
  Shape others = shape();
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(update_.axis));
  return others;
}

void WrittenRow::put(std::vector<Index>& place, ExpressionPrinter& printer) {
  const Dim& rows = shape()[update_.axis];
  place.insert(place.begin() + static_cast<std::ptrdiff_t>(update_.axis), Index());
  if (row_.empty()) {
    const Register index = printer.value(update_.index, place);  // the same everywhere
    row_ = printer.fresh();
    printer.emit(Level::kKernel,
                 fmt::format("const index_t {} = gather_row({}, {})[0];", row_, index.name, rows));
  }
  place[update_.axis] = LoopVar{row_, LoopVar::Kind::kScalar, Level::kKernel, 0, rows};
}

std::vector<KeptOutput> WrittenRow::kept_outputs() const {
  std::vector<KeptOutput> kept;
  for (size_t i = 0; i < update_.bases.size(); ++i)
    kept.push_back(
        {static_cast<int>(i), std::get<InputAttr>(graph_.node(update_.bases[i]).attr).index});
  return kept;
}

}  // namespace kiln
