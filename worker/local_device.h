// LocalDevice: the device that a worker measures on, and what it needs to compile for it and to run
// on it. The worker itself never opens a GPU: a fault there would be the end of it. What it knows
// of one it learns from a runner.
#pragma once

#include <string>
#include <vector>

#include "worker/build/toolchain.h"
#include "worker/jobs/job_runner.h"

namespace kiln {

struct LocalDevice {
  Target target;     // with every fact
  std::string name;  // of its lock on this host: "cpu", "cuda-0000:1b:00.0"
  Toolchain toolchain;
  RunnerProcess::Options runner;
  std::vector<LibraryVersion> libraries;  // that its kernels can call
  bool compiling_disturbs = true;
  std::string sandbox;  // of compilers and runners, for people (Sandbox::describe); "off"
};

// Where things are; empty: the usual places.
struct DeviceOptions {
  Path runner;              // the executable
  int threads = 0;          // CPU: a launch uses; 0: one per core
  std::string compiler;     // CPU: HostCompiler::find
  std::string libcuda;      // CUDA: CudaDevice::open
  std::string libnvrtc;     // CUDA: Nvrtc::find
  std::string libcublaslt;  // CUDA: CudaDevice::open
  Sandbox::Mode sandbox = Sandbox::Mode::kOff;
  std::vector<Path> readable{};  // in the sandbox, beside what the worker finds itself
  std::string search_path{};     // PATH
  std::string library_path{};    // LD_LIBRARY_PATH
};

// `device`: "cpu", "cuda" (the first GPU) or "cuda:N". kInvalidArgument: no such name; kNotFound,
// kUnavailable, kUnsupported: what is missing for it.
Result<LocalDevice> open_device(std::string_view device, const DeviceOptions& options);

// Where a worker builds for targets without having a device.
struct Builder {
  std::vector<Target> targets;
  Toolchain toolchain;
  RunnerProcess::Options runner;  // lowers candidates; runs none
  std::string sandbox;            // as LocalDevice's
};

// `device`: "cpu", whose targets are this machine's, or "cuda". `targets`, separated by commas: which of
// the GPUs that NVRTC knows; empty: all of them. Errors as open_device(); kUnsupported: a target that is
// not built here, with those that are.
Result<Builder> open_builder(std::string_view device, const std::string& targets,
                             const DeviceOptions& options);

std::string list_of(const std::vector<Target>& targets);  // "cuda:sm_80, cuda:sm_90a"

// Options for runners of `device`: on a GPU with the runner's own kernels, which `compilers` make
// while the first runner starts. Both outlive the JobRunner that uses the options.
RunnerProcess::Options prepared_runner(const LocalDevice& device, CompilePool& compilers);

// "cuda:0 sm_90a 0000:1b:00.0 NVIDIA H200", one a GPU. Opens them in this process, so it is not for
// one that goes on.
std::vector<std::string> list_gpus(const std::string& libcuda);

}  // namespace kiln
