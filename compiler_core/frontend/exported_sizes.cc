#include "compiler_core/frontend/exported_sizes.h"

#include <algorithm>

#include "compiler_core/frontend/json_fields.h"

namespace kiln {

namespace dom = simdjson::dom;
using std::string_view;

Result<Dim> ExportedSizes::size(dom::element element) {
  TRY(const dom::key_value_pair form, as_union(element));
  int64_t value = 0;
  if (form.key == "as_int" && form.value.get(value) == simdjson::SUCCESS) return Dim(value);
  if (form.key == "as_expr") return expression(form.value);
  return invalid_json("'" + std::string(form.key) + "' is no form of a size");
}

Result<Dim> ExportedSizes::expression(dom::element element) {
  TRY(const dom::object object, as_object(element));
  TRY(const string_view text, string_in(object, "expr_str"));
  int64_t hint = 0;
  if (object["hint"]["as_int"].get(hint) != simdjson::SUCCESS) hint = 0;
  return parse_symbolic_size(text, [&](string_view name) -> Result<Dim> {
    // The hint is the whole expression's; it is the symbol's when that is all there is.
    const bool alone = text.starts_with("Symbol(");
    return symbol(name, alone && hint > 0 ? hint : 0);
  });
}

Result<Dim> ExportedSizes::symbol(string_view name, int64_t hint) {
  const auto [known, is_new] =
      symbol_ids_.try_emplace(std::string(name), static_cast<SymbolId>(model_.symbols.size()));
  if (is_new) {
    TRY(const SymbolRange range, range_of(name));
    model_.symbols.push_back({range, hint});
    model_.symbol_names.emplace_back(name);
  }
  Symbol& entry = model_.symbols[static_cast<size_t>(known->second)];
  if (entry.hint == 0) entry.hint = hint;
  return Dim::symbol(known->second);
}

Result<SymbolRange> ExportedSizes::range_of(string_view name) const {
  SymbolRange range;
  // All that is said of it holds, should it be said twice.
  for (const dom::key_value_pair entry : ranges_) {
    dom::object bounds;
    if (entry.key != name || entry.value.get(bounds) != simdjson::SUCCESS) continue;
    int64_t bound = 0;
    if (bounds["min_val"].get(bound) == simdjson::SUCCESS) range.min = std::max(range.min, bound);
    if (bounds["max_val"].get(bound) == simdjson::SUCCESS) range.max = std::min(range.max, bound);
  }
  if (range.max < range.min)
    return invalid_json("range_constraints: the range of '" + std::string(name) +
                        "' is empty: at least " + std::to_string(range.min) + " and at most " +
                        std::to_string(range.max) +
                        "; export with constraints that some size meets");
  return range;
}

Result<std::vector<Dim>> ExportedSizes::list(dom::object from, string_view key) {
  TRY(const dom::array list, array_in(from, key));
  std::vector<Dim> dims;
  dims.reserve(list.size());
  for (const dom::element element : list) {
    TRY(Dim dim, within(size(element), "'" + std::string(key) + "'"));
    dims.push_back(std::move(dim));
  }
  return dims;
}

}  // namespace kiln
