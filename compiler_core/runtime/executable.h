// Executable: a loaded program with its arena, ready to run on the caller's buffers.
#pragma once

#include <functional>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln {

class Executable {
 public:
  // `artifacts[i]` belongs to program.kernels[i]. Loads and touches every kernel, allocates the
  // arena and workspaces.
  static Result<Executable> load(Program program, std::span<const Artifact> artifacts);
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  const Program& program() const;
  // Canonical inputs and outputs, dense row-major, 64-byte aligned; one call at a time.
  Status run(std::span<void* const> inputs, std::span<void* const> outputs, ThreadPool& pool) const;

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
