// Follower: a coordinator while another one leads. It answers look-ups of what is stored in the
// PostgreSQL and the object store that they share, and blobs, from memory and from there; whatever
// else it is asked for is kUnavailable, and its Welcome says that it follows, so that clients who name
// several coordinators ask the one that leads. One thread runs its loop, another one asks the store
// once a second what was taken back.
//
// A program in memory is answered without asking the store for a second; then the store is asked
// again. What was taken back, evicted or replaced is answered for no longer, unless the store is
// away: then memory goes on answering.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/service.h"

namespace kiln {

class Follower {
 public:
  // Uses of `options` what a Service does, but for the data directory's own stores. Errors as
  // Service::start(), but that a store that does not answer is none.
  static Result<std::unique_ptr<Follower>> start(const ServiceOptions& options);
  ~Follower();  // its port is free by then

  const std::string& endpoint() const;  // with the port that was picked

 private:
  struct Loop;
  explicit Follower(std::unique_ptr<Loop> loop);
  const std::unique_ptr<Loop> loop_;
};

}  // namespace kiln
