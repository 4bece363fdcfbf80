// AdminDesk: carries out what operators ask for while the coordinator serves: programs pinned and
// unpinned, the cache collected, workers drained. Each request has one reply, when it is done. One
// thread, the loop's; everything it is given outlives it.
#pragma once

#include <functional>
#include <memory>

#include "cache/kernel_cache.h"
#include "coordinator/core/events.h"
#include "coordinator/inbox.h"
#include "coordinator/log_line.h"
#include "schema/zmq/transport.h"

namespace kiln {

class AdminDesk {
 public:
  struct Loop {
    Inbox& inbox;
    std::function<void(Event)> step;
    std::function<Stats()> stats;  // which workers there are, how many queued programs failed
    std::function<void()> forget_failed;
    std::function<void(const PeerId&, const AdminReply&)> reply;
    std::function<void(const LogLine&)> log;  // operators' requests leave a trace
  };
  AdminDesk(KernelCache& cache, Loop loop)
      : cache_(cache), loop_(std::make_shared<const Loop>(std::move(loop))) {}

  // REQUIRES: the peer may ask for it.
  void handle(const PeerId& peer, const AdminRequest& request);

 private:
  void pin(const PeerId& peer, const AdminRequest& request);
  void collect(const PeerId& peer, const AdminRequest& request);
  void drain(const PeerId& peer, const AdminRequest& request);
  void forget_failed(const PeerId& peer, const AdminRequest& request);

  KernelCache& cache_;
  const std::shared_ptr<const Loop> loop_;  // what the cache's writer finishes may outlive the desk
};

}  // namespace kiln
