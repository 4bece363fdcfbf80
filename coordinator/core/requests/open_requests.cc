#include "coordinator/core/requests/open_requests.h"

#include "coordinator/core/mutation.h"

namespace kiln {

bool OpenRequests::full(const TenantId& tenant) const {
  if (mutated(Mutation::kNoBounds)) return false;
  const auto theirs = of_tenant_.find(tenant);
  return count_ >= options_.max_open_requests ||
         (theirs != of_tenant_.end() && theirs->second >= options_.max_open_requests_a_client &&
          !mutated(Mutation::kNoTenantBound));
}

void OpenRequests::add(const RequestId& id, const TenantId& tenant, const Digest& program) {
  Client& client = clients_[id.first];
  if (client.requests.empty()) client.tenant = tenant;
  client.requests.emplace(id.second, program);
  ++of_tenant_[client.tenant];
  ++count_;
}

void OpenRequests::remove(const RequestId& id) {
  const auto client = clients_.find(id.first);
  const auto theirs = of_tenant_.find(client->second.tenant);
  if (--theirs->second == 0) of_tenant_.erase(theirs);
  client->second.requests.erase(id.second);
  if (client->second.requests.empty()) clients_.erase(client);
  --count_;
}

void OpenRequests::move(const RequestId& id, const Digest& program) {
  clients_.at(id.first).requests.at(id.second) = program;
}

const Digest* OpenRequests::find(const RequestId& id) const {
  const auto client = clients_.find(id.first);
  if (client == clients_.end()) return nullptr;
  const auto request = client->second.requests.find(id.second);
  return request == client->second.requests.end() ? nullptr : &request->second;
}

std::vector<RequestId> OpenRequests::of_client(const ClientId& client) const {
  std::vector<RequestId> ids;
  if (const auto found = clients_.find(client); found != clients_.end())
    for (const auto& [request, program] : found->second.requests) ids.emplace_back(client, request);
  return ids;
}

TenantId OpenRequests::tenant_of(const ClientId& client) const {
  return clients_.at(client).tenant;
}

}  // namespace kiln
