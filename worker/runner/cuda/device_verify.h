// Verification on a GPU: is a loaded kernel right, and does it keep to its own memory? What
// worker/runner/cpu/verify.h does on the host, with the elements never leaving the device.
#pragma once

#include "compiler_core/runtime/cuda_kernel.h"
#include "worker/runner/cpu/verify.h"
#include "worker/runner/cuda/device_case.h"

namespace kiln::runner {

// Launches twice, in guarded memory, outputs and workspace filled with one poison and then with
// another, so that no value a kernel forgot to write is right both times.
//   kOutOfBounds    a guard zone, an input or memory of the runner was written, or the launch
//                   faulted on an address
//   kWrongResult    an output differs (tolerance.h), was left unwritten, or the kernel did what no
//                   kernel may (a misaligned access, an illegal instruction)
//   kCompileFailed  the driver refuses to launch it
//   kRunnerDied     the launch failed in another way
// A workload with symbols is verified at all its sizes (device_case.h).
// The log says the first bad place. After a fault the device is lost to this process
// (CudaDevice::is_lost). After any verdict but kOk the case has its inputs and guards back;
// `intact` is false when its expected outputs were damaged: the caller makes another.
// kUnavailable: no memory for it.
Result<Verified> verify(const CudaKernel& kernel, UtilityKernels& utility, DeviceCase& workload,
                        const Alive& alive, bool& intact);

// What a launch that failed says of the kernel.
Verified judge_fault(const CudaDevice& device, const Error& error);

}  // namespace kiln::runner
