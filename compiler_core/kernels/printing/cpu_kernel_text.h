// KernelText: the frame that every generated source has: preamble, functions with the launch
// model's signature, the recipe's argument lists. One owner.
#pragma once

#include <functional>
#include <string>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

// The statements that declare in0.., out0.. from `args`, indented by 2.
std::string argument_pointers(const Graph& graph);

// The statements that declare s0.., the values of the symbols, from `dims`, indented by 2.
std::string symbol_values(const Graph& graph);

// The text every source starts with: LANES, the vocabulary of printing/device/*.h. `extra`: further
// template files, "scan.h".
std::string preamble(const Graph& graph, int lanes,
                     std::initializer_list<std::string_view> extra = {});

// extern "C" void ENTRY(args, dims, begin, end, workspace, scratch) { in0.. out0.. BODY }, where
// BODY is statements indented by 2.
std::string entry_function(const std::string& entry, const Graph& graph, const std::string& body);

// The loop over the vectors of [from, to) (C expressions), as statements indented by `indent`.
struct VectorLoop {
  std::string variable = {}, from = {}, to = {};
  int unroll = 1;
  // In terms of the variable and of `live`, indented by `indent` + 2.
  std::string body = {};
  // When not empty: `unroll` vectors at once, in terms of {variable}0, {variable}1, ...; else they
  // are `unroll` calls of the body.
  std::string wide_body = {};
  // More parameters of the body (", vf32& acc"), and what the u-th unrolled vector passes for them.
  std::string parameters = {};
  std::function<std::string(int u)> arguments = {};

  // Whole vectors run `unroll` at a time; what is left over one by one, the last with SomeLanes.
  std::string text(int indent) const;
};

}  // namespace kiln
