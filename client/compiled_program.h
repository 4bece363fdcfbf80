// The inside of CompiledProgram: for Client and `kiln`, not for users of the library.
#pragma once

#include <mutex>
#include <optional>

#include "client/client.h"
#include "client/loaded_program.h"
#include "client/local_tier.h"
#include "client/revocation_store.h"
#include "compiler_core/runtime/size_binder.h"

namespace kiln {

struct CompiledProgram::Impl {
  std::shared_ptr<const ProgramFiles> files;
  std::vector<int> input_order;  // canonical input i is the caller's input_order[i]
  int caller_inputs = 0;
  SizeBinder binder;  // of the caller's inputs
  Outcome outcome = Outcome::kHit;
  bool memory_only = false;
  double seconds = 0;
  StartUp start_up;
  std::optional<LoadedProgram> loaded;
  std::shared_ptr<const RevocationStore> revocations;  // of its client
  mutable std::atomic<uint64_t> checked_serial{0};     // of the list that it was checked against
  std::shared_ptr<std::mutex> cpu_mu;  // of the CPU, which all programs of one client share

  // kUnavailable once the client has heard that the program was taken back.
  Status check_not_revoked() const;
  // The caller's inputs in the program's order, once the counts of both are right.
  Result<std::vector<DevicePtr>> canonical(std::span<const DevicePtr> inputs, size_t outputs) const;
};

// The program's inputs as the caller numbers them.
Result<SizeBinder> caller_binder(const Program& program, std::span<const int> input_order,
                                 size_t caller_inputs);
// The caller's input for each of the program's. `places`: the program's input for each of the caller's, as
// Client::load() has it.
Result<std::vector<int>> input_order_of(std::span<const int> places, const Program& program);

// The GPU that `program` is loaded on; null when it is loaded on the CPU, or not at all.
std::shared_ptr<const CudaDevice> device_of(const CompiledProgram& program);

// One call, as CompiledProgram::launch() on the null stream, and when each of its launches ran. Errors as
// that; also for a program that is loaded on the CPU.
Result<std::vector<LaunchTime>> profile_launches(const CompiledProgram& program,
                                                 std::span<const DevicePtr> inputs,
                                                 std::span<const DevicePtr> outputs,
                                                 std::span<const int64_t> symbols);

// The device that `program` is loaded on; null when it is not loaded.
std::shared_ptr<const Device> place_of(const CompiledProgram& program);

// The program as a bundle (bundle.h). Errors as print_bundle().
Result<std::string> bundle_of(const CompiledProgram& program);

// Why kernels of Kiln's own run where the program would call a library; empty: none do.
std::string libraries_left_out(const CompiledProgram& program);

}  // namespace kiln
