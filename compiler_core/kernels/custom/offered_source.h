// OfferedSource: a user's source that is compiled into a kernel to be offered for a workload
// (program/offered_kernel.h). It is written as a custom call's is (ir/custom_call.h), but for its
// arguments, which come in an order of its own. Values; a pure function.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"

namespace kiln {

struct OfferedSource {
  std::string text;      // one translation unit without headers: verify_custom_source()
  std::string function;  // as CustomKernel says, with the arguments below
  // The workload's buffers, inputs and then outputs, as the function takes them: each once.
  std::vector<int> arguments;
  int64_t items = 0;         // what the grid is divided into; 0: the elements of the first output
  int64_t block = 1024;      // items of one block of the grid
  int threads = 256;         // of a block; cuda only, as is the next
  int64_t shared_bytes = 0;  // dynamic shared memory a block
};

// Macros: KILN_ITEMS, KILN_BLOCK, KILN_THREADS. kInvalidArgument names the rule that `offered` breaks.
// REQUIRES: the workload's sizes are constants.
Result<Source> print_offered(const Workload& workload, const OfferedSource& offered,
                             const Target& target);

}  // namespace kiln
