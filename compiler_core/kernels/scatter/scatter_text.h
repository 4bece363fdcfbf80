// How a scatter is spelled in generated code, in the vocabulary that both targets have.
#pragma once

#include <string_view>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The class of scatter/device/scatter.* that combines an update with what is there: "Plus".
std::string_view combination(Combine combine);

}  // namespace kiln
