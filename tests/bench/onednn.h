// oneDNN primitives over the caller's buffers: what Kiln's matmuls, softmaxes and layernorms are
// measured against. The primitive is made once; calling it executes and waits. Buffers outlive it.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler_core/base/dtype.h"

namespace kiln::bench {

// REQUIRES for all: dtype is f32 or bf16.

// out[m, n] = x[m, k] * w, w stored [k, n] or, `transposed`, [n, k]; with `bias` [n], not null:
// gelu(out + bias), by erf.
std::function<void()> onednn_matmul(DType dtype, int64_t m, int64_t n, int64_t k, bool transposed,
                                    void* x, void* w, void* bias, void* out);

// A square convolution of images [n, c, size, size] by weights [o, c, window, window], both as
// PyTorch stores them.
struct SquareConvolution {
  int64_t n, c, size, o, window, stride, padding;
  int64_t result() const { return (size + 2 * padding - window) / stride + 1; }
};
std::function<void()> onednn_convolution(DType dtype, const SquareConvolution& shape, void* x,
                                         void* w, void* out);

// Over the last axis of x[rows, columns].
std::function<void()> onednn_softmax(DType dtype, int64_t rows, int64_t columns, void* x,
                                     void* out);

// Over the last axis; weight and bias of f32, as oneDNN wants them.
std::function<void()> onednn_layernorm(DType dtype, int64_t rows, int64_t columns, void* x,
                                       float* weight, float* bias, void* out);

}  // namespace kiln::bench
