// ExportedSizes: sizes as an archive's JSON spells them. The model's table of symbols grows as their
// names are met. One thread.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/exported_model.h"

namespace kiln {

class ExportedSizes {
 public:
  // `model` outlives this.
  explicit ExportedSizes(ExportedModel& model) : model_(model) {}

  // "range_constraints": the bounds of symbols, by name. REQUIRES: before the first size.
  void constrain(simdjson::dom::object ranges) { ranges_ = ranges; }

  // {"as_int": 4} or {"as_expr": {"expr_str": ..., "hint": {"as_int": 32} or null}}. kUnsupported:
  // an expression that is not covered.
  Result<Dim> size(simdjson::dom::element element);
  // The list of sizes under `key`. Errors as size().
  Result<std::vector<Dim>> list(simdjson::dom::object from, std::string_view key);

 private:
  Result<Dim> expression(simdjson::dom::element element);
  Result<Dim> symbol(std::string_view name, int64_t hint);
  Result<SymbolRange> range_of(std::string_view name) const;

  ExportedModel& model_;
  simdjson::dom::object ranges_;
  std::unordered_map<std::string, SymbolId> symbol_ids_;
};

}  // namespace kiln
