// A graph that this client sent and the service read as another one, which can only be a bug of
// Kiln's: normal form is to be a fixed point of its own text. The user is told so, the graph is kept
// for a report, and the program is compiled here. Pure but for the file.
#pragma once

#include <string>

#include "compiler_core/base/file.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {

// Whether the service's `answer` blames the graph. A custom kernel that does not compile, or computes
// something else than it says, is its author's to mend.
bool blames_our_graph(const Error& answer, const Graph& graph);

// Keeps the graph's text in `folder` (empty: the system's folder for temporary files). kInternal, with
// the place of the file and what to do with it.
Error refused_graph(const NormalForm& form, const Error& answer, const Path& folder);

}  // namespace kiln
