#include "compiler_core/page/query.h"

#include <algorithm>
#include <charconv>

#include "compiler_core/base/text.h"
#include "compiler_core/page/values.h"

namespace kiln::page {
namespace {

constexpr size_t kRows = 50, kMostRows = 250;

size_t number(const std::string& text, size_t otherwise) {
  size_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && !text.empty() ? value : otherwise;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string decoded(std::string_view text) {
  std::string with_blanks(text);
  std::ranges::replace(with_blanks, '+', ' ');
  return percent_decoded(with_blanks);
}

Query Query::parse(std::string_view text) {
  Query query;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t is = std::min(part.find('='), part.size());
    query.set(decoded(part.substr(0, is)), decoded(part.substr(std::min(part.size(), is + 1))));
  }
  return query;
}

const std::string& Query::get(const std::string& name) const {
  static const std::string kNothing;
  const auto found = values_.find(name);
  return found == values_.end() ? kNothing : found->second;
}

void Query::set(const std::string& name, const std::string& value) {
  if (value.empty())
    values_.erase(name);
  else
    values_[name] = value;
}

std::string Query::to_string() const {
  std::string text;
  for (const auto& [name, value] : values_)
    text += (text.empty() ? "?" : "&") + encoded(name) + "=" + encoded(value);
  return text;
}

size_t Query::first() const {
  return number(get("first"), 0);
}

size_t Query::limit() const {
  return std::clamp<size_t>(number(get("limit"), kRows), 1, kMostRows);
}

bool contains(std::string_view text, std::string_view filter) {
  return std::ranges::search(text, filter, {}, lower, lower).begin() != text.end() ||
         filter.empty();
}

void page_rows(Table& table, const Query& query, std::string hint) {
  const auto is_meant = [&](const std::vector<Value>& row) {
    return std::ranges::any_of(row, [&](const Value& value) {
      const auto* data = std::get_if<std::string>(&value.data);
      return contains(value.text, query.filter()) ||
             (data != nullptr && contains(*data, query.filter()));
    });
  };
  if (!query.filter().empty())
    std::erase_if(table.rows, [&](const auto& row) { return !is_meant(row); });
  Paging paging{std::min(query.first(), table.rows.size()),
                0,
                table.rows.size(),
                query.limit(),
                query.filter(),
                std::move(hint)};
  table.rows.erase(table.rows.begin(),
                   table.rows.begin() + static_cast<std::ptrdiff_t>(paging.first));
  if (table.rows.size() > paging.limit) table.rows.resize(paging.limit);
  paging.shown = table.rows.size();
  table.paging = std::move(paging);
}

}  // namespace kiln::page
