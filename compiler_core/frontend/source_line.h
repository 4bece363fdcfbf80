// The place in the user's source that a node came from, out of the stack trace that torch.export
// keeps in the node's metadata.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// "model.py:96: def forward(s, x): return s.d(x)": the innermost frame that is neither in an
// installed package nor generated; the innermost of all when there is no such. Empty when the trace
// is.
std::string source_line(std::string_view stack_trace);

}  // namespace kiln
