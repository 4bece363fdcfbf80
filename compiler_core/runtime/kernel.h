// Kernel: a loaded artifact. Loading checks the digest; nothing is mapped as code before that.
// Immutable once loaded: threads may launch one kernel at once, each with its own pool and buffers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compiler_core/program/artifact.h"
#include "compiler_core/runtime/thread_pool.h"

namespace kiln {

class Kernel {
 public:
  // kCorruption when the binary's digest is not artifact.digest; kInvalidArgument when an entry is
  // missing, the loader refuses or the scratch is beyond reason. The binary goes through a memfd,
  // never a path on disk. Its pages and relocations are ready when this returns, so that the first
  // launch pays nothing.
  static Result<Kernel> load(const Artifact& artifact);
  Kernel(Kernel&&) noexcept;
  Kernel& operator=(Kernel&&) noexcept;
  ~Kernel();

  const Recipe& recipe() const;
  // `args`: inputs then outputs, as the recipe lists them. `dims`: symbol values. `workspace`: at
  // least the recipe's bytes, 64-byte aligned, or null when it needs none. Per-thread scratch is
  // the pool's. Blocks until done. REQUIRES: `dims` binds every symbol of the recipe.
  void launch(std::span<void* const> args, std::span<const int64_t> dims, void* workspace,
              ThreadPool& pool) const;

  // Several launches as if they were one. REQUIRES: at most kMostSideBySide, each of one phase and
  // without a workspace, and none touches what another writes; otherwise as launch().
  struct BoundLaunch {
    const Kernel* kernel;
    std::span<void* const> args;
    std::span<const int64_t> dims;
  };
  static constexpr size_t kMostSideBySide = 8;
  static void launch_side_by_side(std::span<const BoundLaunch> calls, ThreadPool& pool);

 private:
  struct Impl;
  explicit Kernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
