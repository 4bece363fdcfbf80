#include "coordinator/status/service_status.h"

#include "compiler_core/base/result.h"

namespace kiln {

std::map<std::string, int64_t> every_outcome() {
  std::map<std::string, int64_t> outcomes{{"tuned", 0}, {"joined", 0}, {"abandoned", 0}};
  for (auto code = static_cast<uint8_t>(Code::kInvalidArgument);
       code <= static_cast<uint8_t>(Code::kInternal); ++code)
    outcomes.emplace(to_string(static_cast<Code>(code)), 0);
  return outcomes;
}

std::string_view to_string(TaskStage stage) {
  switch (stage) {
    case TaskStage::kLookingUp:
      return "looking_up";
    case TaskStage::kWaitGraph:
      return "wait_graph";
    case TaskStage::kPlanning:
      return "planning";
    case TaskStage::kTuning:
      return "tuning";
    case TaskStage::kStoring:
      return "storing";
  }
  return "";
}

void ServiceStatus::publish(StatusSnapshot snapshot) {
  auto next = std::make_shared<const StatusSnapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  if (next->stats.store_failures > latest_->stats.store_failures) store_failed_ = Clock::now();
  latest_.swap(next);  // the former one goes after the lock, or with its last reader
}

double ServiceStatus::stalled_s(Clock::time_point now) const {
  const Clock::time_point turned = turned_;
  if (turned == Clock::time_point{} || turned > now) return 0;
  return std::chrono::duration<double>(now - turned).count();
}

std::shared_ptr<const StatusSnapshot> ServiceStatus::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

bool ServiceStatus::store_failed_within(Clock::time_point now, Clock::duration window) const {
  const std::lock_guard lock(mutex_);
  return store_failed_ != Clock::time_point{} && now - store_failed_ <= window;
}

}  // namespace kiln
