// Devices: what of this machine a client's programs run on: one GPU, opened once, and the CPU,
// whose threads all programs of the client share. Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "client/client.h"
#include "client/gpu_opening.h"
#include "client/local_tier.h"
#include "compiler_core/runtime/executable.h"

namespace kiln {

class Devices {
 public:
  explicit Devices(const ClientOptions& options);

  const GpuOpening& gpu() const { return gpu_; }
  // Held by a call on the CPU.
  const std::shared_ptr<std::mutex>& cpu_mutex() const { return cpu_mutex_; }

  // Checks, before anything is fetched or compiled, that the result can be loaded here. kUnsupported
  // with what this machine has instead.
  Status check_loadable(const Target& target) const;

  // Loads a program for `wanted.target`, which is complete, and says in `start_up` how long the
  // device and the program took. kOverloaded: a GPU has no room; else as Executable::load.
  Result<Executable> load(const CompileOptions& wanted, const ProgramFiles& files,
                          StartUp& start_up);

 private:
  std::shared_ptr<const Device> shared_cpu();

  const GpuOpening gpu_;
  const int threads_;
  const std::shared_ptr<std::mutex> cpu_mutex_ = std::make_shared<std::mutex>();
  std::mutex mu_;
  std::shared_ptr<const Device> cpu_;  // guarded by mu_; null until a program for the CPU is loaded
};

}  // namespace kiln
