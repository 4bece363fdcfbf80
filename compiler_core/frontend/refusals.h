// Refusals: the ops that Kiln does not cover, with why and what to do instead, and the error for a
// program that uses any. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler_core/frontend/exported_model.h"

namespace kiln {

struct RefusedOp {
  std::string_view op;   // "aten.nonzero" for all its overloads, or one of them: "aten.lstm.data"
  std::string_view why;  // and what to do: one sentence
};
// Every op that is refused on purpose, by name.
std::span<const RefusedOp> refusals();
// Null when nothing is known about `op`, "aten.nonzero.default".
const RefusedOp* find_refusal(std::string_view op);

// kUnsupported naming every op of the program that has no lowering: how often it is used, where
// first, and what to do. Bodies of higher-order ops count.
Status refuse_uncovered_ops(const ExportedModel& model);

// One op at one place, with `why`.
Error refusal_at(const ExportedNode& node, std::string_view op, const std::string& why);

// Higher-order ops that are lowered by way of their bodies.
bool is_region(std::string_view op);

// "torch.ops.aten.add.Tensor" is "aten.add.Tensor".
std::string_view short_name(std::string_view target);

// Places in the user's source and model, from the stack trace and the module stack that
// torch.export keeps in a node's metadata (source_line.cc).
//
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
