// BytesInFlight: objects that are put all at once, and waited for together. One thread puts and
// waits; answers come on any. It may go before the last answer comes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "cache/objects/object_store.h"
#include "compiler_core/base/digest.h"

namespace kiln {

class BytesInFlight {
 public:
  // The callback for an ObjectStore's answer about this blob.
  Then<void> hearing(const Digest& digest) {
    const std::scoped_lock lock(state_->mu);
    ++state_->under_way;
    return [state = state_, digest](Status status) {
      const std::scoped_lock heard(state->mu);
      state->outcomes[digest] = std::move(status);
      --state->under_way;
      state->landed.notify_all();
    };
  }
  // Waits for all; how each went.
  std::map<Digest, Status> land() {
    std::unique_lock lock(state_->mu);
    state_->landed.wait(lock, [this] { return state_->under_way == 0; });
    return state_->outcomes;
  }

 private:
  struct State {
    std::mutex mu;
    std::condition_variable landed;
    int under_way = 0;
    std::map<Digest, Status> outcomes;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace kiln
