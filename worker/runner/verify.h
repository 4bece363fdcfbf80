// Verification: is a loaded kernel right, and does it keep to its own memory? Runs code that nobody
// trusts yet; the caller is a process that may die of it.
#pragma once

#include "worker/runner/prepared_workload.h"
#include "worker/runner/protocol.h"
#include "worker/runner/timing.h"

namespace kiln::runner {

// Launches twice, in guarded memory, outputs and workspace filled with one poison and then with
// another, so that no value a kernel forgot to write is right both times.
//   kOutOfBounds    a guard zone, an input or memory of the runner was written, or the launch
//                   faulted on an address
//   kWrongResult    an output differs (tolerance.h), was left unwritten, or the kernel did what no
//                   kernel may (a misaligned access, an illegal instruction)
//   kCompileFailed  the driver refuses to launch it
//   kRunnerDied     the launch failed in another way
// A workload with symbols is verified at all its sizes (prepared_workload.h).
// The log says the first bad place. After a fault the device is lost to this process
// (Device::is_lost). After any verdict but kOk the workload has its inputs and guards back;
// `intact` is false when its expected outputs were damaged: the caller prepares another.
// kUnavailable: no memory for it.
Result<Verified> verify(const LoadedKernel& kernel, EvaluationDevice& device,
                        PreparedWorkload& workload, const Alive& alive, bool& intact);

// The bytes that the last of so many launches left in each output, which held a poison before the
// first. An error names what the launch failed of; kUnsupported: more bytes than kMaxJudgedBytes.
Result<std::vector<std::string>> launch_for_outputs(const LoadedKernel& kernel,
                                                    EvaluationDevice& device,
                                                    PreparedWorkload& workload, uint64_t launches);
// Whether `outputs` are the workload's: kOk or kWrongResult, as verify() says it.
Result<Verified> judge_outputs(EvaluationDevice& device, PreparedWorkload& workload,
                               std::span<const std::string> outputs);

}  // namespace kiln::runner
