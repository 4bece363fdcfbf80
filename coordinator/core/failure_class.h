// The one table of what failures are: DESIGN §9. Terminal: it follows from the candidate, the graph
// or the request, so trying again gives the same; remembered with the key. Transient: the fleet's,
// a store's or a moment's; tried again elsewhere, and remembered, if at all, with its age.
//
//   Verdict          class                      | Code                 class
//   ok               none                       | invalid_argument     terminal (for who sent it)
//   compile_failed   terminal                   | not_found            none (a miss under --check)
//   wrong_result     terminal                   | unsupported          terminal
//   out_of_bounds    terminal                   | internal             terminal
//   timed_out        transient, then set aside  | corruption           transient (evicted, made
//   anew) runner_died      transient, then set aside  | overloaded           transient device_lost
//   transient: the worker's    | unavailable          transient
//                                               | deadline_exceeded    transient
//                                               | permission_denied    none (the asker's)
#pragma once

#include "compiler_core/base/result.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

enum class FailureClass : uint8_t { kNone, kTerminal, kTransient };

FailureClass failure_class(Verdict verdict);
FailureClass failure_class(Code code);

}  // namespace kiln
