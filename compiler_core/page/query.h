// Query: what an address of the page asks for after its '?': filter, part of a list, format. Plain
// value.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "compiler_core/page/document.h"

namespace kiln::page {

class Query {
 public:
  // Parses an address or a form's body; names and values may be anything. Unknown names are kept.
  static Query parse(std::string_view text);

  // Empty: it is not said.
  const std::string& get(const std::string& name) const;
  void set(const std::string& name, const std::string& value);
  std::string to_string() const;  // "?a=1&b=2", or nothing

  bool wants_json() const { return get("format") == "json"; }
  const std::string& filter() const { return get("filter"); }
  size_t first() const;  // of a list; 0 at the start
  size_t limit() const;  // rows of a list: 50, at most 250

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Whether `text` contains `filter`, whatever the case of ASCII letters. Everything contains "".
bool contains(std::string_view text, std::string_view filter);

// The rows of a list that the query asks for: those with a cell that contains its filter, from
// `first` on. `hint`: as Paging has it.
void page_rows(Table& table, const Query& query, std::string hint);

// The bytes that a percent-encoded text stands for; '+' is a space.
std::string decoded(std::string_view text);

}  // namespace kiln::page
