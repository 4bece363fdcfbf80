// Core: the coordinator's decisions as a pure state machine. No I/O, no clock, no threads, no
// randomness: step(now, event) changes the state and returns what the shell (service.h) should do.
// One thread. Every event may come twice, late or out of order without harm.
//
// A compile task is the work for one ProgramKey; everybody who asks for the program waits for the
// same task. It waits for tuning tasks, one per KernelKey, which programs share.
//
//   compile task:  looking_up -> wait_graph -> planning -> tuning -> storing -> answered
//   tuning task:   screening -> [rebuilding -> finals] -> storing -> done | failed
//
// A request with `now` may go from one compile task to another (requests/tier0_answers.cc).
//
// compile_task.h and tuning_task.h name the function behind each transition. CompileRequests holds
// the former; TuningScheduler holds the latter, the leases and the workers; core.cc routes events.
// Invariants, checked by the simulation after every step:
//  1. at most one accepted winner per kernel key and epoch; results under a stale epoch, including
//     that of a lease of an earlier incarnation, are acknowledged and change nothing;
//  2. every accepted request ends in exactly one answer, whatever dies (a client that cancels or
//     goes away asked for none);
//  3. a finished measurement, one whose record is durable, is never repeated because of a crash;
//  4. no queue exceeds its bound: beyond it a request is answered `overloaded`;
//  5. "stored" is answered only after the store confirmed it, or after it failed and said so (the
//     program is still returned);
//  6. what is answered as queued is durable then, and goes on in every later incarnation until its
//     program is stored or has failed for a reason of its own;
//  7. a worker that drains, or whose device failed, gets no new work;
//  8. no candidate kills more than max_runner_deaths runners in one tuning (one more, where its
//     last two died in one final: the common runner and then its own).
#pragma once

#include <memory>

#include "coordinator/core/events.h"
#include "coordinator/core/open_program.h"

namespace kiln {

class Core {
 public:
  explicit Core(const CoreOptions& options);
  ~Core();
  // `now_ms` never goes back (the shell's monotonic clock).
  std::vector<Action> step(int64_t now_ms, const Event& event);
  // Events own what they carry: binaries and graphs are moved, not copied.
  std::vector<Action> step(int64_t now_ms, Event&& event);
  // The target to compile for when a request names `target`: `target` itself, unless it
  // names_no_device() and a worker can run it. Changes as workers come and go.
  Target resolve(const Target& target) const;
  bool is_open(const ClientId& client, uint64_t request) const;  // not answered yet
  // Names the programs that `viewer` may see; numbers are of all. Entries, bytes and uptime are the
  // shell's to fill in.
  Stats stats(int64_t now_ms,
              const Viewer& viewer = {.user = {}, .team = {}, .sees_all = true}) const;
  // Up to `limit` of everybody's programs that are being worked on, the oldest first. O(programs).
  std::vector<OpenProgram> open_programs(int64_t now_ms, size_t limit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln
