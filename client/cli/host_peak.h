// How fast this machine is: what a CPU kernel's floor is computed from.
#pragma once

#include "compiler_core/tune/device_peak.h"

namespace kiln::cli {

// `target`: a CPU. For this machine's own, memory is measured by copying, which takes about a tenth
// of a second; of another one only the arithmetic is known, by this one's clock.
DevicePeak host_peak(const Target& target);

}  // namespace kiln::cli
