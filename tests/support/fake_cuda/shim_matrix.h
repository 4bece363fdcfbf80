// Asynchronous copies and the tensor cores of cuda_shim.h. The fragments of a matrix lie over the
// lanes of a warp as the PTX ISA says ("Matrix fragments for mma.m16n8k16", "... .m16n8k8"): with
// group = lane / 4 and t = lane % 4, a lane holds rows group and group + 8 of A and D, and column
// group of B; of D the columns 2t and 2t + 1.
#pragma once

namespace kiln_fake {

inline int lane() {
  return kiln_fake_current->index % kWarpThreads;
}
inline void need_whole_warp() {
  if (kiln_fake_current->warp_lanes != kWarpThreads)
    fault(FaultKind::kLaunchFailed, "a matrix operation in a warp of fewer than 32 threads",
          nullptr);
}

struct MatrixBf16 {
  static constexpr int kDepth = 16;
  static float value(const unsigned word, int half) {
    return bits_to<float>(half != 0 ? word & 0xffff0000u : word << 16);
  }
};
struct MatrixF16 {
  static constexpr int kDepth = 16;
  static float value(unsigned word, int half) {
    return f16_value(static_cast<unsigned short>(word >> (16 * half)));
  }
};
struct MatrixTf32 {
  static constexpr int kDepth = 8;
  // The tensor cores do not look at the low 13 bits.
  static float value(unsigned word, int) { return bits_to<float>(word & 0xffffe000u); }
};

// d += a * b: 16 by 8, over the depth of the type. Each lane shows its a and b.
template <class Type>
inline void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  need_whole_warp();
  const unsigned shown[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const int turn = exchange(shown, 6, Meeting::kMatrix);
  const Thread* warp = kiln_fake_current->warp;
  const int group = lane() / 4, t = lane() % 4;
  constexpr int kHalves = Type::kDepth / 8;  // elements in a word
  for (int i = 0; i < 4; ++i) {
    const int row_half = i / 2, column = 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < Type::kDepth; ++k) {
      const int upper = k / (4 * kHalves), owner = k / kHalves % 4, half = k % kHalves;
      const unsigned* of_a = warp[group * 4 + owner].exchange[turn];
      const unsigned* of_b = warp[column * 4 + owner].exchange[turn];
      sum += Type::value(of_a[row_half + 2 * upper], half) * Type::value(of_b[4 + upper], half);
    }
    d[i] += sum;
  }
}

// Lane 8i + r brings the address of row r (16 bytes) of matrix i. A lane gets, of each matrix,
// row group, elements 2t and 2t + 1; transposed, rows 2t and 2t + 1 of column group.
template <int matrices, bool transposed>
inline void load_matrices(unsigned* x, const void* row) {
  need_whole_warp();
  if (lane() < 8 * matrices) check_aligned<16>(row);
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

}  // namespace kiln_fake

namespace {

// ---- Copies into shared memory: `bytes` of the 16, the rest zeros. What is copied appears only
// when the copying thread waits for it, so a kernel that forgets to wait reads what was there.
KILN_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  kiln_fake::check_aligned<16>(shared);
  if (bytes > 0) kiln_fake::check_aligned<16>(global);
  kiln_fake_current->copy_later(shared, global, bytes);
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
