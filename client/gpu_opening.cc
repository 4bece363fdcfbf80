#include "client/gpu_opening.h"

#include <chrono>

#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

GpuOpening::GpuOpening(int ordinal, const std::string& libcuda, bool at_once,
                       const std::string& libcublaslt) {
  const std::launch when = at_once ? std::launch::async : std::launch::deferred;
  facts_ = std::async(when, [ordinal, libcuda] {
    const auto started = Clock::now();
    auto facts = CudaDevice::probe(ordinal, libcuda);
    return Timed<Result<CudaFacts>>{std::move(facts), ms_since(started)};
  });
  device_ = std::async(when, [ordinal, libcuda, libcublaslt, facts = facts_] {
    if (const Result<CudaFacts>& known = facts.get().result; !known)
      return Timed<DeviceResult>{fail(known.error())};
    const auto started = Clock::now();
    auto device = CudaDevice::open(ordinal, libcuda, libcublaslt);
    return Timed<DeviceResult>{std::move(device), ms_since(started)};
  });
}

}  // namespace kiln
