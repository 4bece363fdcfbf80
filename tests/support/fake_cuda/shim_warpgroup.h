// Barriers in shared memory, the copy engine and a warpgroup's tensor cores: the words of
// kernels/wgmma/device/warpgroup.cuh. Copies into shared memory and products are done when they are
// begun; a kernel that reads before it waits, or fills a slot that is still read, reads what is not
// there yet or not any more only where the order of the threads shows it. Boxes that are stored
// leave shared memory when the thread waits for that, and never if it does not.
#pragma once
#line 8 "shim_warpgroup.h"

namespace kiln_fake {

// What stands in a barrier's 8 bytes.
struct Barrier {
  short arrivals, left;  // of a phase; still to come
  int bytes : 31;        // that copies of this phase still bring
  unsigned parity : 1;   // of this phase
};
static_assert(sizeof(Barrier) == 8);

inline Barrier& barrier_at(char* p) {
  check_aligned<8>(p);
  check_shared(p, 8);
  return *reinterpret_cast<Barrier*>(p);
}
inline void end_if_complete(Barrier& barrier) {
  if (barrier.left != 0 || barrier.bytes != 0) return;
  barrier.left = barrier.arrivals;
  barrier.parity ^= 1;
  ++*kiln_fake_current->phases;
}
inline void arrive(char* p, int bytes) {
  Barrier& barrier = barrier_at(p);
  if (barrier.left <= 0)
    fault(FaultKind::kLaunchFailed, "more arrivals at a barrier than it was made for", p);
  --barrier.left;
  barrier.bytes += bytes;
  end_if_complete(barrier);
}

inline NumberedBarrier& numbered_barrier(int number) {
  Thread& first = *(kiln_fake_current - kiln_fake_current->index);
  if (number < 0 || number >= kNumberedBarriers)
    fault(FaultKind::kLaunchFailed, "a barrier of no such number", nullptr);
  return first.numbered[number];
}
// A block begins with equal parts of 64 K registers, in multiples of 8 a thread. A device lets those
// wait for ever that ask for more than the others leave.
inline void ask_for_registers(int registers) {
  const int threads = kiln_fake_current->block_threads;
  const int each = 65536 / threads / 8 * 8;
  Thread& first = *(kiln_fake_current - kiln_fake_current->index);
  first.registers += registers;
  if (first.registers > (each < 256 ? each : 256) * threads)
    fault(FaultKind::kLaunchFailed, "the block's threads ask for more registers than it has",
          nullptr);
}
inline void arrive(NumberedBarrier& barrier, int threads) {
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  ++barrier.phase;
  ++*kiln_fake_current->phases;
}
inline void wait(NumberedBarrier& barrier, int threads) {
  const int phase = barrier.phase;
  arrive(barrier, threads);
  while (barrier.phase == phase) kiln_fake_current->meet(Meeting::kPhase);
}
// The tensor cores are done with what all four warps have started.
inline void meet_warpgroup() {
  Thread& first = *(kiln_fake_current - kiln_fake_current->index);
  wait(first.numbered[kNumberedBarriers + kiln_fake_current->index / 128], 128);
}

template <int rank>
inline void bring_box(char* to, const TensorMap* map, char* p, const int (&at)[rank]) {
  const int element_bytes = element_bytes_of(*map);
  if (map->rank != rank) fault(FaultKind::kLaunchFailed, "a copy of another rank than its map", to);
  if ((to - kiln_fake_current->shared) % 128 != 0)
    fault(FaultKind::kMisaligned, "a box that does not begin at 128 bytes", to);
  load_box(*map, element_bytes, to, at);
  int elements = 1;
  for (int axis = 0; axis < rank; ++axis) elements *= map->box[axis];
  Barrier& barrier = barrier_at(p);
  barrier.bytes -= elements * element_bytes;
  end_if_complete(barrier);
}

// As the copy engine walks a map's windows (im2col): positions are a row after the other of the box
// between its corners, an image after the other, as far apart as the map says.
inline void bring_windows(char* to, const TensorMap* map, char* p, const int (&at)[4], int right,
                          int down) {
  const int element_bytes = element_bytes_of(*map);
  check_ready(map->address);
  if (!map->is_im2col || map->rank != 4)
    fault(FaultKind::kLaunchFailed, "windows of a map that has none", to);
  if ((to - kiln_fake_current->shared) % 128 != 0)
    fault(FaultKind::kMisaligned, "windows that do not begin at 128 bytes", to);
  const int last[2] = {static_cast<int>(map->sizes[1]) - 1 + map->upper[0],
                       static_cast<int>(map->sizes[2]) - 1 + map->upper[1]};
  int place[3] = {at[1], at[2], at[3]};
  for (int axis = 0; axis < 2; ++axis)
    if (place[axis] < map->lower[axis] || place[axis] > last[axis])
      fault(FaultKind::kLaunchFailed, "windows that begin outside the map's corners", to);
  if (right < 0 || right > 255 || down < 0 || down > 255)
    fault(FaultKind::kLaunchFailed, "a window's element further than 255", to);
  const int pieces = (1 << map->swizzle) - 1;
  for (int pixel = 0; pixel < map->pixels; ++pixel) {
    const long position[3] = {place[0] + right, place[1] + down, place[2]};
    bool inside = true;
    const char* from = map->address;
    for (int axis = 0; axis < 3; ++axis) {
      inside &= position[axis] >= 0 && position[axis] < static_cast<long>(map->sizes[axis + 1]);
      from += position[axis] * static_cast<long>(map->strides[axis]);
    }
    for (int c = 0; c < map->channels; ++c) {
      const bool is_channel = inside && at[0] + c < static_cast<int>(map->sizes[0]);
      const int offset = (pixel * map->channels + c) * element_bytes;
      char* element = to + (offset ^ (offset >> 7 & pieces) << 4);
      check_shared(element, element_bytes);
      for (int byte = 0; byte < element_bytes; ++byte)
        element[byte] = is_channel ? from[(at[0] + c) * element_bytes + byte] : 0;
    }
    for (int axis = 0; axis < 3; ++axis) {
      place[axis] += map->element_strides[axis + 1];
      if (axis == 2 || place[axis] <= last[axis]) break;
      place[axis] = map->lower[axis];
    }
  }
  Barrier& barrier = barrier_at(p);
  barrier.bytes -= map->pixels * map->channels * element_bytes;
  end_if_complete(barrier);
}

inline void bring_bytes(char* to, const char* from, int bytes, char* p) {
  if (bytes % 16 != 0)
    fault(FaultKind::kLaunchFailed, "a copy of bytes that are no multiple of 16", to);
  check_aligned<16>(to);
  check_aligned<16>(from);
  check_ready(from);
  check_shared(to, bytes);
  __builtin_memcpy(to, from, bytes);
  Barrier& barrier = barrier_at(p);
  barrier.bytes -= bytes;
  end_if_complete(barrier);
}

// put_box() does this in the end.
inline void write_box(const TensorMap& map, const char* from, const int* at) {
  walk_box(map, element_bytes_of(map), from, at,
           [](const char* shared, char* outside, int bytes, bool inside) {
             if (inside) __builtin_memcpy(outside, shared, bytes);
           });
}
template <int rank>
inline void put_box(const TensorMap* map, const char* from, const int (&at)[rank]) {
  if (map->rank != rank)
    fault(FaultKind::kLaunchFailed, "a copy of another rank than its map", from);
  if ((from - kiln_fake_current->shared) % (128 << map->swizzle) != 0)
    fault(FaultKind::kMisaligned, "a box that does not begin where its swizzle does", from);
  kiln_fake_current->box_later(map, from, at, &write_box);
}

// Element (line, depth) of an operand: 128 bytes along the contiguous axis are a row, pieces of 16 of
// which are exchanged over 8 rows, from a multiple of 1024 bytes on. Elements of one byte are
// contiguous along the depth, as the tensor cores have it.
template <class Type, bool depth_inner>
inline typename Type::Value element_of(const char* tile, int line, int depth) {
  static_assert(depth_inner || Type::kBytes == 2, "transposed operands are halves");
  const int inner = depth_inner ? depth : line % 64, row = depth_inner ? line : depth;
  const char* p = tile + (depth_inner ? 0 : line / 64 * 8192) + row * 128 + inner * Type::kBytes;
  const long offset = p - kiln_fake_current->shared;
  p += ((offset >> 7 & 7) << 4 ^ (offset & 0x70)) - (offset & 0x70);
  check_shared(p, Type::kBytes);
  unsigned short bits = 0;
  __builtin_memcpy(&bits, p, Type::kBytes);
  return Type::value(bits, 0);
}

// The sum of `count` products and of `sum`, as the tensor cores of compute capability 9.0 add those of
// 8-bit floats (Xie and others, MMA-Sim): all terms are cut to 13 bits below the largest one's leading
// bit, and so is what comes out.
inline int exponent_of(double x) {
  return static_cast<int>(bits_to<unsigned long>(x) >> 52 & 0x7ff) - 1023;
}
inline double cut_below(double x, int exponent) {
  const auto power = [](int e) {
    return bits_to<double>(static_cast<unsigned long>(e + 1023) << 52);
  };
  return static_cast<double>(static_cast<long>(x * power(13 - exponent))) * power(exponent - 13);
}
template <int count>
inline float add_in_13_bits(const float (&x)[count], const float (&y)[count], float sum) {
  int most = exponent_of(sum);
  for (int k = 0; k < count; ++k) {
    const int exponent = exponent_of(static_cast<double>(x[k]) * y[k]);
    most = exponent > most ? exponent : most;
  }
  if (most == 1024) {  // an infinity, or no number: as any sum has it
    for (int k = 0; k < count; ++k) sum += x[k] * y[k];
    return sum;
  }
  if (most == -1023) return 0;
  double all = cut_below(sum, most);
  for (int k = 0; k < count; ++k) all += cut_below(static_cast<double>(x[k]) * y[k], most);
  return all == 0 ? 0 : static_cast<float>(cut_below(all, exponent_of(all)));
}

// d += rows * b: this thread's two rows of [64, 2 * count], over a depth of 32 bytes.
template <class TypeA, class TypeB, bool b_inner, class Sum, int count, int depth>
inline void add_products(Sum (&d)[count], const typename TypeA::Value (&rows)[2][depth],
                         const char* b, bool adds) {
  const int lane = kiln_fake_current->index % 32;
  for (int j = 0; j < count / 4; ++j)
    for (int i = 0; i < 2; ++i) {
      typename TypeB::Value column[depth];
      for (int k = 0; k < depth; ++k)
        column[k] = element_of<TypeB, b_inner>(b, 8 * j + lane % 4 * 2 + i, k);
      for (int half = 0; half < 2; ++half) {
        Sum& to = d[j * 4 + half * 2 + i];
        if constexpr (TypeA::kAddsIn13Bits) {
          to = add_in_13_bits(rows[half], column, adds ? to : 0);
        } else {
          Sum sum = 0;
          for (int k = 0; k < depth; ++k) sum += rows[half][k] * column[k];
          to = adds ? to + sum : sum;
        }
      }
    }
}

// d += a * b: [64, 2 * count], over a depth of 32 bytes. Only this thread's part.
template <class TypeA, bool a_inner, bool b_inner, class TypeB = TypeA, class Sum, int count>
inline void warpgroup_multiply(Sum (&d)[count], const char* a, const char* b, bool adds) {
  constexpr int kDepth = 32 / TypeA::kBytes;
  const int lane = kiln_fake_current->index % 32, warp = kiln_fake_current->index / 32 % 4;
  typename TypeA::Value rows[2][kDepth];
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < kDepth; ++k)
      rows[half][k] = element_of<TypeA, a_inner>(a, warp * 16 + half * 8 + lane / 4, k);
  add_products<TypeA, TypeB, b_inner>(d, rows, b, adds);
}

// The same where lanes have their rows of a, of halves, as mma.m16n8k16 lays them over a warp.
template <class TypeA, bool b_inner, int count>
inline void warpgroup_multiply(float (&d)[count], const unsigned (&a)[4], const char* b,
                               bool adds) {
  need_whole_warp();
  const int turn = exchange(a, 4, Meeting::kMatrix), lane = kiln_fake_current->index % 32;
  float rows[2][16];
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < 16; ++k)
      rows[half][k] = TypeA::value(
          kiln_fake_current->warp[lane / 4 * 4 + k % 8 / 2].exchange[turn][k / 8 * 2 + half],
          k % 2);
  add_products<TypeA, TypeA, b_inner>(d, rows, b, adds);
}

}  // namespace kiln_fake

namespace {

KILN_INLINE void barrier_init(char* barrier, int arrivals) {
  kiln_fake::barrier_at(barrier) = {static_cast<short>(arrivals), static_cast<short>(arrivals), 0,
                                    0};
}
KILN_INLINE void barriers_are_made() {}
KILN_INLINE void barrier_arrive(char* barrier) {
  kiln_fake::arrive(barrier, 0);
}
KILN_INLINE void barrier_arrive_expecting(char* barrier, int bytes) {
  kiln_fake::arrive(barrier, bytes);
}
KILN_INLINE void barrier_wait(char* barrier, int parity) {
  while (static_cast<int>(kiln_fake::barrier_at(barrier).parity) == parity)
    kiln_fake_current->meet(kiln_fake::Meeting::kPhase);
}
template <int threads>
KILN_INLINE void numbered_barrier_wait(int number) {
  kiln_fake::wait(kiln_fake::numbered_barrier(number), threads);
}
template <int threads>
KILN_INLINE void numbered_barrier_arrive(int number) {
  kiln_fake::arrive(kiln_fake::numbered_barrier(number), threads);
}
template <int rank>
KILN_INLINE void copy_box(char* to, const CUtensorMap* map, char* barrier, const int (&at)[rank]) {
  kiln_fake::bring_box(to, map, barrier, at);
}
KILN_INLINE void copy_windows(char* to, const CUtensorMap* map, char* barrier, const int (&at)[4],
                              int right, int down) {
  kiln_fake::bring_windows(to, map, barrier, at, right, down);
}
KILN_INLINE void copy_bytes(char* to, const char* from, int bytes, char* barrier) {
  kiln_fake::bring_bytes(to, from, bytes, barrier);
}
KILN_INLINE unsigned arrive_at(unsigned* counter) {
  kiln_fake::check_aligned<4>(counter);
  return (*counter)++;
}
KILN_INLINE void load_part(const void* p, Bits<16>& x) {
  load_input(p, x);
}
template <int rank>
KILN_INLINE void store_box(const CUtensorMap* map, const char* from, const int (&at)[rank]) {
  kiln_fake::put_box(map, from, at);
}
KILN_INLINE void boxes_are_written() {}
KILN_INLINE void boxes_commit() {
  kiln_fake_current->commit_boxes();
}
template <int groups_left>
KILN_INLINE void boxes_are_read() {
  kiln_fake_current->finish_boxes(groups_left);
}
KILN_INLINE void boxes_are_stored() {
  kiln_fake_current->finish_boxes(0);
}
KILN_INLINE void stmatrix_x4(void* row, const unsigned (&x)[4]) {
  kiln_fake::store_matrices(row, x);
}
using Place = const char*;  // of a matrix in shared memory
KILN_INLINE void warpgroup_begin() {}
KILN_INLINE void warpgroup_commit() {}
template <class T, int count>
KILN_INLINE void warpgroup_hold(T (&)[count]) {}
template <int groups_left>
KILN_INLINE void warpgroup_wait() {
  kiln_fake::meet_warpgroup();
}
// The block's shared memory begins at a multiple of 1024 bytes here, whatever its address.
KILN_INLINE int shared_offset(const void* p) {
  return static_cast<int>((static_cast<const char*>(p) - kiln_fake_current->shared) % 1024);
}
template <int registers>
KILN_INLINE void keep_registers() {
  kiln_fake::ask_for_registers(registers);
}
template <int registers>
KILN_INLINE void take_registers() {
  kiln_fake::ask_for_registers(registers);
}

}  // namespace
