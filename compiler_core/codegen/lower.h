// Code generation: a workload and a schedule become source text and a launch recipe. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler_core/program/artifact.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct Source {
  std::string text;  // one self-contained translation unit, no system headers
  Recipe recipe;
};

// kUnsupported when the workload has something the family's templates do not cover;
// kInvalidArgument when the schedule is not one of the family's.
Result<Source> lower(const Workload& workload, const Schedule& schedule, const Target& target);

// A recipe with the graph's inputs and outputs; phases and memory are the family's to add.
Recipe argument_recipe(const Graph& graph);

// Flags the sources are written for, beside -march, -shared and -fPIC. libm's and memcpy's symbols
// are the loading process's. Strict IEEE apart from contraction into fused multiply-adds, errno and
// floating-point traps.
std::span<const std::string_view> source_flags();

// Digest of every template and source file of plan, tune and codegen in this build: a changed
// generator can't serve an old winner.
const Digest& codegen_identity();

}  // namespace kiln
