// The place in the user's source and in the model that a node came from, out of the stack trace and
// the module stack that torch.export keeps in the node's metadata.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// "model.py:96: def forward(s, x): return s.d(x)": the innermost frame that is neither in an
// installed package nor generated; the innermost of all when there is no such. Empty when the trace
// is.
std::string source_line(std::string_view stack_trace);

// "modeling_llama.py:122 in forward": the innermost frame that is neither in PyTorch itself nor
// generated, by the file's own name; the innermost of all when there is no such.
std::string source_place(std::string_view stack_trace);

// "layers.0.mlp": the innermost submodule of nn_module_stack; empty for the model itself.
std::string module_path(std::string_view module_stack);

}  // namespace kiln
