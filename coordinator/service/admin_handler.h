// AdminHandler: carries out what operators ask of a serving coordinator: pins and unpins programs,
// collects the cache, drains workers, forgets failures. Each request gets one reply, when it is
// done. One thread, the loop's; everything it is given outlives it, and the loop also outlives the
// cache's writer, which may finish a request after the handler is gone.
#pragma once

#include <functional>

#include "cache/kernel_cache.h"
#include "coordinator/core/core.h"
#include "coordinator/event_loop.h"
#include "coordinator/status/act_log.h"
#include "coordinator/storage/storage_executor.h"
#include "schema/zmq/transport.h"

namespace kiln {

class AdminHandler {
 public:
  using Reply = std::function<void(const PeerId&, const AdminReply&)>;  // on the loop's thread
  AdminHandler(KernelCache& cache, StorageExecutor& store, const Core& core, EventLoop& loop,
               ActLog& acts, Reply reply)
      : cache_(cache), store_(store), core_(core), answers_{loop, acts, std::move(reply)} {}

  struct Asked {
    PeerId peer;
    std::string who;  // the name of its key; empty: there are none
    AdminRequest request;
  };
  // REQUIRES: the peer may ask for it.
  void handle(const Asked& asked);

  // How an answer goes out. Copied into what the cache's writer calls.
  struct Answers {
    EventLoop& loop;
    ActLog& acts;
    Reply reply;
  };

 private:
  void pin(const Asked& asked);
  void collect(const Asked& asked);
  void drain(const Asked& asked);
  void forget(const Asked& asked);
  void cancel_detached(const Asked& asked);
  void forget_failed(const Asked& asked);

  KernelCache& cache_;
  StorageExecutor& store_;
  const Core& core_;
  const Answers answers_;
};

}  // namespace kiln
