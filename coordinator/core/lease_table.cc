#include "coordinator/core/lease_table.h"

namespace kiln {
namespace {

template <class Predicate>
std::vector<uint64_t> ids_where(const std::map<uint64_t, Lease>& leases, Predicate holds) {
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases)
    if (holds(lease)) ids.push_back(id);
  return ids;
}

}  // namespace

Lease& LeaseTable::open(Lease lease) {
  lease.id = next_id_++;
  lease.outstanding = lease.candidates;
  ++held_[lease.worker];
  return leases_.emplace(lease.id, std::move(lease)).first->second;
}

Lease* LeaseTable::find(uint64_t id) {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

void LeaseTable::close(uint64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  if (const auto held = held_.find(found->second.worker); --held->second == 0) held_.erase(held);
  leases_.erase(found);
}

std::vector<uint64_t> LeaseTable::of_worker(const WorkerId& worker) const {
  return ids_where(leases_, [&](const Lease& lease) { return lease.worker == worker; });
}

std::vector<uint64_t> LeaseTable::of_kernel(const Digest& kernel) const {
  return ids_where(leases_, [&](const Lease& lease) { return lease.kernel == kernel; });
}

std::vector<uint64_t> LeaseTable::without_progress_since(int64_t time_ms) const {
  return ids_where(leases_, [&](const Lease& lease) { return lease.progress_ms <= time_ms; });
}

int LeaseTable::count(const WorkerId& worker) const {
  const auto held = held_.find(worker);
  return held == held_.end() ? 0 : held->second;
}

}  // namespace kiln
