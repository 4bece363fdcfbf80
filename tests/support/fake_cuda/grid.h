// run_grid: a kernel launch on the CPU. Every device thread is a fiber; the blocks of a cluster run
// together, clusters one after another, and within a cluster a thread runs until it ends or has to
// wait. The order is fixed, forward or reversed: a kernel that lacks a barrier gives different
// results in the two. Reversed, one warp after another also comes late to what it waits for.
//
// One launch runs at a time in a process, others wait for it. A kernel that never ends is not
// stopped: whoever needs that ends the process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/device_thread.h"

namespace kiln::testing {

struct GridLaunch {
  kiln_fake::Entry entry;
  kiln_fake::Thread** current = nullptr;  // of the kernel's module
  void* const* parameters = nullptr;
  unsigned blocks = 0;  // a multiple of cluster
  int threads = 0;      // a block; at most 1024
  int cluster = 1;
  int shared_bytes = 0;
  bool reversed = false;                         // the last block, warp and lane first
  unsigned char poison = 0xff;                   // what shared memory is full of at first
  std::vector<kiln_fake::Unready> unready = {};  // for threads that have not waited
};

struct GridFault {
  kiln_fake::FaultKind kind = kiln_fake::FaultKind::kLaunchFailed;
  std::string message;  // with kernel, block and thread
  const void* address = nullptr;
};

// Nothing when every thread ended.
std::optional<GridFault> run_grid(const GridLaunch& launch);

}  // namespace kiln::testing
