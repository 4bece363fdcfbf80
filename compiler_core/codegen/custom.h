// Sources of users' kernels: the vocabulary, macros for the decisions and sizes, the user's text,
// and the entry that calls the user's function (ir/custom_call.h). Pure.
#pragma once

#include "compiler_core/codegen/lower.h"

namespace kiln {

// REQUIRES: workload.family is kCustom. kUnsupported when the call has no kernel for the target;
// kInvalidArgument when the schedule or what the author's numbers give is out of range.
Result<Source> lower_custom(const Workload& workload, const Schedule& schedule,
                            const Target& target);

}  // namespace kiln
