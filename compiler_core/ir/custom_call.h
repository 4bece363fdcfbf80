// CustomCall: an operation that a user brings along: a name, what it computes, written in core ops,
// and kernels for it as source. It travels inside graphs, so that whoever plans, compiles or checks
// it needs to know nothing beforehand. custom_op.h makes them; docs/custom_call.md shows how.
// Immutable values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// A decision of the kernel's author that tuning makes: `name` is a macro of the source.
struct CustomDecision {
  std::string name;
  std::vector<int64_t> values;  // best guess first; 1 to 64 of them
  bool operator==(const CustomDecision&) const = default;
};

// Source of one backend: one translation unit without headers, written in the vocabulary of
// a template's device folder, that defines the function template or function `function`:
//
//   cpu    static void FUNCTION(const T0* in0, ..., T* out0, int64_t begin, int64_t end)
//          works on the items [begin, end); called from any thread, ranges are disjoint
//   cuda   KILN_INLINE void FUNCTION(const T0* in0, ..., T* out0)
//          is what each thread of the block block_index() does; the block has the items from
//          block_index() * KILN_BLOCK on, KILN_BLOCK of them or what is left of KILN_ITEMS
//
// Buffers are dense, row-major, 64-byte (cuda: 16-byte) aligned. Macros: the decisions by name,
// KILN_ITEMS, KILN_BLOCK, KILN_THREADS, and for IN0, IN1, ..., OUT0 KILN_IN0_NUMEL, KILN_IN0_RANK,
// KILN_IN0_DIM0, ...
struct CustomKernel {
  std::string backend;  // "cpu" or "cuda"
  std::string source;
  std::string function;
  std::vector<CustomDecision> decisions;
  int64_t items = 0;  // what the grid is divided into; 0: the elements of the result
  // Numbers, names of decisions, or products of both ("4*BLOCK*STAGES").
  std::string block = "1";         // items of one block of the grid
  std::string threads = "256";     // of a block, at most 1024; cuda only
  std::string shared_bytes = "0";  // of a block; cuda only
  bool operator==(const CustomKernel&) const = default;
};

struct CustomCall {
  std::string name;  // "mylib::rope"
  Graph reference;   // core ops of constant sizes; one input an operand, one output: the result
  std::vector<CustomKernel> kernels;  // at most one a backend
  bool operator==(const CustomCall&) const = default;

  const CustomKernel* kernel(std::string_view backend) const;  // null when there is none
};

// kInvalidArgument names the rule that `call` breaks: the ones above, and that names are words of C
// that do not begin with KILN_, sources at most 1 MiB.
Status verify_custom_call(const CustomCall& call);

// The value of `product`, of a kernel whose decisions are made: `values[i]` for decisions[i].
// kInvalidArgument: it is malformed, names no decision, or overflows.
Result<int64_t> evaluate_product(const CustomKernel& kernel, std::span<const int64_t> values,
                                 std::string_view product);

bool has_custom_calls(const Graph& graph);
// A copy of `graph` in which the nodes of its reference stand for each custom call.
Result<Graph> inline_custom_calls(const Graph& graph);

// One word without spaces that says everything, for the text form and digests; parse reads it back,
// kInvalidArgument otherwise. Safe on hostile text.
std::string print_custom_call(const CustomCall& call);
Result<CustomCall> parse_custom_call(std::string_view word);

}  // namespace kiln
