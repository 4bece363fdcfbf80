#include "compiler_core/kernels/printing/device_text.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>
#include <vector>

namespace kiln {
namespace {

using Words = std::unordered_set<std::string_view>;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The words of `text` without those of its comments.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (!is_word(text[i])) {
      ++i;
    } else {
      const size_t begin = i;
      while (i < text.size() && is_word(text[i])) ++i;
      words.push_back(text.substr(begin, i - begin));
    }
  }
  return words;
}

// Words of which one must occur further down for an item to be needed; none: it always is.
using Needs = std::vector<std::string_view>;

// Without "template <...>".
std::string_view without_template(std::string_view item) {
  if (!item.starts_with("template")) return item;
  int depth = 0;
  for (size_t i = item.find('<'); i < item.size(); ++i) {
    depth += item[i] == '<' ? 1 : item[i] == '>' ? -1 : 0;
    if (depth == 0) {
      const size_t next = item.find_first_not_of(" \n", i + 1);
      return next == std::string_view::npos ? item : item.substr(next);
    }
  }
  return item;
}

// A struct's name and, of a specialisation, what it is for.
Needs needs_of_struct(std::string_view item) {
  item.remove_prefix(std::string_view("struct ").size());
  if (item.starts_with("alignas(")) {
    int depth = 0;
    size_t i = item.find('(');
    do {
      depth += item[i] == '(' ? 1 : item[i] == ')' ? -1 : 0;
    } while (depth > 0 && ++i < item.size());
    item.remove_prefix(i);
  }
  return words_of(item.substr(0, item.find_first_of("{:;")));
}

// A function's overloads for f64 are for kernels that have such values.
Needs needs_of_function(std::string_view item) {
  const size_t open = item.find('(');
  const std::vector<std::string_view> head = words_of(item.substr(0, open));
  if (open == std::string_view::npos || head.size() < 3) return {};
  if (std::find(head.begin(), head.end(), "operator") != head.end()) return {};
  const std::string_view parameters = item.substr(open, item.find(')', open) - open);
  Needs needs = {head.back()};
  for (std::string_view type : words_of(parameters))
    if (type == "vf64" || type == "vi64") needs.push_back(type);
  return needs;
}

Needs needs_of(std::string_view item) {
  const std::vector<std::string_view> words = words_of(item.substr(0, item.find('\n')));
  if (item.starts_with("KILN_LANEWISE")) {
    const std::string_view type = words[2];
    return {words[1], type == "float"    ? "vf32"
                      : type == "double" ? "vf64"
                      : type == "int"    ? "vi32"
                                         : "vi64"};
  }
  if (item.starts_with("KILN_MEMORY(")) return words_of(item.substr(11, item.find(',') - 11));
  item = without_template(item);
  if (item.starts_with("struct ")) return needs_of_struct(item);
  if (item.starts_with("KILN_INLINE") || item.starts_with("KILN_OUTLINE"))
    return needs_of_function(item);
  return {};
}

bool begins_item(std::string_view line) {
  for (std::string_view start :
       {"template", "KILN_INLINE", "KILN_OUTLINE", "struct ", "KILN_LANEWISE", "KILN_MEMORY("})
    if (line.starts_with(start)) return true;
  return false;
}

// The first line's end at which all braces and brackets are closed and something has ended.
size_t item_end(std::string_view source, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < source.size(); ++i) {
    const char c = source[i];
    if (source.substr(i, 2) == "//") i = std::min(source.find('\n', i), source.size()) - 1;
    depth += c == '{' || c == '(' ? 1 : c == '}' || c == ')' ? -1 : 0;
    if (c != '\n' || depth != 0) continue;
    const std::string_view item = source.substr(begin, i - begin);
    const bool macro = item.starts_with("KILN_LANEWISE") || item.starts_with("KILN_MEMORY");
    if (macro || item.ends_with('}') || item.ends_with(';')) return i + 1;
  }
  return source.size();
}

struct Piece {
  std::string_view text;
  Needs needs;
};

// Items with the comments right above them; and the lines between.
std::vector<Piece> split(std::string_view source) {
  std::vector<Piece> pieces;
  size_t comment = std::string_view::npos;  // where the comment begins that goes on to here
  for (size_t begin = 0; begin < source.size();) {
    const size_t line_end = std::min(source.find('\n', begin), source.size() - 1) + 1;
    const std::string_view line = source.substr(begin, line_end - begin);
    if (line.starts_with("//") && !line.starts_with("// ----")) {
      if (comment == std::string_view::npos) comment = begin;
      begin = line_end;
      continue;
    }
    const size_t from = comment == std::string_view::npos ? begin : comment;
    const bool item = begins_item(line);
    const size_t end = item ? item_end(source, begin) : line_end;
    pieces.push_back({source.substr(from, end - from),
                      item ? needs_of(source.substr(begin, end - begin)) : Needs{}});
    comment = std::string_view::npos;
    begin = end;
  }
  return pieces;
}

}  // namespace

std::string needed_text(std::string_view source) {
  std::vector<Piece> pieces = split(source);
  Words words;
  for (size_t i = pieces.size(); i-- > 0;) {
    const Needs& needs = pieces[i].needs;
    if (std::all_of(needs.begin(), needs.end(),
                    [&](std::string_view word) { return words.count(word) != 0; })) {
      for (std::string_view word : words_of(pieces[i].text)) words.insert(word);
    } else {
      pieces[i].text = {};
    }
  }
  std::string text;
  text.reserve(source.size());
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace kiln
