// ProductsAlone: of a program's launches those that no fusion takes away, run by themselves: matrix
// products, convolutions and attention. What they take bounds what fusing all else can win.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/program/program.h"
#include "compiler_core/runtime/aligned_buffer.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln::bench {

class ProductsAlone {
 public:
  // `artifacts[i]` belongs to program.kernels[i]; `sizes`: the values of the program's symbols.
  // Each buffer of these launches gets memory of its own, filled with ones.
  static Result<ProductsAlone> load(const Program& program, std::span<const Artifact> artifacts,
                                    std::span<const int64_t> sizes);

  bool empty() const { return launches_.empty(); }
  void run(ThreadPool& pool);

 private:
  struct OneLaunch {
    size_t kernel = 0;
    std::vector<void*> args;
    std::vector<int64_t> dims;
  };

  std::vector<Kernel> kernels_;
  std::vector<AlignedBuffer> buffers_;
  AlignedBuffer workspace_;
  std::vector<OneLaunch> launches_;
};

}  // namespace kiln::bench
