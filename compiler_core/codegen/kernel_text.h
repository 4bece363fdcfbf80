// KernelText: the frame that every generated source has: preamble, functions with the launch
// model's signature, the recipe's argument lists. One owner.
#pragma once

#include <string>

#include "compiler_core/codegen/lower.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

// A recipe with the graph's inputs and outputs; phases and memory are the family's to add.
Recipe argument_recipe(const Graph& graph);

// extern "C" void ENTRY(args, dims, begin, end, workspace, scratch) { in0.. out0.. BODY }, where
// BODY is statements indented by 2.
std::string entry_function(const std::string& entry, const Graph& graph, const std::string& body);

// The loop over the vectors of [from, to) (C expressions): `statements` is the body in terms of the
// vector variable `variable` and of `live`, indented by `indent` + 2. Whole vectors run `unroll` at
// a time; what is left over runs once with SomeLanes.
std::string vector_loop(const std::string& variable, const std::string& from, const std::string& to,
                        int unroll, const std::string& statements, int indent);

}  // namespace kiln
