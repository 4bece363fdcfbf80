// The objects behind the handles of libfake_cuda.so, and what every function of it does first.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/host_cubin.h"
#include "tests/support/fake_cuda/libraries/fake_device.h"

namespace kiln::testing {

// One piece of work on a stream. Graphs compare them: an update wants the same kinds in the same
// order.
struct FakeNode {
  enum class Kind { kLaunch, kCopy, kFill, kLibrary };
  Kind kind = Kind::kLaunch;
  FakeDevice::Work work;
};

struct FakeGraph {
  std::vector<FakeNode> nodes;
};

struct FakeFunction {
  std::shared_ptr<const HostModule> module;
  kiln_fake::Entry entry;
  CUcontext context;
  int max_dynamic_shared = FakeDevice::kSharedBytes;
  bool large_clusters = false;  // of more than 8 blocks
};

struct FakeStream {
  CUcontext context = nullptr;         // null: every context has a default stream
  std::atomic<uint64_t> last{0};       // the newest work on it
  std::unique_ptr<FakeGraph> capture;  // while it is captured
  bool invalidated = false;            // something was called that no capture survives
};

struct FakeEvent {
  std::atomic<uint64_t> number{0};  // of its work; 0: never recorded
  std::atomic<int64_t> time_ns{0};  // when the device came to it
};

// The stream of a handle; null is the default one.
FakeStream& stream_of(CUstream stream);

// Why no call works now: not initialised, no context on this thread, or a fault; else CUDA_SUCCESS.
CUresult ready();
// Of this thread.
CUcontext current_context();
void set_initialized();
bool is_initialized();
// Also refuses while a stream of this thread is being captured, which real drivers do for calls
// that could wait for the device.
CUresult ready_outside_capture();

// Puts the node on the stream, or into the graph that captures it.
CUresult enqueue(CUstream stream, FakeNode node);

// Exported for the fake cuBLASLt: work of a library on the stream, or into its capture.
extern "C" CUresult kiln_fake_enqueue(CUstream stream, const FakeDevice::Work* work);

}  // namespace kiln::testing
