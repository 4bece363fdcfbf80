// Confirmation: a user's own kernel runs in the process that says whether it is right and how long
// it takes, and can make that process say anything. So what a runner said of a custom kernel is
// confirmed from outside: the kernel launches on inputs that nobody has seen, in a new process that
// holds no results; another process, which never loads it, compares what it left; and the time of
// its launches is read on the worker's clock (launch_clock.h).
#pragma once

#include "worker/jobs/evaluation.h"

namespace kiln {

// Turns `evaluation`, a right one, into what it is if that is not confirmed: kWrongResult, or what
// became of the launch. `runner` is the kernel's, and another process after this.
void confirm(RunnerProcess& runner, const Job& job, const Artifact& artifact,
             Evaluation& evaluation);

// Whether a kernel is to be confirmed: users' own, on the CPU, whose outputs fit a frame. (On a GPU
// no other process sees the memory of the one that launches.)
bool needs_confirmation(const RunnerProcess& runner, const Job& job, const Artifact& artifact);

}  // namespace kiln
