// Executable: a loaded program with its arena, ready to run on the caller's buffers. Owns kernels,
// arena and workspace; the caller's buffers are borrowed for one call.
#pragma once

#include <memory>
#include <span>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln {

class Executable {
 public:
  // `artifacts[i]` belongs to program.kernels[i]. Loads and touches every kernel, allocates the
  // arena and the workspace when their sizes are known. kCorruption when an artifact is not its
  // kernel's, or a launch's buffers are not what its kernel reads and writes; kOverloaded, before
  // anything is allocated, when the machine has no room for it, with the bytes needed and
  // available.
  static Result<Executable> load(Program program, std::span<const Artifact> artifacts);
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  const Program& program() const;
  // Canonical inputs and outputs, dense row-major, 64-byte aligned; one call at a time. `dims`: the
  // values of the program's symbols, none when it has none; the arena grows with them.
  // kInvalidArgument for a wrong count of buffers, a null or badly aligned one, an unbound symbol,
  // or one outside its range; kOverloaded as load() when these sizes need more memory.
  Status run(std::span<void* const> inputs, std::span<void* const> outputs, ThreadPool& pool,
             std::span<const int64_t> dims = {}) const;

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
