// ReferenceLaunches: the launches of one evaluation of the reference, planned before they are made,
// so that all shapes travel to the device at once. One thread.
#pragma once

#include <map>
#include <vector>

#include "worker/runner/cuda/cuda_evaluation_device.h"

namespace kiln::runner {

class ReferenceLaunches {
 public:
  explicit ReferenceLaunches(CudaEvaluationDevice& device) : device_(device) {}

  // Room for lists of so many words. kUnavailable: no memory.
  Status reserve(size_t words);
  // `entry` gets `arguments` and its number of threads, for `work` items.
  void add(const char* entry, int64_t work, std::vector<int64_t> arguments);
  // Rank, sizes, strides, as the kernels read them; axes that run on into each other are one.
  static std::vector<int64_t> merged(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& strides);
  // Where a list of words is on the device by the time of the launches. Equal lists are one.
  int64_t list(const std::vector<int64_t>& words);

  // Copies the lists and makes the launches that were added since the last time, in order.
  Status launch();

 private:
  struct Step {
    const char* entry;
    int64_t work;
    std::vector<int64_t> arguments;
  };
  CudaEvaluationDevice& device_;
  PooledMemory memory_;
  std::vector<Step> steps_;
  std::vector<int64_t> words_;
  size_t copied_ = 0;                               // of words_
  std::map<std::vector<int64_t>, size_t> offsets_;  // in words_
};

}  // namespace kiln::runner
