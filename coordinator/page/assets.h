// The files that the page's views refer to: style sheet, script, icon.
#pragma once

#include <string_view>

namespace kiln::page {

std::string_view style();   // /page.css
std::string_view script();  // /page.js
std::string_view icon();    // /page.svg

}  // namespace kiln::page
