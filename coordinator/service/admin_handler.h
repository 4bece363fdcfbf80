// AdminHandler: carries out what operators ask of a serving coordinator: pins and unpins programs,
// collects the cache, drains workers, forgets failures. Each request gets one reply, when it is
// done. One thread, the loop's; everything it is given outlives it, and the loop also outlives the
// store's writer, which may finish a request after the handler is gone. Each act is in the audit
// trail before it is answered.
#pragma once

#include <functional>

#include "cache/store.h"
#include "coordinator/core/core.h"
#include "coordinator/event_loop.h"
#include "coordinator/storage/audit_trail.h"
#include "coordinator/storage/storage_executor.h"
#include "schema/zmq/transport.h"

namespace kiln {

class AdminHandler {
 public:
  using Reply = std::function<void(const PeerId&, const AdminReply&)>;  // on the loop's thread
  AdminHandler(Store& store, StorageExecutor& storage, const Core& core, EventLoop& loop,
               AuditTrail& trail, Reply reply)
      : store_(store), storage_(storage), core_(core), answers_{loop, trail, std::move(reply)} {}

  struct Asked {
    PeerId peer;
    std::string who;  // the name of its key; empty: there are none
    AdminRequest request;
  };
  // REQUIRES: the peer may ask for it.
  void handle(const Asked& asked);

  // How an answer goes out. Copied into what the store's writer calls.
  struct Answers {
    EventLoop& loop;
    AuditTrail& trail;
    Reply reply;
  };

 private:
  void pin(const Asked& asked);
  void collect(const Asked& asked);
  void drain(const Asked& asked);
  void forget(const Asked& asked);
  void cancel_detached(const Asked& asked);
  void forget_failed(const Asked& asked);
  void tune_log(const Asked& asked);

  Store& store_;
  StorageExecutor& storage_;
  const Core& core_;
  const Answers answers_;
};

}  // namespace kiln
