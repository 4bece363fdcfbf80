// EncodedMaps: the 128 bytes of a kernel's tensor maps, encoded for the pointers and sizes of the
// last call; a pointer is encoded once and again only when its sizes change. Thread-safe. Private
// to this folder.
#pragma once

#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "compiler_core/program/tensor_map.h"
#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {

class EncodedMaps {
 public:
  // `map` at the buffer `memory`. `map` is the same object each time, and outlives this.
  // kUnsupported: a driver before CUDA 12; kInvalidArgument: it refuses this map.
  Result<CUtensorMap> get(const CudaDevice::Impl& device, const TensorMap& map, DevicePtr memory,
                          std::span<const int64_t> symbols);

 private:
  struct Encoded {
    std::vector<int64_t> symbols;
    CUtensorMap bytes;
  };
  std::mutex mu_;
  // Guarded by mu_: by map, then by buffer.
  std::unordered_map<const TensorMap*, std::unordered_map<DevicePtr, Encoded>> encoded_;
};

}  // namespace kiln
