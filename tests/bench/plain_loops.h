// The loops a C++ user would write for pointwise work, compiled with -O3 -march=native -fopenmp:
// what Kiln's pointwise kernels are measured against. Thread-safe; buffers are the caller's.
#pragma once

#include <cstdint>

namespace kiln::bench {

// out = sin(a) + cos(b)
void sincos_f32(const float* a, const float* b, float* out, int64_t n);
// out = 0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), bfloat16 in memory, f32 in between
void tanh_gelu_bf16(const uint16_t* x, uint16_t* out, int64_t n);
// out = silu(gate) * up, likewise
void swiglu_bf16(const uint16_t* gate, const uint16_t* up, uint16_t* out, int64_t n);
// out = residual = a + b; normed = residual * rsqrt(mean(residual^2) + 1e-6) * weight, likewise
void rmsnorm_residual_bf16(const uint16_t* a, const uint16_t* b, const uint16_t* weight,
                           uint16_t* sum, uint16_t* normed, int64_t rows, int64_t columns);
// out[c] = sum over rows of x[r][c]
void column_sum_f32(const float* x, float* out, int64_t rows, int64_t columns);

}  // namespace kiln::bench
