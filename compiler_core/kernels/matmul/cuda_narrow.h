// NarrowWeights: what a kernel of matmul_narrow.cuh has beside those of matmul.cuh, as text: how its
// second operand, of 8 bits in memory, becomes what is multiplied. Keeps references to the graph and
// the problem, which must outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler_core/kernels/matmul/matmul_problem.h"

namespace kiln {

class NarrowWeights {
 public:
  // REQUIRES: check_cuda_narrow(), so that problem.narrow is there.
  NarrowWeights(const Graph& graph, const SizedMatmul& problem)
      : graph_(graph), problem_(problem) {}

  // struct Weights.
  std::string print_type() const;
  // Computes the factors' functions and calls multiply_narrow_tile(); needs what print_multiply() of
  // cuda_product.cc declares. `shift`: CudaProduct::shift.
  std::string print_multiply(std::string_view shift) const;

 private:
  const Dequantised& weights() const { return *problem_.b.dequantised; }
  // The integer that is subtracted from all weights of 4 bits, where it is a constant.
  std::optional<int> common_zero() const;

  const Graph& graph_;
  const SizedMatmul& problem_;
};

}  // namespace kiln
