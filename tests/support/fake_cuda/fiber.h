// Switching between stacks of one OS thread, without a system call. x86-64 System V; the floating
// point modes are not part of a fiber's state.
#pragma once

namespace kiln::testing {

// Leaves the running stack, whose resting place goes to *from, and goes on at `to`: another one's
// resting place.
extern "C" void kiln_fake_switch(void** from, void* to);

// The second half of kiln_fake_switch, for a signal handler to go on at: with the stack pointer at
// a resting place it pops what was saved there and returns. Never called.
extern "C" void kiln_fake_resume();

// The resting place of a fresh stack of `bytes` at `memory` that runs `function()` when switched
// to. `function` never returns; it switches away for good.
void* fresh_stack(char* memory, long bytes, void (*function)());

}  // namespace kiln::testing
