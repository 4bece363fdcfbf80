// Artifact: a compiled kernel: binary, and the recipe that says how to launch it.
//
// Launch model of the CPU target. A binary is a shared object. Each phase of the recipe is one
// exported function
//
//   extern "C" void ENTRY(void* const* args, const int64_t* dims, int64_t begin, int64_t end,
//                         void* workspace, void* scratch);
//
// called with consecutive, disjoint ranges [begin, end) of the phase's grid, from any thread, in
// any order; phases are separated by a barrier. `args` are the kernel's inputs, then its outputs,
// dense row-major and 64-byte aligned (so a kernel may assume both); `dims` the symbol values;
// `workspace` is shared by all blocks of a launch, `scratch` belongs to the calling thread.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/dim.h"
#include "compiler_core/base/dtype.h"

namespace kiln {

struct Phase {
  std::string entry;  // symbol in the binary
  Dim grid;           // number of blocks
  bool operator==(const Phase&) const = default;
};

struct TensorSpec {
  DType dtype = DType::kF32;
  std::vector<Dim> shape;
  bool operator==(const TensorSpec&) const = default;
};

struct Recipe {
  std::vector<TensorSpec> inputs, outputs;  // args, in this order
  std::vector<Phase> phases;
  Dim workspace_bytes;        // one block of memory a launch, 64-byte aligned
  int64_t scratch_bytes = 0;  // per thread, 64-byte aligned
  bool operator==(const Recipe&) const = default;
};

struct Artifact {
  Recipe recipe;
  std::string binary;
  Digest digest;  // Digest::of(binary)
};

// JSON, stable field names; parse is safe on hostile text.
std::string recipe_to_json(const Recipe& recipe);
Result<Recipe> recipe_from_json(std::string_view json);

}  // namespace kiln
