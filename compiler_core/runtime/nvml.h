// Nvml: what NVIDIA's management library says of a card's clocks. Opened at run time, and optional:
// where it is missing or does not know the card, it answers zero. Its few prototypes are ours, as
// its header is in no toolkit package everybody has. Immutable once opened; thread-safe.
#pragma once

#include <string>

#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

class Nvml {
 public:
  // The card of this PCI bus id.
  static Nvml open(const std::string& bus_id);
  CudaDevice::Clocks clocks() const;

 private:
  void* card_ = nullptr;  // nvmlDevice_t; null: nobody to ask
  int (*clock_info_)(void* card, int type, unsigned* mhz) = nullptr;
  int (*reasons_)(void* card, unsigned long long* bits) = nullptr;
};

}  // namespace kiln
