// Verification: is a loaded kernel right, and does it keep to its own memory? Runs code that nobody
// trusts yet; the caller is a process that may die of it.
#pragma once

#include "compiler_core/runtime/kernel.h"
#include "worker/runner/cpu/workload_case.h"
#include "worker/runner/protocol.h"
#include "worker/runner/timing.h"

namespace kiln::runner {

// Launches twice, in guarded buffers (guarded_buffer.h), outputs and workspace filled with one
// poison and then with another, so that no value a kernel forgot to write is right both times.
//   kOutOfBounds   a guard zone or an input was written
//   kWrongResult   an output differs (tolerance.h) or was left unwritten
// A workload with symbols is verified at all its sizes (workload_case.h).
// The log says the first bad place. kUnavailable: no memory for it.
Result<Verified> verify(const Kernel& kernel, WorkloadCase& workload, ThreadPool& pool,
                        const Alive& alive);

}  // namespace kiln::runner
