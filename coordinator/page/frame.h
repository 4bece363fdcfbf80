// Frame: how a view leaves the coordinator: as HTML with navigation, who looks, and what may be done
// around it, or as JSON (?format=json). Nothing here needs script or inline styles, since the page's
// policy allows none. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/page/document.h"
#include "compiler_core/page/query.h"

namespace kiln::page {

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
// Every block of the document that has a name, with numbers as numbers and whole keys.
std::string to_json(const Document& document);
// The form that takes a page token, for whoever showed none. `why`: what is missing.
std::string sign_in_page(std::string_view why);
std::string_view script();  // /page.js

}  // namespace kiln::page
