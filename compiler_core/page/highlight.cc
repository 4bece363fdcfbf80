#include <algorithm>
#include <array>
#include <cctype>

#include "compiler_core/page/html.h"

namespace kiln::page {
namespace {

constexpr auto kWords =
    std::to_array<std::string_view>({"__device__",   "__global__",  "__launch_bounds__",
                                     "__restrict__", "__shared__",  "alignas",
                                     "asm",          "auto",        "bool",
                                     "break",        "case",        "char",
                                     "const",        "constexpr",   "continue",
                                     "default",      "do",          "double",
                                     "else",         "enum",        "extern",
                                     "false",        "float",       "for",
                                     "if",           "inline",      "int",
                                     "int16_t",      "int32_t",     "int64_t",
                                     "int8_t",       "long",        "namespace",
                                     "operator",     "return",      "short",
                                     "signed",       "size_t",      "sizeof",
                                     "static",       "static_cast", "struct",
                                     "switch",       "template",    "true",
                                     "typename",     "uint16_t",    "uint32_t",
                                     "uint64_t",     "uint8_t",     "unsigned",
                                     "using",        "void",        "volatile",
                                     "while"});
static_assert(std::ranges::is_sorted(kWords));

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The length of the string or character literal that `text` begins with.
size_t literal_length(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] != text.front() && text[end] != '\n')
    end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// Up to the end of the line, and on where it ends in a backslash.
size_t line_length(std::string_view text) {
  size_t end = text.find('\n');
  while (end != std::string_view::npos && end > 0 && text[end - 1] == '\\')
    end = text.find('\n', end + 1);
  return std::min(end, text.size());
}

struct Token {
  const char* kind = nullptr;  // null: as the rest
  size_t length = 1;
};

// `at_line_start`: only blanks stand before it in its line.
Token token_of(std::string_view text, bool at_line_start) {
  const char first = text.front();
  if (text.starts_with("//")) return {"c", line_length(text)};
  if (text.starts_with("/*")) {
    const size_t end = text.find("*/", 2);
    return {"c", end == std::string_view::npos ? text.size() : end + 2};
  }
  if (first == '#' && at_line_start) return {"p", line_length(text)};
  if (first == '"' || first == '\'') return {"s", literal_length(text)};
  if (!is_letter(first)) return {};
  const auto* end = std::ranges::find_if_not(text, is_letter);
  std::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  if (first < '0' || first > '9')
    return {std::ranges::binary_search(kWords, word) ? "k" : nullptr, word.size()};
  // A number goes on behind its point and the sign of its exponent.
  size_t length = 1;
  while (length < text.size() &&
         (is_letter(text[length]) || text[length] == '.' ||
          ((text[length] == '+' || text[length] == '-') &&
           std::string_view("eEpP").find(text[length - 1]) != std::string_view::npos &&
           !(text.starts_with("0x") && (text[length - 1] == 'e' || text[length - 1] == 'E')))))
    ++length;
  return {"n", length};
}

}  // namespace

Html highlighted(std::string_view source) {
  Html html;
  std::string_view plain = source.substr(0, 0);
  const auto write_plain = [&] {
    html.text(plain);
    plain = {};
  };
  bool at_line_start = true;
  while (!source.empty()) {
    const Token token = token_of(source, at_line_start);
    const std::string_view text = source.substr(0, token.length);
    if (token.kind == nullptr) {
      plain = plain.empty() ? text : std::string_view(plain.data(), plain.size() + text.size());
    } else {
      write_plain();
      html.word("span", {{"class", token.kind}}, text);
    }
    const char last = text.back();
    at_line_start = last == '\n' || (at_line_start && (last == ' ' || last == '\t'));
    source.remove_prefix(text.size());
  }
  write_plain();
  return html;
}

}  // namespace kiln::page
