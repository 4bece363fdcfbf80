// AdminHandler: carries out what operators ask of a serving coordinator: pins and unpins programs,
// collects the cache, drains workers, forgets failures. Each request gets one reply, when it is
// done. One thread, the loop's; everything it is given outlives it, and the loop also outlives the
// cache's writer, which may finish a request after the handler is gone.
#pragma once

#include <functional>

#include "cache/kernel_cache.h"
#include "coordinator/core/core.h"
#include "coordinator/event_loop.h"
#include "coordinator/storage/storage_executor.h"
#include "schema/zmq/transport.h"

namespace kiln {

class AdminHandler {
 public:
  using Reply = std::function<void(const PeerId&, const AdminReply&)>;  // on the loop's thread
  AdminHandler(KernelCache& cache, StorageExecutor& store, const Core& core, EventLoop& loop,
               Reply reply)
      : cache_(cache), store_(store), core_(core), loop_(loop), reply_(std::move(reply)) {}

  // REQUIRES: the peer may ask for it.
  void handle(const PeerId& peer, const AdminRequest& request);

 private:
  void pin(const PeerId& peer, const AdminRequest& request);
  void collect(const PeerId& peer, const AdminRequest& request);
  void drain(const PeerId& peer, const AdminRequest& request);
  void forget_failed(const PeerId& peer, const AdminRequest& request);

  KernelCache& cache_;
  StorageExecutor& store_;
  const Core& core_;
  EventLoop& loop_;
  const Reply reply_;  // copied into what the cache's writer calls
};

}  // namespace kiln
