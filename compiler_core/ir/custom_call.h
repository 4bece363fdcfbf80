// CustomCall: an operation that a user brings along: a name, what it computes, written in core ops,
// and kernels for it as source. It travels inside graphs, so that whoever plans, compiles or checks
// it needs to know nothing beforehand. Immutable values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// A decision of the kernel's author that tuning makes: `name` is a macro of the source.
struct CustomDecision {
  std::string name;
  std::vector<int64_t> values;  // best guess first; not empty
  bool operator==(const CustomDecision&) const = default;
};

// Source of one backend in its launch model (program/artifact.h).
struct CustomKernel {
  std::string backend;  // "cpu" or "cuda"
  std::string source;   // one translation unit without headers; defines `entry`
  std::string entry;
  std::vector<CustomDecision> decisions;
  // The grid is ceil(elements of the result / block) blocks; `block` is a number or the name of a
  // decision, as are `threads` and `shared_bytes` (CUDA only).
  std::string block = "1";
  std::string threads = "256";
  std::string shared_bytes = "0";
  bool operator==(const CustomKernel&) const = default;
};

struct CustomCall {
  std::string name;  // "mylib::rope"
  Graph reference;   // one input an operand, one output: the result
  std::vector<CustomKernel> kernels;
  bool operator==(const CustomCall&) const = default;
};

// One word without spaces that says everything, for the text form and digests; parse reads it back,
// kInvalidArgument otherwise. Safe on hostile text.
std::string print_custom_call(const CustomCall& call);
Result<CustomCall> parse_custom_call(std::string_view word);

}  // namespace kiln
