#include "coordinator/core/scheduling/lease_table.h"

namespace kiln {
namespace {

template <class Index, class Key>
std::vector<uint64_t> ids_of(const Index& index, const Key& key) {
  const auto found = index.find(key);
  if (found == index.end()) return {};
  return {found->second.begin(), found->second.end()};
}

template <class Index, class Key>
int count_of(const Index& index, const Key& key) {
  const auto found = index.find(key);
  return found == index.end() ? 0 : static_cast<int>(found->second.size());
}

template <class Index, class Key>
void erase_from(Index& index, const Key& key, uint64_t id) {
  const auto found = index.find(key);
  found->second.erase(id);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

Lease& LeaseTable::open(int64_t now_ms, Lease lease) {
  lease.id = next_id_++;
  lease.outstanding = lease.candidates;
  lease.opened_ms = lease.progress_ms = now_ms;
  held_[lease.worker].insert(lease.id);
  if (lease.kind == Job::Kind::kBuild) {
    builds_[lease.worker].insert(lease.id);
    builds_of_kernel_[lease.kernel].insert(lease.id);
  }
  of_kernel_[lease.kernel].insert(lease.id);
  by_progress_.emplace(now_ms, lease.id);
  return leases_.emplace(lease.id, std::move(lease)).first->second;
}

Lease* LeaseTable::find(uint64_t id) {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

void LeaseTable::close(uint64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  erase_from(held_, found->second.worker, id);
  if (found->second.kind == Job::Kind::kBuild) {
    erase_from(builds_, found->second.worker, id);
    erase_from(builds_of_kernel_, found->second.kernel, id);
  }
  erase_from(of_kernel_, found->second.kernel, id);
  by_progress_.erase({found->second.progress_ms, id});
  leases_.erase(found);
}

void LeaseTable::progressed(int64_t now_ms, Lease& lease) {
  by_progress_.erase({lease.progress_ms, lease.id});
  lease.progress_ms = now_ms;
  by_progress_.emplace(now_ms, lease.id);
}

std::vector<uint64_t> LeaseTable::of_worker(const WorkerId& worker) const {
  return ids_of(held_, worker);
}

std::vector<uint64_t> LeaseTable::of_kernel(const Digest& kernel) const {
  return ids_of(of_kernel_, kernel);
}

std::vector<uint64_t> LeaseTable::without_progress_since(int64_t time_ms) const {
  std::set<uint64_t> ids;
  for (const auto& [progress_ms, id] : by_progress_) {
    if (progress_ms > time_ms) break;
    ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

int LeaseTable::count(const WorkerId& worker) const {
  return count_of(held_, worker) - count_builds(worker);
}

int LeaseTable::count_builds(const WorkerId& worker) const {
  return count_of(builds_, worker);
}

int LeaseTable::count_builds(const Digest& kernel) const {
  return count_of(builds_of_kernel_, kernel);
}

int LeaseTable::count(const Digest& kernel) const {
  return count_of(of_kernel_, kernel);
}

}  // namespace kiln
