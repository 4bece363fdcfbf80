// The page as HTML: documents written into the frame that all views share. Every text from outside
// goes through escape(), which is called in one place, Html: there is no other way to add text.
// Nothing here needs script or inline styles, since the page's policy allows none. Pure functions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "coordinator/page/document.h"
#include "coordinator/page/query.h"

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
  // Appends another Html.
  Html& append(const Html& written);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// The frame that all views share.
struct Frame {
  std::string path;  // of this view, as it was asked for
  Query query{};
  std::string who{};  // name of the key; empty: none was needed
  bool may_act = false;
  bool signed_in = false;  // by a token
  std::string token{};     // that acts carry
  std::string version{};   // "kiln 0.1.0"
  std::string service{};   // its endpoint
  int64_t now_ms = 0;      // Unix time
};

std::string to_html(const Document& document, const Frame& frame);
// The form that takes a page token, for whoever showed none. `why`: what is missing.
std::string sign_in_page(std::string_view why);

}  // namespace kiln::page
