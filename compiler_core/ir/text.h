// The text form of a graph. print and parse round-trip exactly.
//
//   kiln.graph 1
//   s0 = symbol 1..4096 hint 32
//   %0 = input 0 : f32[s0,16]
//   %1 = constant 0x1p-1 : f32[]
//   %2 = view %1 strides=[0,0] offset=[0] : f32[s0,16]
//   %3 = mul %0 %2 : f32[s0,16]
//   return %3
//
// Where nodes come from may stand behind it, in lines that readers without a use for it take for comments; tabs part
// the fields, and what is no such line is a comment too:
//
//   #from aten.mul.Tensor  model.py:42 in forward  layers.0.mlp  %2 %3
//
// Attributes: input INDEX; constant VALUE (hex float, inf, -inf, nan, or integer); view strides,
// offset; pad low=[..] high=[..] value=V; concat/scan_sum axis=N; reduce_* axes=[..];
// convolution stride=[..] dilation=[..] low=[..] high=[..] groups=N; scatter
// combine=set|add|mul|max|min; argsort descending=0|1; philox stream=N; custom_call call=DEFINITION
// (one word, see custom_call.h).
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"

namespace kiln {

std::string print(const Graph& graph);
// The same, and the origins of its nodes; ops, sources and modules are cut to 200 bytes.
std::string print_with_origins(const Graph& graph);
// The text that print() gives, from one that print_with_origins() made.
std::string_view without_origins(std::string_view text);
// kInvalidArgument with the line number. Safe on hostile text.
Result<Graph> parse_graph(std::string_view text);

}  // namespace kiln
