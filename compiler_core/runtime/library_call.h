// Libraries of this machine that do phases of a CUDA program (program/library_call.h): cuBLASLt,
// opened when somebody first asks. A device opens a library once and has one handle to it, which
// any number of threads use. Thread-safe.
//
// `file` says where cuBLASLt is: a file is the only place; kNoLibraries (cuda_device.h): nowhere.
// Otherwise it lies beside a libcuda that is named by its path, in `file` where that is a folder (of
// a CUDA toolkit, of a Python environment), or in the usual places, looked through in this order. A
// library of a newer CUDA than the driver's is passed over.
//
// A rank counts in what the heuristics name for buffers of 256-byte alignment, as cuMemAlloc gives
// them, and kLibraryWorkspaceBytes of workspace; a call of constant sizes then asks for as much
// workspace as its algorithm needs. For buffers of less alignment, and for a call whose sizes have
// symbols, a rank that the heuristics do not reach is the last one that they do.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/program/library_call.h"
#include "compiler_core/runtime/cuda_device.h"

namespace kiln {

// The version that the library here says it has: "130100". kUnsupported: there is none, with the
// places where it was looked for, or it cannot be used.
Result<std::string> library_version(const CudaDevice& device, std::string_view library);

// The libraries here, without a device: opened, not started. `driver`: CudaFacts::driver.
std::vector<LibraryVersion> installed_libraries(const std::string& file, const std::string& libcuda,
                                                int driver);

// An algorithm that the library's heuristics name for a problem.
struct LibraryAlgorithm {
  std::string bytes;            // LibraryCall::algorithm
  int64_t workspace_bytes = 0;  // at most kLibraryWorkspaceBytes
  double waves = 0;             // of its blocks over the device's SMs
};
// The best guess first, at most kLibraryRanks: LibraryCall::rank counts in this list.
// kInvalidArgument: the library has none for this problem. Errors also as library_version().
Result<std::vector<LibraryAlgorithm>> library_algorithms(const CudaDevice& device,
                                                         const LibraryCall& call,
                                                         std::span<const int64_t> symbols);

// A call ready to run. Immutable but for what it remembers of the last sizes; thread-safe.
class LoadedLibraryCall {
 public:
  // kUnsupported: the library is missing, or of another version than the call's. Where no size has
  // symbols its algorithm is found here; kInvalidArgument: there is no such algorithm.
  static Result<std::unique_ptr<const LoadedLibraryCall>> load(
      std::shared_ptr<const CudaDevice> device, const LibraryCall& call);
  ~LoadedLibraryCall();

  // Workspace that a launch needs, in bytes; empty where a size has symbols.
  std::optional<int64_t> workspace_bytes() const;
  // As CudaKernel::launch. `workspace_bytes`: what it may use.
  Status launch(std::span<const DevicePtr> args, DevicePtr workspace, int64_t workspace_bytes,
                std::span<const int64_t> dims, Stream stream) const;

 private:
  struct Impl;
  explicit LoadedLibraryCall(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
