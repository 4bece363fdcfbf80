// The one table of what failures are: DESIGN §9. Terminal: it follows from the candidate, the graph
// or the request, so trying again gives the same; remembered with the key. Transient: the fleet's,
// a store's or a moment's; tried again elsewhere, and remembered, if at all, with its age.
//
//   ok: none
//   compile_failed, wrong_result, out_of_bounds: terminal
//   timed_out, runner_died: transient, then set aside, and no longer called the fleet's
//   device_lost: transient, the worker's
//
//   invalid_argument (for who sent it), unsupported, internal: terminal
//   corruption (evicted, made anew), overloaded, unavailable, deadline_exceeded: transient
//   not_found (a miss under --check), permission_denied (the asker's): none
#pragma once

#include "compiler_core/base/result.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

enum class FailureClass : uint8_t { kNone, kTerminal, kTransient };

FailureClass failure_class(Verdict verdict);
FailureClass failure_class(Code code);

}  // namespace kiln
