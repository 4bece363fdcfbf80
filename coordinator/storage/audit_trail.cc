#include "coordinator/storage/audit_trail.h"

#include <utility>

namespace kiln {

AdminAct AuditTrail::begin(std::string who, std::string request) const {
  return act_of_now(coordinator_, std::move(who), std::move(request));
}

void AuditTrail::was_noted(const AdminAct& act) {
  ++count_;
  LogLine line("admin");
  line.add("request", act.request).add("outcome", act.outcome);
  if (!act.who.empty()) line.add("user", act.who);
  loop_.log(line);
}

void AuditTrail::wait(AdminAct act) {
  waiting_.push_front(std::move(act));
  if (waiting_.size() > kMostWaiting) waiting_.pop_back();
}

void AuditTrail::note(const AdminAct& act, std::function<void()> then) {
  was_noted(act);
  store_.note(act, [this, act, then = std::move(then)](const Status& status) {
    loop_.post([this, act, then, noted = status.has_value()] {
      if (!noted) wait(act);
      if (then) then();
    });
  });
}

// The oldest one finds out whether the store takes them.
void AuditTrail::tick() {
  if (waiting_.empty() || std::exchange(tries_again_, true)) return;
  const AdminAct oldest = waiting_.back();
  store_.note(oldest, [this, oldest](const Status& status) {
    loop_.post([this, oldest, noted = status.has_value()] {
      tries_again_ = false;
      if (!noted) return;
      if (!waiting_.empty() && waiting_.back() == oldest) waiting_.pop_back();
      tick();
    });
  });
}

}  // namespace kiln
