// Features of a CUDA device that C++ has no words for, as generated kernels use them. All PTX and
// all builtins that need a real device stand in this file: the tests put a file of the same names
// in its place and run everything after it on the CPU, one fiber a thread.
#ifndef KILN_ON_HOST

#define KILN_INLINE static __device__ __forceinline__
#define KILN_MEMBER __device__ __forceinline__
#define KILN_CONSTANT static constexpr __device__
#define KILN_OUTLINE static __device__ __noinline__
#define KILN_KERNEL(threads, blocks_an_sm) \
  extern "C" __global__ void __launch_bounds__(threads, blocks_an_sm)

extern __shared__ char4 kiln_shared_words[];

namespace {

// ---- Where this thread stands. The grid has one dimension.
KILN_INLINE int thread_index() { return threadIdx.x; }
KILN_INLINE unsigned block_index() { return blockIdx.x; }
// The dynamic shared memory of this block, 16-byte aligned.
KILN_INLINE char* shared_memory() { return reinterpret_cast<char*>(kiln_shared_words); }

// ---- Meeting and exchanging. Every thread of the block (warp, cluster) calls these together.
KILN_INLINE void block_barrier() { __syncthreads(); }
KILN_INLINE void warp_barrier() { __syncwarp(); }
// The value that lane (own lane ^ mask) of the warp brings. T has 4 or 8 bytes.
template <class T>
KILN_INLINE T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
// The value that lane `lane` of the warp brings.
template <class T>
KILN_INLINE T shuffle(T x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

// ---- Programmatic dependent launch. Behind the first stands what kernels in front of this one have
// written, and nobody reads any more what this one writes over; it does nothing in a kernel that was
// not launched so. The second lets the next kernel begin, once all blocks have called it: before this
// one waits, so that several lie ready behind each other.
//
// The fence is for the compiler, which takes what load_input() reads for constant and would move it in
// front of the wait; program/cubin_waits.h looks at what it made.
KILN_INLINE void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tfence.acq_rel.cta;" ::: "memory");
#endif
}
KILN_INLINE void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
// This block's number in its cluster.
KILN_INLINE int cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
KILN_INLINE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The word at this address of shared memory in block `rank` of the cluster.
KILN_INLINE unsigned remote_shared(const void* mine, int rank) {
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(mine)), remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
KILN_INLINE unsigned cluster_load(const unsigned* mine, int rank) {
  unsigned x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];"
               : "=r"(x)
               : "r"(remote_shared(mine, rank))
               : "memory");
  return x;
}
KILN_INLINE int cluster_load(const int* mine, int rank) {
  return static_cast<int>(cluster_load(reinterpret_cast<const unsigned*>(mine), rank));
}
KILN_INLINE float cluster_load(const float* mine, int rank) {
  return __uint_as_float(cluster_load(reinterpret_cast<const unsigned*>(mine), rank));
}
KILN_INLINE unsigned long cluster_load(const unsigned long* mine, int rank) {
  unsigned long x;
  asm volatile("ld.shared::cluster.u64 %0, [%1];"
               : "=l"(x)
               : "r"(remote_shared(mine, rank))
               : "memory");
  return x;
}
KILN_INLINE long cluster_load(const long* mine, int rank) {
  return static_cast<long>(cluster_load(reinterpret_cast<const unsigned long*>(mine), rank));
}
KILN_INLINE void cluster_load_16(const void* mine, int rank, unsigned* word) {
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(remote_shared(mine, rank))
               : "memory");
}
KILN_INLINE void cluster_store_16(char* mine, int rank, const unsigned (&word)[4]) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(remote_shared(mine, rank)),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
KILN_INLINE double cluster_load(const double* mine, int rank) {
  return __longlong_as_double(cluster_load(reinterpret_cast<const long*>(mine), rank));
}
#endif

// ---- Global memory, `Bits` of 1, 2, 4, 8 or 16 bytes in 4-byte words; addresses are multiples of
// the size. Inputs do not change behind the wait, so reading them goes past coherence.
template <int bytes>
struct Bits {
  unsigned word[bytes < 4 ? 1 : bytes / 4];
};
KILN_INLINE void load_input(const void* p, Bits<16>& x) {
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
      : "l"(p));
}
KILN_INLINE void load_input(const void* p, Bits<8>& x) {
  asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(x.word[0]), "=r"(x.word[1]) : "l"(p));
}
KILN_INLINE void load_input(const void* p, Bits<4>& x) {
  asm("ld.global.nc.u32 %0, [%1];" : "=r"(x.word[0]) : "l"(p));
}
KILN_INLINE void load_input(const void* p, Bits<2>& x) {
  unsigned short half;
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(p));
  x.word[0] = half;
}
KILN_INLINE void load_input(const void* p, Bits<1>& x) {
  asm("ld.global.nc.u8 %0, [%1];" : "=r"(x.word[0]) : "l"(p));
}

KILN_INLINE void store_output(void* p, const Bits<16>& x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.word[0]),
               "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
               : "memory");
}
KILN_INLINE void store_output(void* p, const Bits<8>& x) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.word[0]), "r"(x.word[1])
               : "memory");
}
KILN_INLINE void store_output(void* p, const Bits<4>& x) {
  *static_cast<unsigned*>(p) = x.word[0];
}
KILN_INLINE void store_output(void* p, const Bits<2>& x) {
  *static_cast<unsigned short*>(p) = static_cast<unsigned short>(x.word[0]);
}
KILN_INLINE void store_output(void* p, const Bits<1>& x) {
  *static_cast<unsigned char*>(p) = static_cast<unsigned char>(x.word[0]);
}
// The same for what nobody reads soon: first to leave the L2.
KILN_INLINE void stream_output(void* p, const Bits<16>& x) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.word[0]),
               "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
               : "memory");
}
KILN_INLINE void stream_output(void* p, const Bits<8>& x) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.word[0]), "r"(x.word[1])
               : "memory");
}
template <int bytes>
KILN_INLINE void stream_output(void* p, const Bits<bytes>& x) { store_output(p, x); }

// From global to this block's shared memory without a stop in registers, for the thread that copies
// alone to read, after copies_arrived(). Any number may be under way.
template <int bytes>
KILN_INLINE void copy_input(const void* from, void* to) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(bytes)
                 : "memory");
}
KILN_INLINE void copies_arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- Copies of 16 bytes from global into shared memory that go on while the thread does other
// work; both addresses are multiples of 16. `bytes` (0 to 16) are read, the rest become zeros.
KILN_INLINE unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
KILN_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
// Ends a group of copies; waits until at most `groups_left` of this thread's groups are under way.
KILN_INLINE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups_left>
KILN_INLINE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

// ---- The tensor cores, a whole warp together; fragments as the PTX ISA lays them over lanes.
// d [16, 8] += a [16, 16] * b [16, 8] of half types; tf32 (f32 bits, the low 13 ignored): depth 8.
KILN_INLINE void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KILN_INLINE void mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KILN_INLINE void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Rounded away from zero.
KILN_INLINE float add_away(float a, float b) {
  const float up = __fadd_ru(a, b), down = __fadd_rd(a, b);
  return fabsf(down) > fabsf(up) ? down : up;
}
// Four matrices of 8 rows of 16 bytes in shared memory: lane 8i + r brings the address of row r of
// matrix i. Of each, a lane gets word lane % 4 of row lane / 4; transposed (16-bit elements), rows
// 2 (lane % 4) and the next of column lane / 4.
KILN_INLINE void ldmatrix_x4(unsigned (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}
KILN_INLINE void ldmatrix_x4_trans(unsigned (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}

// ---- The half types: two a word, the first in the low half. To nearest even.
KILN_INLINE unsigned pack_bf16(float low, float high) {
  unsigned x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
KILN_INLINE unsigned pack_f16(float low, float high) {
  unsigned x;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
KILN_INLINE float f16_to_f32(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

// The two 8-bit floats (e4m3) in a word's lower half as two f16s, which have all these values.
#if __CUDA_ARCH__ >= 890
#define KILN_F8_PAIRS 1  // the instruction exists
KILN_INLINE unsigned f8e4m3x2_to_f16x2(unsigned two) {
  unsigned x;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(x) : "h"(static_cast<unsigned short>(two)));
  return x;
}
#endif

// ---- Bits and numbers.
KILN_INLINE float as_float(unsigned x) { return __uint_as_float(x); }
KILN_INLINE unsigned as_bits(float x) { return __float_as_uint(x); }
KILN_INLINE double as_double(unsigned low, unsigned high) {
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
}
KILN_INLINE unsigned low_bits(double x) { return static_cast<unsigned>(__double2loint(x)); }
KILN_INLINE unsigned high_bits(double x) { return static_cast<unsigned>(__double2hiint(x)); }
KILN_INLINE unsigned long high_product(unsigned long a, unsigned long b) { return __umul64hi(a, b); }
// Within two units in the last place; what is not normal is zero.
KILN_INLINE float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KILN_INLINE float quick_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KILN_INLINE float max_or_nan(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}
KILN_INLINE float min_or_nan(float a, float b) {
  float x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}
KILN_INLINE float infinity_f32() { return __int_as_float(0x7f800000); }
KILN_INLINE float nan_f32() { return __int_as_float(0x7fffffff); }
KILN_INLINE double infinity_f64() { return __longlong_as_double(0x7ff0000000000000); }
KILN_INLINE double nan_f64() { return __longlong_as_double(0x7fffffffffffffff); }

}  // namespace
#endif  // KILN_ON_HOST
