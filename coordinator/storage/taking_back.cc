// StorageExecutor's side of results that are taken back: found, ended where they are at work,
// removed, and published to clients, in that order. What the core knew of them is gone before the
// store is asked, so that nothing made with them is written behind the removal.
#include <algorithm>

#include "compiler_core/base/clock.h"
#include "coordinator/storage/storage_executor.h"

namespace kiln {

void StorageExecutor::planned(PlanFinished& plan) {
  const auto issue = [this, now_ms = unix_ms()](Program& program) {
    program.serial = ++serial_;
    program.made_at_ms = now_ms;
  };
  if (plan.program) issue(*plan.program);
  for (PlannedAlternative& alternative : plan.alternatives) issue(alternative.program);
  needed_.planned(loop_.now_ms(), plan);
}

void StorageExecutor::take_back(const TakeBack& what, const TookBack& done,
                                const Store::Noted& act) {
  store_.would_take_back(what, [this, what, done, act](const Result<TakenBack>& found) {
    loop_.post([this, what, done, act, found] {
      if (!found) return done(fail(found.error()));
      begin_taking_back(what, *found, done, act);
    });
  });
}

void StorageExecutor::begin_taking_back(const TakeBack& what, const TakenBack& found, TookBack done,
                                        const Store::Noted& act) {
  TakingBackBegan began;
  began.programs.insert(found.programs.begin(), found.programs.end());
  began.programs.insert(what.programs.begin(), what.programs.end());
  began.kernels.insert(found.kernels.begin(), found.kernels.end());
  if (!what.worker.empty()) began.workers.insert(what.worker);
  if (!what.owner.empty()) began.owners.insert(what.owner);
  began.everything = what.means_reports() && what.worker.empty() && what.owner.empty();
  loop_.step(std::move(began));
  const auto ended = [this, done = std::move(done)](const Result<TakenBack>& taken) {
    loop_.step(TakingBackEnded{});
    done(taken);
  };
  remove(what, ended, act);
}

// Removes what is meant, and publishes the list that revokes it.
void StorageExecutor::remove(const TakeBack& what, TookBack done, const Store::Noted& act) {
  const auto took = [this, done = std::move(done)](const Result<TakenBack>& taken) {
    // Read here, on the writer's thread: the loop would wait for the store.
    const auto revoked = taken ? store_.revocations() : fail(taken.error());
    loop_.post([this, done, taken, revoked] {
      if (taken) drop_from_memory(*taken);
      if (revoked) (void)revoked_.update(*revoked, signer_);
      if (taken && !revoked)
        loop_.log(LogLine("revocations", LogLine::Level::kWarning)
                      .add("state", "unreadable")
                      .add("reason", revoked.error().message));
      done(taken);
    });
  };
  store_.take_back(what, ++serial_, took, act);
}

// Programs that are stored with the kernel are of older templates: its winner is not decided.
void StorageExecutor::withdraw(const WithdrawKernel& action) {
  TakeBack what;
  what.kernels = {action.kernel};
  what.keep_records = true;
  remove(what, [this, action](const Result<TakenBack>& taken) {
    LogLine line("kernel", LogLine::Level::kWarning);
    line.add("key", action.kernel.short_hex()).add("state", "withdrawn");
    if (!taken) line.add("not_revoked", taken.error().message);
    loop_.log(line);
    loop_.step(KernelWithdrawn{action.ticket, ++serial_});
  });
}

// All manifests: those in memory say the old serial of the list.
void StorageExecutor::drop_from_memory(const TakenBack& taken) {
  ++times_taken_back_;
  for (const Digest& program : taken.programs) kept_.stored(program);
  for (const Digest& blob : taken.blobs) memory_.remove(blob);
  manifests_.clear();
}

Status StorageExecutor::read_revocations() {
  TRY(const std::vector<Revocation> all, store_.revocations());
  (void)revoked_.update(all, signer_);
  return {};
}

}  // namespace kiln
