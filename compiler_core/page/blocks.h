// A document's blocks as HTML, in one look wherever they stand: on the coordinator's page, which puts
// its frame around them, or in a file that is mailed. Texts in them may be hostile; html.h escapes.
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/page/document.h"
#include "compiler_core/page/html.h"
#include "compiler_core/page/query.h"

namespace kiln::page {

// Where a document is read: the address that links to its other parts lead to, and who may act.
struct Place {
  std::string path{};
  Query query{};
  bool may_act = false;
  std::string token{};  // that acts carry
};

// The part of <head> that both kinds of page have.
void write_head(Html& html, std::string_view title);
// Title, the sentence under it and all blocks.
Html write_blocks(const Document& document, const Place& place);

// A page of its own that needs nothing but itself: the style is in it, there is no script, and
// nothing is fetched. `made_by`: its last line.
std::string self_contained_page(const Document& document, std::string_view made_by);

std::string_view style();  // of both; served as /page.css
std::string_view icon();   // SVG; served as /page.svg

}  // namespace kiln::page
