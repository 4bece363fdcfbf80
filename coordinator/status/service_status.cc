#include "coordinator/status/service_status.h"

namespace kiln {

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
