// Sizes as torch.export writes them: sympy's srepr, "Mul(Integer(2), Symbol('s77', integer=True))".
#pragma once

#include <functional>
#include <string_view>

#include "compiler_core/base/dim.h"

namespace kiln {

// Sums, products and small powers of integers and symbols; anything else (FloorDiv, Mod, Max) is
// kUnsupported, malformed text kInvalidArgument. `resolve` gives the symbol of a name.
Result<Dim> parse_symbolic_size(std::string_view expression,
                                const std::function<Result<Dim>(std::string_view)>& resolve);

}  // namespace kiln
