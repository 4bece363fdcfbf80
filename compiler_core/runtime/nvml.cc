#include <dlfcn.h>

#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {
namespace {

// From the NVML API reference.
constexpr int kSuccess = 0;
constexpr int kClockSm = 1;
constexpr unsigned long long kSlowed = 0x004     // software power cap
                                       | 0x008   // hardware slowdown
                                       | 0x020   // software thermal
                                       | 0x040   // hardware thermal
                                       | 0x080;  // power brake

}  // namespace

Nvml Nvml::open(const std::string& bus_id) {
  Nvml nvml;
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nvml;
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  if (!find_symbol(library, "nvmlInit_v2", init) ||
      !find_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) ||
      !find_symbol(library, "nvmlDeviceGetClockInfo", nvml.clock_info_))
    return nvml;
  // The second is the first's name before driver 535.
  if (!find_symbol(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.reasons_) &&
      !find_symbol(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.reasons_))
    return nvml;
  void* card = nullptr;
  if (init() == kSuccess && by_bus_id(bus_id.c_str(), &card) == kSuccess) nvml.card_ = card;
  return nvml;
}

Device::Clocks Nvml::clocks() const {
  Device::Clocks clocks;
  if (card_ == nullptr) return clocks;
  unsigned mhz = 0;
  unsigned long long bits = 0;
  if (clock_info_(card_, kClockSm, &mhz) == kSuccess) clocks.sm_mhz = static_cast<int>(mhz);
  if (reasons_(card_, &bits) == kSuccess) clocks.throttled = (bits & kSlowed) != 0;
  return clocks;
}

}  // namespace kiln
