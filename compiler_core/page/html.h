// Html: elements, written so that every text from outside goes through escape(): there is no other
// way to add text. Pure functions and values.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kiln::page {

// `text` as it may stand between tags and in quoted attributes. What would change how other text
// reads (control characters, overrides of direction, invisible ones, bytes that are no UTF-8) is
// spelt out: U+202E becomes "[U+202E]".
std::string escape(std::string_view text);

// Writes elements. A name, of an element or an attribute, is a literal; values and texts are raw.
class Html {
 public:
  // A pair of a name and a raw value; an attribute without a value is written alone.
  struct Attribute {
    std::string_view name;
    std::string value;
    bool has_value = true;
    Attribute(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
    explicit Attribute(std::string_view n) : name(n), has_value(false) {}
  };
  using Attributes = std::initializer_list<Attribute>;

  Html& open(std::string_view name, Attributes attributes = {});
  Html& close(std::string_view name);
  Html& empty(std::string_view name,
              Attributes attributes = {});  // <input>, <link>; <line/> in SVG
  Html& text(std::string_view raw);
  // <name ...>raw</name>
  Html& element(std::string_view name, Attributes attributes, std::string_view raw);
  Html& element(std::string_view name, std::string_view raw) { return element(name, {}, raw); }
  // The same with no line end behind it, which would show in <pre>.
  Html& word(std::string_view name, Attributes attributes, std::string_view raw);
  // <name>text</name> with text of our own that is no text: a style sheet.
  Html& literal(std::string_view name, std::string_view text);
  // Appends another Html.
  Html& append(const Html& written);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Source code of C++ or CUDA with its words in <span class="k">, "c", "s", "n" and "p": keywords
// and types, comments, strings, numbers, preprocessor lines. The texts are the source's, escaped.
Html highlighted(std::string_view source);

}  // namespace kiln::page
