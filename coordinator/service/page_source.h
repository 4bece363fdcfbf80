// PageSource: a running service as its web page sees it. Thread-safe; each call may take until the
// loop or the disk answers, so none of them is for the loop's own thread.
#pragma once

#include <string>

#include "cache/store.h"
#include "coordinator/page/snapshot.h"
#include "schema/keys/keyring.h"
#include "schema/messages.h"

namespace kiln {

class PageSource {
 public:
  virtual ~PageSource() = default;
  // The loop's copy of what it knows; sees_details is the caller's to set. kUnavailable when the
  // loop does not answer.
  virtual Result<page::Snapshot> snapshot() = 0;
  // Reads of it never wait for the loop.
  virtual Store& store() = 0;
  virtual const Keyring* keyring() const = 0;  // null: no keys are taken
  virtual const std::string& endpoint() const = 0;
  // Carries out what an operator asked for, and waits for it; its AdminAct says what came of it.
  virtual Status act(AdminRequest request, const std::string& who) = 0;
};

}  // namespace kiln
