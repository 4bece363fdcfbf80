#include "cache/store.h"

namespace kiln {
namespace {

// The keys that `read` can read: the others are not whole.
template <class Read>
Result<std::set<Digest>> whole(const std::vector<Digest>& keys, Read read) {
  std::set<Digest> found;
  for (const Digest& key : keys) {
    const auto row = read(key);
    if (row)
      found.insert(key);
    else if (row.error().code != Code::kNotFound && row.error().code != Code::kCorruption)
      return fail(row.error());
  }
  return found;
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as those that override it
void ReadableStore::look_up_link(const Digest&, Then<std::string> then) {
  then(fail(Code::kUnsupported, "this store's binaries are in no place that others can read"));
}

Result<std::set<Digest>> Store::whole_programs(const std::vector<Digest>& keys) {
  return whole(keys, [this](const Digest& key) { return listed_program(key); });
}

Result<std::set<Digest>> Store::whole_kernels(const std::vector<Digest>& keys) {
  return whole(keys, [this](const Digest& key) { return listed_kernel(key); });
}

}  // namespace kiln
