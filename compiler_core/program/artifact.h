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
//
// Launch model of the CUDA target. A binary is a cubin. Phases follow each other on the caller's
// stream. A phase is a library call (library_call.h), which needs no binary, or one kernel
//
//   extern "C" __global__ void ENTRY(IN0* in0, ..., OUT0* out0, ..., char* workspace);
//
// launched with `grid` blocks of `threads` threads in one dimension, in clusters of `cluster`
// blocks, with `shared_bytes` of dynamic shared memory. Pointers are to device memory, dense
// row-major and 16-byte aligned; `workspace` is null when it has no bytes. One int64_t a symbol
// follows, in order. A phase that lists its arguments takes those instead, in that order; a tensor
// map is passed by value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/dim.h"
#include "compiler_core/base/dtype.h"
#include "compiler_core/program/grid.h"
#include "compiler_core/program/library_call.h"
#include "compiler_core/program/tensor_map.h"

namespace kiln {

// The value of one kernel parameter.
struct KernelArgument {
  // kReady: an int64_t, 1 if the input may be read before the kernel in front of a dependent launch
  // has ended: nobody has written it since the program began. Else 0.
  enum class Kind : uint8_t {
    kBuffer = 1,
    kSymbol = 2,
    kWorkspace = 3,
    kTensorMap = 4,
    kReady = 5
  };
  Kind kind = Kind::kBuffer;
  int index = 0;                      // of the buffer (inputs, then outputs), symbol or input
  std::optional<TensorMap> map = {};  // of a kTensorMap
  bool operator==(const KernelArgument&) const = default;
};

// Whether a kernel may start before the kernel in front of it on the stream has ended; it waits for that
// one itself then (programmatic dependent launch). Persisted.
enum class DependentLaunch : uint8_t {
  kNo = 0,
  // It lets the next one start behind that wait: when that starts, this one alone is still running.
  kInTurn = 1,
  // It lets the next one start at once, so that any number of kernels lie ready behind each other.
  kAtOnce = 2,
};

struct Phase {
  std::string entry;  // symbol in the binary
  Grid grid;          // number of blocks
  // On the CUDA target only; on the CPU they keep these values.
  int threads = 0;       // a block
  int cluster = 1;       // blocks of a thread block cluster; divides the grid
  int shared_bytes = 0;  // dynamic shared memory a block
  DependentLaunch dependent_launch = DependentLaunch::kNo;
  std::vector<KernelArgument> arguments = {};  // none: those of the launch model
  std::optional<LibraryCall> call = {};        // this phase is a library call, and no kernel
  bool operator==(const Phase&) const = default;
};

// Whether a kernel may read an input before it waits for the kernel in front of it: an argument says
// then whether that input is ready.
bool reads_early(const Phase& phase);

struct TensorSpec {
  DType dtype = DType::kF32;
  std::vector<Dim> shape;
  bool operator==(const TensorSpec&) const = default;
};

// Elements of a tensor for given symbols. kInvalidArgument when one is unbound, a size is negative,
// or the product overflows. Allocates nothing when it succeeds.
Result<int64_t> element_count(const TensorSpec& spec, std::span<const int64_t> symbols);

// The buffer of an output that holds the elements of an input when the kernel begins, and may be the same
// memory. The kernel writes some of them, and of both reads only those.
struct KeptOutput {
  int output = 0, input = 0;
  bool operator==(const KeptOutput&) const = default;
};

struct Recipe {
  std::vector<TensorSpec> inputs, outputs;  // args, in this order
  std::vector<Phase> phases;
  Dim workspace_bytes;        // one block of memory a launch, 64-byte aligned (CUDA: 256)
  int64_t scratch_bytes = 0;  // per thread, 64-byte aligned
  std::vector<KeptOutput> kept = {};
  bool operator==(const Recipe&) const = default;
  bool calls_library() const;
};

// kInvalidArgument unless every tensor map and library call stays inside its buffers for these
// symbols. Nothing to say of a recipe that has neither, or where a buffer has no elements.
Status check_reach(const Recipe& recipe, std::span<const int64_t> symbols);

struct Artifact {
  Recipe recipe;
  std::string binary;
  Digest digest;  // Digest::of(binary)
  // How to launch the same binary where a library that `recipe` calls is missing or has another
  // version.
  std::optional<Recipe> fallback = {};
};

// The artifact of a library call, which needs no binary: its binary is the recipe's text.
Artifact library_artifact(Recipe recipe);

// JSON, stable field names; parse is safe on hostile text.
std::string recipe_to_json(const Recipe& recipe);
Result<Recipe> recipe_from_json(std::string_view json);

}  // namespace kiln
