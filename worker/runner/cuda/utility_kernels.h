// UtilityKernels: what the runner runs on its GPU besides candidates (utility/),
// loaded, with the stream everything of the runner is put on and the memory it uses. One thread.
#pragma once

#include <vector>

#include "compiler_core/runtime/cuda_module.h"
#include "worker/runner/cuda/device_pool.h"

namespace kiln::runner {

// What a look over many elements found; as in utility.cuh.
struct Tally {
  int64_t count = 0;
  int64_t first = INT64_MAX;  // INT64_MAX: nowhere
  double sum = 0;
  uint64_t mix = 0;
};
static_assert(sizeof(Tally) == 32, "the device writes them");

class UtilityKernels {
 public:
  // Errors of CudaModule::load.
  static Result<std::unique_ptr<UtilityKernels>> load(std::shared_ptr<const CudaDevice> device,
                                                      std::string_view binary,
                                                      const Digest& digest);
  ~UtilityKernels();
  UtilityKernels(const UtilityKernels&) = delete;

  const std::shared_ptr<const CudaDevice>& device() const { return module_.device(); }
  CudaStream stream() const { return stream_; }
  DevicePool& pool() { return pool_; }

  // Puts `entry` on the stream with as many threads as `work` items deserve; `parameters` are the
  // entry's, without the number of threads, which is its last. Nothing happens for no work.
  Status launch(const char* entry, int64_t work, std::vector<int64_t> parameters);

  // The same for an entry that leaves a Tally a thread: these are folded into one, which take()
  // hands out. At most kMaxTallies between two take().
  Status tally(const char* entry, int64_t work, std::vector<int64_t> parameters);
  static constexpr size_t kMaxTallies = 256;
  // Waits for the stream. One a tally() since the last take(), in order.
  Result<std::vector<Tally>> take();

  Status synchronize() const { return device()->synchronize(stream_); }

 private:
  explicit UtilityKernels(CudaModule module)
      : module_(std::move(module)), pool_(module_.device()) {}
  int64_t blocks_for(int64_t work) const;

  CudaModule module_;
  DevicePool pool_;
  CudaStream stream_ = nullptr;
  PooledMemory partial_, results_;
  size_t pending_ = 0;  // tallies since the last take()
};

// A double as a parameter.
int64_t parameter(double value);
inline int64_t parameter(DevicePtr value) {
  return static_cast<int64_t>(value);
}

}  // namespace kiln::runner
