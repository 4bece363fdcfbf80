// OpenRequests: the requests that wait for an answer, by client and by tenant; bounded in total and
// for each tenant. Plain value; one thread.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "coordinator/core/requests/compile_task.h"

namespace kiln {

class OpenRequests {
 public:
  explicit OpenRequests(const CoreOptions& options) : options_(options) {}

  // Whether one more request of `tenant` would exceed a bound.
  bool full(const TenantId& tenant) const;
  void add(const RequestId& id, const TenantId& tenant, const Digest& program);
  void remove(const RequestId& id);                       // REQUIRES: it is open
  void move(const RequestId& id, const Digest& program);  // to wait for; REQUIRES: it is open
  const Digest* find(const RequestId& id) const;          // the program it waits for
  std::vector<RequestId> of_client(const ClientId& client) const;
  TenantId tenant_of(const ClientId& client) const;  // REQUIRES: one of its requests is open
  int count() const { return count_; }

 private:
  struct Client {
    TenantId tenant;
    std::map<uint64_t, Digest> requests;  // not empty
  };
  const CoreOptions& options_;
  std::unordered_map<ClientId, Client> clients_;
  std::unordered_map<TenantId, int> of_tenant_;  // no zeros
  int count_ = 0;
};

}  // namespace kiln
