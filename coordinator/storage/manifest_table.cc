#include "coordinator/storage/manifest_table.h"

#include <algorithm>
#include <utility>

namespace kiln {

HitReply* ManifestTable::find(const Digest& program_key) {
  const auto found = by_key_.find(program_key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  found->second->used = true;
  return &found->second->reply;
}

void ManifestTable::insert(const Program& program, SignedManifest manifest) {
  if (const auto known = by_key_.find(program.key); known != by_key_.end()) erase(known->second);
  HitReply reply(std::move(manifest.json), std::move(manifest.signature), manifest.memory_only,
                 manifest.revocations, std::move(manifest.audience), manifest.as_of_ms);
  Entry entry{program.key, std::move(reply), {}};
  for (const ProgramKernel& kernel : program.kernels) {
    entry.kernels.push_back({kernel.key, kernel.blob});
  }
  if (entry.bytes() > max_bytes_) return;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  ++inserted_;
  by_key_[program.key] = entries_.begin();
  for (const Kernel& kernel : entries_.front().kernels) {
    by_blob_.emplace(kernel.blob, entries_.begin());
  }
  while (bytes_ > max_bytes_) {
    if (entries_.back().used) used_and_gone_.push_back(entries_.back().key);
    erase(std::prev(entries_.end()));
  }
}

void ManifestTable::remove(const Digest& program_key) {
  if (const auto known = by_key_.find(program_key); known != by_key_.end()) erase(known->second);
}

void ManifestTable::clear() {
  while (!entries_.empty()) {
    if (entries_.back().used) used_and_gone_.push_back(entries_.back().key);
    erase(std::prev(entries_.end()));
  }
}

// A new entry is not used, and stands in front of used ones.
std::vector<Digest> ManifestTable::take_used() {
  std::vector<Digest> used = std::exchange(used_and_gone_, {});
  size_t unused = 0;
  for (Entry& entry : entries_) {
    if (std::exchange(entry.used, false)) {
      used.push_back(entry.key);
    } else if (++unused > inserted_) {
      break;
    }
  }
  inserted_ = 0;
  return used;
}

ManifestTable::Users ManifestTable::take_users_of(const Digest& blob) {
  Users users;
  for (auto found = by_blob_.find(blob); found != by_blob_.end(); found = by_blob_.find(blob)) {
    const auto entry = found->second;
    users.programs.push_back(entry->key);
    for (const Kernel& kernel : entry->kernels) {
      const bool known = std::ranges::find(users.kernels, kernel.key) != users.kernels.end();
      if (kernel.blob == blob && !known) users.kernels.push_back(kernel.key);
    }
    erase(entry);
  }
  return users;
}

void ManifestTable::erase(Entries::iterator entry) {
  for (const Kernel& kernel : entry->kernels) {
    auto [at, end] = by_blob_.equal_range(kernel.blob);
    while (at != end) at = at->second == entry ? by_blob_.erase(at) : std::next(at);
  }
  bytes_ -= entry->bytes();
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace kiln
