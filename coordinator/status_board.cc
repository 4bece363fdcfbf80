#include "coordinator/status_board.h"

namespace kiln {

std::string_view to_string(FlightStage stage) {
  switch (stage) {
    case FlightStage::kLookingUp:
      return "looking_up";
    case FlightStage::kWaitGraph:
      return "wait_graph";
    case FlightStage::kPlanning:
      return "planning";
    case FlightStage::kTuning:
      return "tuning";
    case FlightStage::kStoring:
      return "storing";
  }
  return "";
}

void StatusBoard::publish(StatusSnapshot snapshot) {
  auto next = std::make_shared<const StatusSnapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  if (next->stats.store_failures > latest_->stats.store_failures) store_failed_ = Clock::now();
  latest_.swap(next);  // the former one goes after the lock, or with its last reader
}

double StatusBoard::stalled_s(Clock::time_point now) const {
  const Clock::time_point turned = turned_;
  if (turned == Clock::time_point{} || turned > now) return 0;
  return std::chrono::duration<double>(now - turned).count();
}

std::shared_ptr<const StatusSnapshot> StatusBoard::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

bool StatusBoard::store_failed_within(Clock::time_point now, Clock::duration window) const {
  const std::lock_guard lock(mutex_);
  return store_failed_ != Clock::time_point{} && now - store_failed_ <= window;
}

}  // namespace kiln
