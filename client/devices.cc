#include "client/devices.h"

#include <chrono>

#include "compiler_core/base/clock.h"
#include "compiler_core/runtime/cpu_device.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// Turns a GPU's refusal of a context or of memory into kOverloaded: to callers, kUnavailable means
// a service that is not reachable.
Error no_room(Error error) {
  if (error.code == Code::kUnavailable) error.code = Code::kOverloaded;
  return error;
}

}  // namespace

Devices::Devices(const ClientOptions& options)
    : gpu_(options.gpu, options.libcuda, options.open_gpu, options.libcublaslt),
      threads_(options.threads) {}

Status Devices::check_loadable(const Target& target) const {
  if (target.backend != Backend::kCuda) return {};
  const Result<CudaFacts>& facts = gpu_.facts();
  const std::string why = "cannot run code for " + target.to_string() + " on this machine: ";
  if (!facts) return fail(Code::kUnsupported, why + facts.error().message);
  if (facts->target().can_run(target)) return {};
  return fail(Code::kUnsupported,
              why + "its GPU is " + facts->name + ", " + facts->target().to_string());
}

std::shared_ptr<const Device> Devices::shared_cpu() {
  const std::lock_guard lock(mu_);
  if (cpu_ == nullptr) cpu_ = CpuDevice::make(threads_);
  return cpu_;
}

Result<Executable> Devices::load(const CompileOptions& wanted, const ProgramFiles& files,
                                 StartUp& start_up) {
  const auto asked = Clock::now();
  if (wanted.target.backend != Backend::kCuda) {
    TRY(Executable executable, Executable::load(shared_cpu(), files.program, files.artifacts,
                                                {.lazy_memory = wanted.lazy_memory}));
    start_up.load_ms = ms_since(asked);
    return executable;
  }
  const GpuOpening::DeviceResult& device = gpu_.device();
  const auto opened = Clock::now();
  start_up.context_wait_ms += ms_between(asked, opened);
  if (!device) return fail(no_room(device.error()));
  auto loaded = Executable::load(
      *device, files.program, files.artifacts,
      {.reduce_overhead = wanted.reduce_overhead, .lazy_memory = wanted.lazy_memory});
  if (!loaded) return fail(no_room(std::move(loaded).error()));
  start_up.context_ms = gpu_.context_ms();
  start_up.load_ms = ms_since(opened);
  return loaded;
}

}  // namespace kiln
