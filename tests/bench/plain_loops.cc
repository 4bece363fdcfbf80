#include "tests/bench/plain_loops.h"

#include <cmath>
#include <vector>

#include "compiler_core/base/half.h"

namespace kiln::bench {

void sincos_f32(const float* a, const float* b, float* out, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) out[i] = std::sin(a[i]) + std::cos(b[i]);
}

void tanh_gelu_bf16(const uint16_t* x, uint16_t* out, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    const float v = bf16_to_f32(x[i]);
    const float inner = 0.7978845608028654f * (v + 0.044715f * v * v * v);
    out[i] = f32_to_bf16(0.5f * v * (1 + std::tanh(inner)));
  }
}

void swiglu_bf16(const uint16_t* gate, const uint16_t* up, uint16_t* out, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    const float g = bf16_to_f32(gate[i]);
    out[i] = f32_to_bf16(g / (1 + std::exp(-g)) * bf16_to_f32(up[i]));
  }
}

void rmsnorm_residual_bf16(const uint16_t* a, const uint16_t* b, const uint16_t* weight,
                           uint16_t* sum, uint16_t* normed, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * columns;
    float squares = 0;
    for (int64_t i = 0; i < columns; ++i) {
      sum[at + i] = f32_to_bf16(bf16_to_f32(a[at + i]) + bf16_to_f32(b[at + i]));
      const float v = bf16_to_f32(sum[at + i]);
      squares += v * v;
    }
    const float scale = 1 / std::sqrt(squares / static_cast<float>(columns) + 1e-6f);
    for (int64_t i = 0; i < columns; ++i)
      normed[at + i] = f32_to_bf16(bf16_to_f32(sum[at + i]) * scale * bf16_to_f32(weight[i]));
  }
}

void column_sum_f32(const float* x, float* out, int64_t rows, int64_t columns) {
#pragma omp parallel
  {
    std::vector<float> mine(static_cast<size_t>(columns));
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i) mine[static_cast<size_t>(i)] += x[row * columns + i];
#pragma omp single
    for (int64_t i = 0; i < columns; ++i) out[i] = 0;
#pragma omp critical
    for (int64_t i = 0; i < columns; ++i) out[i] += mine[static_cast<size_t>(i)];
  }
}

}  // namespace kiln::bench
