// The page as JSON (?format=json): every block of a document that has a name, with numbers as
// numbers and whole keys. Pure function.
#pragma once

#include <string>

#include "compiler_core/page/document.h"

namespace kiln::page {

std::string to_json(const Document& document);

}  // namespace kiln::page
