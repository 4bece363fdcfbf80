// The source of what the bench runner itself runs on a GPU: random inputs, the reference, guards,
// comparison (worker/runner/cuda/instruments). The worker compiles it once for its device and hands the cubin
// to each runner it starts.
#pragma once

#include "compiler_core/codegen/lower.h"

namespace kiln {

// Its recipe is empty: entries are launched by name, see worker/runner/cuda/device_instruments.h.
Source instruments_source();

}  // namespace kiln
