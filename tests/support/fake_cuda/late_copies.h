// Asynchronous copies of one thread, made as late as a kernel allows: nothing of one is seen before
// the group that it was committed with is waited for.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/fake_cuda/device_thread.h"

namespace kiln::testing {

// Into shared memory: `bytes` of `from`, then zeros up to `size`.
struct SharedCopy {
  char* to;
  const char* from;
  int bytes, size;

  void make() const {
    std::memset(to, 0, static_cast<size_t>(size));
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
};

// A box that the copy engine stores from shared memory.
struct BoxStore {
  using Write = void (*)(const kiln_fake::TensorMap&, const char*, const int*);
  const kiln_fake::TensorMap* map;
  const char* from;
  int at[5];
  Write write;

  void make() const { write(*map, from, at); }
};

template <class Copy>
class LateCopies {
 public:
  void add(const Copy& copy) { pending_.push_back({copy, committed_}); }
  void commit() { ++committed_; }
  // Makes the copies of all groups but the `left` latest; -1: also those that no commit has put in
  // a group.
  void finish(int left) {
    const auto is_due = [&](const Pending& each) { return each.group < committed_ - left; };
    for (const Pending& each : pending_)
      if (is_due(each)) each.copy.make();
    std::erase_if(pending_, is_due);
  }
  void clear() {
    pending_.clear();
    committed_ = 0;
  }

 private:
  struct Pending {
    Copy copy;
    int group;
  };
  std::vector<Pending> pending_;
  int committed_ = 0;  // groups
};

}  // namespace kiln::testing
