// TensorMap: how the copy engine of an NVIDIA GPU (TMA, from compute capability 9.0 on) traverses
// one of a kernel's buffers. A value; the runtime encodes it for the pointers and sizes of a call
// (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col), and the kernel takes the 128 bytes by value:
//
//   const __grid_constant__ CUtensorMap map
//
// The fields and their limits are those of the CUDA driver API's functions of these names.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler_core/base/dim.h"
#include "compiler_core/base/dtype.h"

namespace kiln {

struct TensorMap {
  int buffer = 0;  // among the kernel's inputs, then outputs
  Dim offset;      // bytes into it; a multiple of 16
  DType dtype = DType::kF32;
  // Innermost axis first: 1 to 5 of them.
  std::vector<Dim> sizes;            // elements
  std::vector<Dim> strides;          // bytes, of every axis but the first; multiples of 16
  std::vector<int> box;              // elements that one copy takes, 1 to 256; none for im2col
  std::vector<int> element_strides;  // 1 to 8
  int interleave = 0;                // bytes: 0, 16, 32
  int swizzle = 0;                   // bytes: 0, 32, 64, 128
  int l2_promotion = 0;              // bytes: 0, 64, 128, 256
  bool fill_nan = false;             // of elements outside the tensor; else zeros

  // A convolution's windows instead of boxes. Corners are offsets along the axes between the
  // channels (the first) and the batch (the last), innermost first.
  struct Im2col {
    std::vector<int> lower, upper;
    int channels = 0;  // of a pixel that one copy takes, 1 to 256
    int pixels = 0;    // that one copy takes, 1 to 1024
    bool operator==(const Im2col&) const = default;
  };
  std::optional<Im2col> im2col;

  bool operator==(const TensorMap&) const = default;

  // The bytes from the buffer's start to the end of the last element. kInvalidArgument: a symbol is
  // unbound, a size is not positive, a stride or offset is no multiple of 16, or it overflows.
  Result<int64_t> extent(std::span<const int64_t> symbols) const;
};

}  // namespace kiln
