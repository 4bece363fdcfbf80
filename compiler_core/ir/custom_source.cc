#include "compiler_core/ir/custom_source.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

constexpr std::string_view kDirectives[] = {"define", "undef", "if",    "ifdef", "ifndef",
                                            "elif",   "else",  "endif", "error", "warning"};
constexpr std::string_view kPragmas[] = {"unroll", "nounroll", "ivdep"};
constexpr std::string_view kGccPragmas[] = {"ivdep",      "unroll",       "target",
                                            "diagnostic", "push_options", "pop_options"};
// These words stand for other tokens, or for strings that are not the author's.
constexpr std::string_view kRefusedWords[] = {
    "_Pragma",  "__pragma", "__FILE__",      "__BASE_FILE__", "__FILE_NAME__",
    "__DATE__", "__TIME__", "__TIMESTAMP__", "__VERSION__",   "__clang_version__"};
constexpr std::string_view kRefusedBeginnings[] = {"__has_include", "__has_embed",
                                                   "__builtin_FILE"};
constexpr std::string_view kRawPrefixes[] = {"R", "LR", "uR", "UR", "u8R"};
// PTX has no directive that opens a file; these are a host assembler's.
constexpr std::string_view kFileDirectives[] = {".incbin", ".include"};

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
// A byte of another alphabet. Compilers disagree on which of those are letters, blanks or nothing
// at all: GCC drops a byte order mark, and R" behind it begins a raw string.
bool is_foreign(char c) {
  return static_cast<unsigned char>(c) >= 0x80;
}
bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

class Lexer {
 public:
  Lexer(std::string_view source, bool cpu) : source_(source), cpu_(cpu) {}

  Status run() {
    TRY_STATUS(join_lines());
    while (at_ < text_.size()) TRY_STATUS(token());
    return {};
  }

 private:
  tl::unexpected<Error> refuse(std::string_view what) const {
    const uint32_t line = lines_.empty() ? 1 : lines_[std::min(at_, lines_.size() - 1)];
    return fail(Code::kInvalidArgument, "line " + std::to_string(line) + ": " + std::string(what));
  }
  char look(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  // Compilers disagree on whether that joins two lines.
  bool ends_in_blanks(size_t at) const {
    const size_t next = source_.find_first_not_of(" \t\r", at);
    return next == std::string_view::npos || source_[next] == '\n';
  }

  // The source without line splices, with the line of each character.
  Status join_lines() {
    uint32_t line = 1;
    for (size_t i = 0; i < source_.size(); ++i) {
      const char c = source_[i];
      const bool ends_line = c == '\r' && i + 1 < source_.size() && source_[i + 1] == '\n';
      if (ends_line) continue;
      const size_t next = i + 1 + (i + 2 < source_.size() && source_[i + 1] == '\r' ? 1 : 0);
      if (c == '\\' && next < source_.size() && source_[next] == '\n') {
        i = next;
        ++line;
        continue;
      }
      if (c == '\\' && ends_in_blanks(i + 1))
        return refuse("blanks between a backslash and the end");
      text_ += c;
      lines_.push_back(line);
      at_ = text_.size() - 1;
      if (c == '\n') ++line;
      if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == '\x7f')
        return refuse("a control character");
      if (text_.size() >= 3 && text_.compare(text_.size() - 3, 2, "??") == 0 &&
          std::string_view("=/'()!<>-").find(c) != std::string_view::npos)
        return refuse("a trigraph");
    }
    at_ = 0;
    return {};
  }

  Status token() {
    const char c = look();
    if (c == '\n') {
      ++at_;
      fresh_line_ = true;
      return {};
    }
    if (is_blank(c)) {
      ++at_;
      return {};
    }
    if (c == '/' && (look(1) == '/' || look(1) == '*')) return comment();
    const bool fresh_line = std::exchange(fresh_line_, false);
    if (c == '"') return string('"');
    if (c == '\'') return string('\'');
    if (c == '#' || (c == '%' && look(1) == ':')) {
      at_ += c == '#' ? 1 : 2;
      if (!fresh_line) return refuse("'#' in the middle of a line: macros make no new tokens");
      return directive();
    }
    if (is_digit(c) || (c == '.' && is_digit(look(1)))) return number();
    if (is_word(c)) return word().map([](std::string_view) {});
    if (c == '\\') return refuse("a backslash outside a string");
    if (is_foreign(c))
      return refuse("a letter outside ASCII, which only strings and comments have");
    ++at_;
    return {};
  }

  Status comment() {
    if (look(1) == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return {};
    }
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string::npos) return refuse("a comment without an end");
    at_ = end + 2;
    return {};
  }

  Status number() {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = look(), before = text_[at_ - 1];
      const bool sign = (c == '+' || c == '-') &&
                        (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      const bool separator = c == '\'' && is_word(look(1));
      if (!is_word(c) && c != '.' && !sign && !separator) break;
    }
    return {};
  }

  Result<std::string_view> word() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view word = std::string_view(text_).substr(begin, at_ - begin);
    if (look() == '"' && contains(kRawPrefixes, word)) return refuse("a raw string");
    const auto begins_so = [&](std::string_view beginning) { return word.starts_with(beginning); };
    if (contains(kRefusedWords, word) || std::ranges::any_of(kRefusedBeginnings, begins_so))
      return refuse(std::string(word) + " may not be used");
    return word;
  }

  Status string(char quote) {
    const size_t begin = at_;
    for (++at_; look() != quote; ++at_) {
      if (at_ >= text_.size() || look() == '\n') return refuse("a string without an end");
      if (look() == '\\') {
        ++at_;
        const bool known =
            look() != '\0' && std::string_view("nt\"'\\").find(look()) != std::string_view::npos;
        // In a character, numbers too: '\0' makes no text.
        if (!known && (quote == '"' || look() == '\n'))
          return refuse("an escape in a string other than \\n, \\t, \\\" and \\\\");
      } else if (quote == '"' && cpu_ && (look() == '.' || look() == '/')) {
        return refuse("'.' or '/' in a string: strings name no files and no directives here");
      }
    }
    ++at_;
    const std::string_view text = std::string_view(text_).substr(begin, at_ - begin);
    for (const std::string_view directive : kFileDirectives)
      if (text.find(directive) != std::string_view::npos) return refuse(directive);
    return {};
  }

  // Behind "#": the directive's name, and of a pragma what it is about.
  Status directive() {
    TRY(const std::string_view name, next_word());
    if (name.empty() && (look() == '\n' || look() == '\0')) return {};  // the null directive
    if (name == "pragma") return pragma();
    if (contains(kDirectives, name)) return {};
    return refuse("#" + std::string(name.substr(0, 32)) +
                  " may not be used: a custom call's source is one text, without files");
  }

  Status pragma() {
    TRY(std::string_view name, next_word());
    if (contains(kPragmas, name)) return {};
    const bool gcc = name == "GCC", omp = name == "omp";
    TRY(name, next_word());
    if ((gcc && contains(kGccPragmas, name)) || (omp && name == "simd")) return {};
    return refuse("this pragma may not be used; unroll, GCC ivdep, GCC unroll, GCC target may");
  }

  // On this line; empty when something else comes.
  Result<std::string_view> next_word() {
    for (;;) {
      if (is_blank(look()))
        ++at_;
      else if (look() == '/' && (look(1) == '/' || look(1) == '*'))
        TRY_STATUS(comment());
      else
        break;
    }
    if (at_ >= text_.size() || is_digit(look()) || !is_word(look())) return std::string_view();
    return word();
  }

  const std::string_view source_;
  const bool cpu_;
  std::string text_;             // without splices
  std::vector<uint32_t> lines_;  // of text_, from 1
  size_t at_ = 0;                // in text_
  bool fresh_line_ = true;       // nothing but blanks and comments since the last line's end
};

}  // namespace

Status verify_custom_source(std::string_view source, std::string_view backend) {
  return Lexer(source, backend == "cpu").run();
}

}  // namespace kiln
