#include "compiler_core/kernels/pointwise/row_place.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {

std::string put_into_row(const Graph& graph, const RowUpdate& update, std::string row,
                         ExpressionPrinter& printer, std::vector<Index>& place) {
  const Dim& rows = graph.node(graph.outputs()[0]).shape[update.axis];
  place.insert(place.begin() + static_cast<std::ptrdiff_t>(update.axis), Index());
  if (row.empty()) {
    const Register index = printer.value(update.index, place);  // the same everywhere
    row = printer.fresh();
    printer.emit(Level::kKernel,
                 fmt::format("const index_t {} = gather_row({}, {})[0];", row, index.name, rows));
  }
  place[update.axis] = LoopVar{row, LoopVar::Kind::kScalar, Level::kKernel, 0, rows};
  return row;
}

std::vector<KeptOutput> kept_outputs(const Graph& graph, const RowUpdate& update) {
  std::vector<KeptOutput> kept;
  for (size_t i = 0; i < update.bases.size(); ++i)
    kept.push_back(
        {static_cast<int>(i), std::get<InputAttr>(graph.node(update.bases[i]).attr).index});
  return kept;
}

}  // namespace kiln
