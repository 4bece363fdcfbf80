// The device primitives of kernels/printing/device/device.cuh on a CPU: forced into every generated
// source (-include), whose own text of them is left out by KILN_ON_HOST. Every device thread is a
// fiber of the engine (grid.h); what a GPU would do wrong quietly ends the launch with an error
// here: misaligned vectors, lanes that do not come to a meeting, undefined behaviour that the
// compiler can see. Includes no system header, so that a kernel compiles quickly.
#pragma once
// The same name in every clone: the sanitizers' messages, and so the objects, have it.
#line 9 "cuda_shim.h"

#include "device_thread.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static  // of the one block that runs; not for clusters
#define __constant__ const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define KILN_INLINE [[maybe_unused]] static inline
#define KILN_MEMBER inline
#define KILN_CONSTANT static constexpr
#define KILN_OUTLINE [[maybe_unused]] static __attribute__((noinline))
#define KILN_KERNEL(threads, blocks_an_sm) extern "C" void

static kiln_fake::Thread* kiln_fake_current;

#include "shim_math.h"

namespace kiln_fake {

template <class To, class From>
inline To bits_to(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

[[noreturn]] inline void fault(FaultKind kind, const char* message, const void* address) {
  kiln_fake_current->fault(kind, message, address, 0);
  __builtin_unreachable();
}

// What a GPU requires of an address.
template <int bytes>
inline void check_aligned(const void* p) {
  if (reinterpret_cast<unsigned long>(p) % bytes != 0)
    fault(FaultKind::kMisaligned,
          bytes == 16  ? "misaligned access of 16 bytes"
          : bytes == 8 ? "misaligned access of 8 bytes"
                       : "misaligned access",
          p);
}

// Global memory at `p` is read.
inline void check_ready(const void* p) {
  const Thread* self = kiln_fake_current;
  if (self->waited) return;
  for (int i = 0; i < self->unready_count; ++i)
    if (p >= self->unready[i].begin && p < self->unready[i].end)
      fault(FaultKind::kIllegalAddress, "a load that does not wait for the kernel in front", p);
}

// Shows `words` to the warp and waits for the others' at a meeting of the same kind. The result:
// which half of everybody's `exchange` holds them.
inline int exchange(const unsigned* words, int count, Meeting kind) {
  Thread* self = kiln_fake_current;
  const int turn = self->turn;
  self->turn ^= 1;
  for (int i = 0; i < count; ++i) self->exchange[turn][i] = words[i];
  self->meet(kind);
  return turn;
}
template <class T>
inline T shuffle_from(T x, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  unsigned words[2] = {};
  __builtin_memcpy(words, &x, sizeof x);
  const int turn = exchange(words, sizeof(T) / 4, Meeting::kShuffle);
  Thread* self = kiln_fake_current;
  if (lane < 0 || lane >= self->warp_lanes)
    fault(FaultKind::kLaunchFailed, "a shuffle reads a lane that does not exist", nullptr);
  __builtin_memcpy(&x, self->warp[lane].exchange[turn], sizeof x);
  return x;
}

// `bytes` at `p` are shared memory of this block.
inline void check_shared(const void* p, int bytes) {
  const long offset = static_cast<const char*>(p) - kiln_fake_current->shared;
  if (offset < 0 || offset + bytes > kiln_fake_current->shared_bytes)
    fault(FaultKind::kIllegalAddress, "an access outside shared memory", p);
}

// `bytes` of `size` from global into shared memory, the rest zeros. What is copied appears only
// when the copying thread waits for it, so a kernel that forgets to wait reads what was there.
template <int size>
inline void copy_async(void* shared, const void* global, int bytes) {
  check_aligned<size>(shared);
  check_shared(shared, size);
  if (bytes > 0) check_aligned<size>(global);
  if (bytes > 0) check_ready(global);
  kiln_fake_current->copy_later(shared, global, bytes, size);
}

// Thread 0 of block `rank` of the cluster.
inline Thread* block_of_cluster(int rank) {
  Thread* self = kiln_fake_current;
  if (rank < 0 || rank >= self->cluster_size)
    fault(FaultKind::kIllegalAddress, "an access to a block that the cluster lacks", nullptr);
  return self->cluster + static_cast<long>(rank) * self->block_threads;
}

// The address in block `rank` of the cluster that `mine` is in this one.
inline char* in_cluster(const void* mine, int bytes, int rank) {
  const long offset = static_cast<const char*>(mine) - kiln_fake_current->shared;
  check_shared(mine, bytes);
  Thread* other = block_of_cluster(rank);
  int left = 0;
  for (int i = 0; i < other->block_threads && left == 0; ++i) left += other[i].ended ? 0 : 1;
  if (left == 0)
    fault(FaultKind::kIllegalAddress,
          "an access to a block of the cluster that has ended: a cluster barrier is missing",
          nullptr);
  return other->shared + offset;
}

// All threads of the other block have to have arrived where the cluster meets: else it may not have begun.
template <int bytes>
inline void store_in_cluster(void* mine, int rank, const void* x) {
  check_aligned<bytes>(mine);
  const Thread* other = block_of_cluster(rank);
  for (int i = 0; i < other->block_threads; ++i)
    if (!other[i].has_begun)
      fault(FaultKind::kIllegalAddress, "a store to a block of the cluster that may not have begun",
            nullptr);
  __builtin_memcpy(in_cluster(mine, bytes, rank), x, bytes);
}

// f32 to a half type, to nearest even, as the CPU's own conversion has it.
inline unsigned bf16_bits(float x) {
  const unsigned bits = bits_to<unsigned>(x);
  if (x != x) return 0x7fff;  // the NaN that the GPU's conversion gives
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned f16_bits(float x) {
  if (x != x) return 0x7fff;
  return bits_to<unsigned short>(static_cast<_Float16>(x));
}
inline float f16_value(unsigned short x) {
  return static_cast<float>(bits_to<_Float16>(x));
}

}  // namespace kiln_fake
using CUtensorMap = kiln_fake::TensorMap;
namespace kiln_fake {

// threadIdx and its like: x alone.
struct Index {
  unsigned x, y, z;
};

// Calls a kernel with what the parameters point at.
template <int... I>
struct Indices {};
template <class... P, int... I>
inline void call_with(void (*kernel)(P...), void* const* parameters, Indices<I...>) {
  static_assert(((sizeof(P) == 8 || sizeof(P) == sizeof(TensorMap)) && ...),
                "a kernel takes pointers, int64_t and tensor maps alone");
  kernel(*static_cast<const P*>(parameters[I])...);
}
template <class... P>
inline void call(void (*kernel)(P...), void* const* parameters) {
  call_with(kernel, parameters, Indices<__integer_pack(sizeof...(P))...>());
}
template <class... P>
constexpr int parameter_count(void (*)(P...)) {
  return sizeof...(P);
}
template <class... P>
inline constexpr int kParameterBytes[] = {static_cast<int>(sizeof(P))..., 0};
template <class... P>
constexpr const int* parameter_bytes(void (*)(P...)) {
  return kParameterBytes<P...>;
}

// By the driver's CUtensorMapDataType.
inline int element_bytes_of(const TensorMap& map) {
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[map.dtype];
}

// Calls visit(in shared memory, outside it, bytes, whether it is inside the tensor) for every
// element of the box at `at` (an index an axis, innermost first), with 16-byte pieces exchanged as
// the map's swizzle says.
template <class Pointer, class Visit>
inline void walk_box(const TensorMap& map, int element_bytes, Pointer shared, const int* at,
                     Visit visit) {
  int index[5] = {};
  for (long element = 0;; ++element) {
    bool inside = true;
    char* outside = map.address;
    for (int axis = 0; axis < map.rank; ++axis) {
      const long position = at[axis] + static_cast<long>(index[axis]) * map.element_strides[axis];
      inside = inside && position >= 0 && position < static_cast<long>(map.sizes[axis]);
      outside += position * (axis == 0 ? element_bytes : static_cast<long>(map.strides[axis - 1]));
    }
    long to = element * element_bytes;
    const long row_mask = (1l << map.swizzle) - 1;  // 128 bytes: 8 pieces, exchanged over 8 rows
    to ^= (to >> 7 & row_mask) << 4;
    check_shared(shared + to, element_bytes);
    visit(shared + to, outside, element_bytes, inside);
    int axis = 0;
    while (axis < map.rank && ++index[axis] == map.box[axis]) index[axis++] = 0;
    if (axis == map.rank) return;
  }
}

// As the copy engine brings a box: zeros outside the tensor.
inline void load_box(const TensorMap& map, int element_bytes, char* shared, const int* at) {
  check_ready(map.address);
  walk_box(map, element_bytes, shared, at, [](char* to, const char* from, int bytes, bool inside) {
    for (int byte = 0; byte < bytes; ++byte) to[byte] = inside ? from[byte] : 0;
  });
}

}  // namespace kiln_fake

namespace {

// ---- Where this thread stands; CUDA's own words are for sources that have no device.cuh.
#define threadIdx (kiln_fake::Index{static_cast<unsigned>(kiln_fake_current->index), 0, 0})
#define blockIdx (kiln_fake::Index{kiln_fake_current->block, 0, 0})
#define blockDim (kiln_fake::Index{static_cast<unsigned>(kiln_fake_current->block_threads), 1, 1})
#define gridDim (kiln_fake::Index{kiln_fake_current->blocks, 1, 1})
#define __syncthreads() block_barrier()
#define __syncwarp() warp_barrier()
KILN_INLINE int thread_index() {
  return kiln_fake_current->index;
}
KILN_INLINE unsigned block_index() {
  return kiln_fake_current->block;
}
KILN_INLINE char* shared_memory() {
  return kiln_fake_current->shared;
}

// ---- Meeting and exchanging.
KILN_INLINE void block_barrier() {
  kiln_fake_current->meet(kiln_fake::Meeting::kBlock);
}
KILN_INLINE void warp_barrier() {
  kiln_fake_current->meet(kiln_fake::Meeting::kWarp);
}
template <class T>
KILN_INLINE T shuffle_xor(T x, int mask) {
  return kiln_fake::shuffle_from(x, kiln_fake_current->index % kiln_fake::kWarpThreads ^ mask);
}
template <class T>
KILN_INLINE T shuffle(T x, int lane) {
  return kiln_fake::shuffle_from(x, lane);
}
// Kernels begin when the ones before have ended here, blocks one after another.
KILN_INLINE void wait_for_kernel_before() {
  kiln_fake_current->waited = true;
}
KILN_INLINE void let_next_kernel_begin() {}
// As on a device: where there are no clusters, there are no words for them.
#if __CUDA_ARCH__ >= 900
KILN_INLINE int cluster_rank() {
  return kiln_fake_current->rank;
}
KILN_INLINE void cluster_barrier() {
  kiln_fake_current->has_begun = true;
  kiln_fake_current->meet(kiln_fake::Meeting::kCluster);
}
// A wait that lets a thread go on when all threads of the cluster have begun could let it do so before
// they wait, too: here they meet, which is one of the orders that there may be.
KILN_INLINE void cluster_has_begun() {
  kiln_fake_current->has_begun = true;
}
KILN_INLINE void wait_for_cluster() {
  kiln_fake_current->meet(kiln_fake::Meeting::kCluster);
}
KILN_INLINE void cluster_store(float* mine, int rank, float x) {
  kiln_fake::store_in_cluster<sizeof x>(mine, rank, &x);
}
KILN_INLINE void cluster_store_16(char* mine, int rank, const unsigned (&word)[4]) {
  kiln_fake::store_in_cluster<16>(mine, rank, word);
}
KILN_INLINE void cluster_load_16(const void* mine, int rank, unsigned* word) {
  kiln_fake::check_aligned<16>(mine);
  __builtin_memcpy(word, kiln_fake::in_cluster(mine, 16, rank), 16);
}
template <class T>
KILN_INLINE T cluster_load(const T* mine, int rank) {
  kiln_fake::check_aligned<sizeof(T)>(mine);
  T x;
  __builtin_memcpy(&x, kiln_fake::in_cluster(mine, sizeof(T), rank), sizeof x);
  return x;
}
#endif

// ---- Global memory.
template <int bytes>
struct Bits {
  unsigned word[bytes < 4 ? 1 : bytes / 4];
};
template <int bytes>
KILN_INLINE void load_input(const void* p, Bits<bytes>& x) {
  kiln_fake::check_aligned<bytes>(p);
  kiln_fake::check_ready(p);
  x.word[0] = 0;
  __builtin_memcpy(x.word, p, bytes);
}
template <int bytes>
KILN_INLINE void copy_input(const void* from, void* to) {
  kiln_fake::copy_async<bytes>(to, from, bytes);
}
KILN_INLINE void copies_arrived() {
  kiln_fake_current->finish_copies(-1);
}
template <int bytes>
KILN_INLINE void store_output(void* p, const Bits<bytes>& x) {
  kiln_fake::check_aligned<bytes>(p);
  __builtin_memcpy(p, x.word, bytes);
}
template <int bytes>
KILN_INLINE void stream_output(void* p, const Bits<bytes>& x) {
  store_output(p, x);
}

// ---- The half types.
KILN_INLINE unsigned pack_bf16(float low, float high) {
  return kiln_fake::bf16_bits(low) | kiln_fake::bf16_bits(high) << 16;
}
KILN_INLINE unsigned pack_f16(float low, float high) {
  return kiln_fake::f16_bits(low) | kiln_fake::f16_bits(high) << 16;
}
KILN_INLINE float f16_to_f32(unsigned short x) {
  return kiln_fake::f16_value(x);
}

// ---- Bits and numbers.
KILN_INLINE float as_float(unsigned x) {
  return kiln_fake::bits_to<float>(x);
}
KILN_INLINE unsigned as_bits(float x) {
  return kiln_fake::bits_to<unsigned>(x);
}
KILN_INLINE double as_double(unsigned low, unsigned high) {
  return kiln_fake::bits_to<double>(static_cast<unsigned long>(high) << 32 | low);
}
KILN_INLINE unsigned low_bits(double x) {
  return static_cast<unsigned>(kiln_fake::bits_to<unsigned long>(x));
}
KILN_INLINE unsigned high_bits(double x) {
  return static_cast<unsigned>(kiln_fake::bits_to<unsigned long>(x) >> 32);
}
KILN_INLINE unsigned long high_product(unsigned long a, unsigned long b) {
  return static_cast<unsigned long>(static_cast<unsigned __int128>(a) * b >> 64);
}
KILN_INLINE float quick_exp2(float x) {
  return exp2f(x);
}
KILN_INLINE float quick_reciprocal(float x) {
  return 1 / x;
}
KILN_INLINE float max_or_nan(float a, float b) {
  return a != a || b != b ? as_float(0x7fffffff) : fmaxf(a, b);
}
KILN_INLINE float min_or_nan(float a, float b) {
  return a != a || b != b ? as_float(0x7fffffff) : fminf(a, b);
}
KILN_INLINE float infinity_f32() {
  return as_float(0x7f800000);
}
KILN_INLINE float nan_f32() {
  return as_float(0x7fffffff);
}
KILN_INLINE double infinity_f64() {
  return as_double(0, 0x7ff00000);
}
KILN_INLINE double nan_f64() {
  return as_double(0xffffffff, 0x7fffffff);
}

}  // namespace

#include "shim_matrix.h"
#include "shim_warpgroup.h"

// ---- What the compiler checks (-fsanitize=alignment,bounds-strict) is reported like a fault of
// the device. The layouts are those of GCC's calls.
struct KilnFakeSourceLocation {
  const char* file;
  unsigned line, column;
};
extern "C" {
__attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(void* at,
                                                                                 void* address) {
  kiln_fake_current->fault(kiln_fake::FaultKind::kMisaligned, "misaligned access", address,
                           static_cast<KilnFakeSourceLocation*>(at)->line);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(void* at,
                                                                              void* index) {
  kiln_fake_current->fault(kiln_fake::FaultKind::kIllegalAddress, "an index beyond a local array",
                           index, static_cast<KilnFakeSourceLocation*>(at)->line);
}
}
