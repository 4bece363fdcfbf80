// The translation unit around a user's text: the vocabulary before it, the entry point behind it.
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"

namespace kiln {

// `text`: macros and the user's functions, with line markers. `body`: the entry point's statements,
// indented by 2, in terms of in0.., out0.., and on the CPU of `begin` and `end`.
std::string users_cpu_text(const Graph& graph, const std::string& entry, const std::string& text,
                           const std::string& body);
// `words`: those of the vocabulary that `text` may use, as words_of() gives them.
std::string users_cuda_text(const Graph& graph, const std::string& entry, const std::string& text,
                            const std::string& words, int threads, const std::string& body);
// The words of a source as one line, which a compiler ignores.
std::string words_of(std::string_view source);

}  // namespace kiln
