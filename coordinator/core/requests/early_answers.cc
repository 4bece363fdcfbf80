// CompileRequests's side of `default` programs that are answered as soon as they are built: who takes
// one, how it goes on behind the answer, and what follows when a kernel of it is found wrong.
//
// Such a program is in no store and in no table of the shell, so it ends with this incarnation; its
// manifest says of each kernel whether it is verified. Whoever asks while its kernels are verified
// joins the task and gets it from here, so the same audience, the same keys and the same trust
// decide as for the stored one (TuningTask::early()).
#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"

namespace kiln {

// A check asks what is stored, and who wants the program queued waits for nothing.
bool CompileRequests::takes_early(const CompileTask::Waiter& waiter) {
  return (waiter.early || mutated(Mutation::kEarlyToAll)) && !waiter.check_only && !waiter.detach;
}

// After the plan: kernels that another program needs too may be built already.
void CompileRequests::await_builds(CompileTask& task) {
  for (const Digest& kernel : task.pending) {
    const TuningTask* tuning = scheduler_.find(kernel);
    if (tuning == nullptr || !tuning->early()) task.unbuilt.insert(kernel);
  }
}

void CompileRequests::kernels_built(int64_t now_ms, Actions& out) {
  for (const Digest& kernel : scheduler_.take_refuted()) withdraw_kernel(now_ms, kernel, out);
  for (const Digest& key : scheduler_.take_built()) {
    const TuningTask* kernel = scheduler_.find(key);
    if (kernel == nullptr) continue;
    const auto programs = kernel->programs();
    for (const auto& [program, tenants] : programs)
      if (CompileTask* task = find(program)) kernel_built(now_ms, *task, key, out);
  }
}

void CompileRequests::kernel_built(int64_t now_ms, CompileTask& task, const Digest& kernel,
                                   Actions& out) {
  if (mutated(Mutation::kKeepRefuted) && !task.early_json.empty()) return;
  task.early_json.clear();
  if (std::ranges::find(task.pending, kernel) == task.pending.end()) return;
  if (scheduler_.find(kernel)->early())
    task.unbuilt.erase(kernel);
  else
    task.unbuilt.insert(kernel);
  answer_early(now_ms, task, out);
}

// False: a kernel of it has changed in this step, and is heard of next.
bool CompileRequests::make_early(CompileTask& task) const {
  Program early = task.program;
  for (ProgramKernel& kernel : early.kernels) {
    if (std::ranges::find(task.pending, kernel.key) == task.pending.end()) continue;
    auto built = scheduler_.find(kernel.key)->early();
    if (!built) return false;
    kernel = *std::move(built);
  }
  task.early_json = program_to_json(early);
  return true;
}

// Whoever takes the program as it is now.
void CompileRequests::answer_early(int64_t now_ms, CompileTask& task, Actions& out) {
  const bool is_built = task.stage == Stage::kTuning && task.mode == Mode::kDefault &&
                        task.unbuilt.empty() && task.withdrawing.empty() && !task.pending.empty();
  if (!is_built && !(mutated(Mutation::kKeepRefuted) && !task.early_json.empty())) return;
  std::vector<RequestId> takers;
  for (const auto& [id, waiter] : task.waiters)
    if (takes_early(waiter) && task.audience.admits(waiter.viewer)) takers.push_back(id);
  if (takers.empty()) return;
  if (task.early_json.empty() && !make_early(task)) return;
  for (const Digest& kernel : task.pending) scheduler_.hand_out(now_ms, kernel, out);
  task.is_verifying = true;
  for (const RequestId& id : takers) {
    CompileReply reply;
    reply.outcome = id == task.starter ? CacheOutcome::kTuned : CacheOutcome::kJoined;
    reply.program_json = task.early_json;
    ++answered_early_;
    send(task, id, std::move(reply), out, true);
  }
  tenants_changed(task);
}

// The programs that need it get its next choice, under a serial that the revocation does not cover.
// A program that holds a winner of an earlier search for the kernel ends: that winner is revoked too.
void CompileRequests::withdraw_kernel(int64_t now_ms, const Digest& kernel, Actions& out) {
  if (mutated(Mutation::kNeverWithdraw)) return;
  const uint64_t ticket = ++withdrawals_;
  out.push_back(WithdrawKernel{kernel, ticket});
  std::vector<Digest> made_with;
  for (const auto& [key, task] : tasks_)
    if (task.stage == Stage::kTuning &&
        std::ranges::find(task.pending, kernel) == task.pending.end() &&
        std::ranges::find(task.program.kernels, kernel, &ProgramKernel::key) !=
            task.program.kernels.end())
      made_with.push_back(key);
  for (const Digest& key : made_with)
    fail_task(now_ms, *find(key),
              overloaded("a kernel that it was made with turned out to be wrong: ask again"), out);
  const TuningTask* tuning = scheduler_.find(kernel);
  if (tuning == nullptr) return;
  const auto programs = tuning->programs();
  for (const auto& [program, tenants] : programs) {
    CompileTask* task = find(program);
    CHECK(task != nullptr, "a tuning task's programs are open");
    if (!mutated(Mutation::kOldSerial)) {
      task->withdrawing.insert(ticket);
      withdrawn_[ticket].push_back(program);
    }
    task->provisional = {};  // an older program with the same kernel is revoked too
    task->is_verifying = false;
    if (!wanted(*task)) end_unless_busy(*task);
  }
}

void CompileRequests::kernel_withdrawn(int64_t now_ms, const KernelWithdrawn& event, Actions& out) {
  auto waiting = withdrawn_.extract(event.ticket);
  if (waiting.empty()) return;
  for (const Digest& key : waiting.mapped()) {
    CompileTask* task = find(key);
    if (task == nullptr || task->withdrawing.erase(event.ticket) == 0) continue;
    task->program.serial = std::max(task->program.serial, event.serial);
    if (!task->withdrawing.empty()) continue;
    if (task->pending.empty())
      kernels_done(now_ms, *task, out);
    else
      answer_early(now_ms, *task, out);
  }
}

}  // namespace kiln
