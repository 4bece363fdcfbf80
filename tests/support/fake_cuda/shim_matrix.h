// Asynchronous copies and the tensor cores of cuda_shim.h. The fragments of a matrix lie over the
// lanes of a warp as the PTX ISA says ("Matrix fragments for mma.m16n8k16", "... .m16n8k8"): with
// group = lane / 4 and t = lane % 4, a lane holds rows group and group + 8 of A and D, and column
// group of B; of D the columns 2t and 2t + 1.
#pragma once
#line 7 "shim_matrix.h"

namespace kiln_fake {

inline int lane() {
  return kiln_fake_current->index % kWarpThreads;
}
inline void need_whole_warp() {
  if (kiln_fake_current->warp_lanes != kWarpThreads)
    fault(FaultKind::kLaunchFailed, "a matrix operation in a warp of fewer than 32 threads",
          nullptr);
}

// Element `half` of a register of a fragment, or of an operand in shared memory. kHalves: elements in
// a register.
struct MatrixBf16 {
  using Value = float;
  static constexpr bool kTruncates = false;
  static constexpr int kHalves = 2, kBytes = 2;
  static constexpr bool kAddsIn13Bits = false;
  static float value(unsigned word, int half) {
    return bits_to<float>(half != 0 ? word & 0xffff0000u : word << 16);
  }
};
struct MatrixF16 {
  using Value = float;
  static constexpr bool kTruncates = false;
  static constexpr int kHalves = 2, kBytes = 2;
  static constexpr bool kAddsIn13Bits = false;
  static float value(unsigned word, int half) {
    return f16_value(static_cast<unsigned short>(word >> (16 * half)));
  }
};
struct MatrixTf32 {
  static constexpr int kHalves = 1;
  static constexpr bool kTruncates = true;
  // The tensor cores do not look at the low 13 bits.
  static float value(unsigned word, int) { return bits_to<float>(word & 0xffffe000u); }
};

// What a warpgroup alone multiplies, of one byte.
struct MatrixE5m2 {
  using Value = float;
  static constexpr int kBytes = 1;
  static constexpr bool kAddsIn13Bits = true;
  // The upper half of an f16.
  static float value(unsigned byte, int) {
    return f16_value(static_cast<unsigned short>((byte & 0xff) << 8));
  }
};
struct MatrixE4m3 {
  using Value = float;
  static constexpr int kBytes = 1;
  static constexpr bool kAddsIn13Bits = true;
  // The exponent's bias is less than an f16's by 8; all ones are no number.
  static float value(unsigned byte, int) {
    if ((byte & 0x7f) == 0x7f) return __builtin_nanf("");
    return 256 * f16_value(static_cast<unsigned short>((byte & 0x80) << 8 | (byte & 0x7f) << 7));
  }
};
struct MatrixS8 {
  using Value = int;
  static constexpr int kBytes = 1;
  static constexpr bool kAddsIn13Bits = false;
  static int value(unsigned byte, int) { return static_cast<signed char>(byte); }
};
struct MatrixU8 {
  using Value = int;
  static constexpr int kBytes = 1;
  static constexpr bool kAddsIn13Bits = false;
  static int value(unsigned byte, int) { return static_cast<unsigned char>(byte); }
};

// The nearest f32 that is no larger in magnitude.
inline float truncated(double x) {
  const float nearest = static_cast<float>(x);
  const bool is_past = __builtin_fabs(static_cast<double>(nearest)) > __builtin_fabs(x);
  return is_past ? bits_to<float>(bits_to<unsigned>(nearest) - 1) : nearest;
}
// The nearest f32 that is no smaller in magnitude than a + b.
inline float rounded_away(float a, float b) {
  const double sum = static_cast<double>(a) + b, of_b = sum - a;
  const double rest = (a - (sum - of_b)) + (b - of_b);  // what the sum of doubles has lost
  const float nearest = static_cast<float>(sum);
  const double missing = (sum - nearest) + rest;
  const bool is_short = nearest > 0 ? missing > 0 : missing < 0;
  return is_short && nearest != 0 ? bits_to<float>(bits_to<unsigned>(nearest) + 1) : nearest;
}

// d += a * b: 16 by 8, over 8 registers' depth. Of a row of A (a column of B) a lane has a register
// at depth t and one at depth t + 4; it shows them as f32, one vector a row. Sums of tf32 products
// are truncated as the tensor cores do; those of halves have a last place that nobody asks for.
typedef float Depths __attribute__((vector_size(16)));
typedef double WideDepths __attribute__((vector_size(32)));
template <bool truncates>
struct DepthSums {
  using type = Depths;
};
template <>
struct DepthSums<true> {
  using type = WideDepths;
};
template <class Type>
inline void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  need_whole_warp();
  float shown[12] = {};  // A's row group, A's row group + 8, B's column group
  for (int deeper = 0; deeper < 2; ++deeper)
    for (int half = 0; half < Type::kHalves; ++half) {
      const int at = deeper * 2 + half;
      shown[at] = Type::value(a[deeper * 2], half);
      shown[4 + at] = Type::value(a[deeper * 2 + 1], half);
      shown[8 + at] = Type::value(b[deeper], half);
    }
  unsigned words[12];
  __builtin_memcpy(words, shown, sizeof words);
  const int turn = exchange(words, 12, Meeting::kMatrix);
  const Thread* of_a = kiln_fake_current->warp + lane() / 4 * 4;
  const Thread* of_b = kiln_fake_current->warp + lane() % 4 * 8;
  using Sums = typename DepthSums<Type::kTruncates>::type;
  Sums sum[4] = {};
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 4; ++i) {
      Depths row, column;
      __builtin_memcpy(&row, of_a[t].exchange[turn] + i / 2 * 4, sizeof row);
      __builtin_memcpy(&column, of_b[i % 2 * 4 + t].exchange[turn] + 8, sizeof column);
      sum[i] += __builtin_convertvector(row, Sums) * __builtin_convertvector(column, Sums);
    }
  for (int i = 0; i < 4; ++i) {
    const auto products = (sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3]);
    d[i] = Type::kTruncates ? truncated(d[i] + products) : static_cast<float>(d[i] + products);
  }
}

// Lane 8i + r brings the address of row r (16 bytes) of matrix i. A lane gets, of each matrix,
// row group, elements 2t and 2t + 1; transposed, rows 2t and 2t + 1 of column group.
template <int matrices, bool transposed>
inline void load_matrices(unsigned* x, const void* row) {
  need_whole_warp();
  if (lane() < 8 * matrices) {
    check_aligned<16>(row);
    check_shared(row, 16);
  }
  unsigned words[2];
  __builtin_memcpy(words, &row, sizeof row);
  const int turn = exchange(words, 2, Meeting::kMatrix);
  const Thread* warp = kiln_fake_current->warp;
  const int group = lane() / 4, t = lane() % 4;
  for (int i = 0; i < matrices; ++i) {
    unsigned pair = 0;
    for (int j = 0; j < 2; ++j) {
      const int r = transposed ? 2 * t + j : group, element = transposed ? group : 2 * t + j;
      const unsigned short* from;
      __builtin_memcpy(&from, warp[8 * i + r].exchange[turn], sizeof from);
      pair |= static_cast<unsigned>(from[element]) << (16 * j);
    }
    x[i] = pair;
  }
}

// The way back, of four matrices.
inline void store_matrices(void* row, const unsigned (&x)[4]) {
  need_whole_warp();
  check_aligned<16>(row);
  check_shared(row, 16);
  const int turn = exchange(x, 4, Meeting::kMatrix);
  for (int t = 0; t < 4; ++t)
    __builtin_memcpy(static_cast<char*>(row) + t * 4,
                     &kiln_fake_current->warp[lane() % 8 * 4 + t].exchange[turn][lane() / 8], 4);
}

}  // namespace kiln_fake

namespace {

// ---- Copies into shared memory.
KILN_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  kiln_fake::copy_async<16>(shared, global, bytes);
}
KILN_INLINE void cp_async_commit() {
  kiln_fake_current->commit_copies();
}
template <int groups_left>
KILN_INLINE void cp_async_wait() {
  kiln_fake_current->finish_copies(groups_left);
}

// ---- The tensor cores. tf32 words are f32 bits.
KILN_INLINE void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  kiln_fake::multiply<kiln_fake::MatrixBf16>(d, a, b);
}
KILN_INLINE void mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  kiln_fake::multiply<kiln_fake::MatrixF16>(d, a, b);
}
KILN_INLINE void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  kiln_fake::multiply<kiln_fake::MatrixTf32>(d, a, b);
}
KILN_INLINE float add_away(float a, float b) {
  return kiln_fake::rounded_away(a, b);
}
KILN_INLINE void ldmatrix_x4(unsigned (&x)[4], const void* row) {
  kiln_fake::load_matrices<4, false>(x, row);
}
KILN_INLINE void ldmatrix_x4_trans(unsigned (&x)[4], const void* row) {
  kiln_fake::load_matrices<4, true>(x, row);
}
KILN_INLINE void ldmatrix_x2(unsigned (&x)[2], const void* row) {
  kiln_fake::load_matrices<2, false>(x, row);
}
KILN_INLINE void ldmatrix_x2_trans(unsigned (&x)[2], const void* row) {
  kiln_fake::load_matrices<2, true>(x, row);
}

}  // namespace
