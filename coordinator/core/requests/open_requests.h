// OpenRequests: the requests that wait for an answer, by client and by share. Bounded together and
// for each share. Plain value; one thread.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "coordinator/core/requests/program_flight.h"

namespace kiln {

class OpenRequests {
 public:
  explicit OpenRequests(const CoreOptions& options) : options_(options) {}

  // Whether one more of `share` would exceed a bound.
  bool full(const ShareId& share) const;
  void add(const RequestId& id, const ShareId& share, const Digest& program);
  void remove(const RequestId& id);               // REQUIRES: it is open
  const Digest* find(const RequestId& id) const;  // the program it waits for
  std::vector<RequestId> of_client(const ClientId& client) const;
  ShareId share_of(const ClientId& client) const;  // REQUIRES: a request of its is open
  int count() const { return count_; }

 private:
  struct Client {
    ShareId share;
    std::map<uint64_t, Digest> requests;  // not empty
  };
  const CoreOptions& options_;
  std::unordered_map<ClientId, Client> clients_;
  std::unordered_map<ShareId, int> of_share_;  // no zeros
  int count_ = 0;
};

}  // namespace kiln
