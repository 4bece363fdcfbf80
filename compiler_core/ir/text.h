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
// kInvalidArgument with the line number. Safe on hostile text.
Result<Graph> parse_graph(std::string_view text);

}  // namespace kiln
