// Compute capability 9.0's means for products: the copy engine (TMA), barriers in shared memory,
// and tensor cores that a warpgroup (four warps) starts and reads shared memory by themselves. All
// of it is PTX; the tests put a file of the same names in its place, as for device.cuh. The product
// itself (warpgroup_multiply) is printed, since its registers are counted in its text.
#ifndef KILN_ON_HOST

// How the copy engine walks a buffer; the runtime encodes it (program/tensor_map.h).
struct alignas(64) CUtensorMap { char bytes[128]; };

namespace {

KILN_INLINE unsigned shared_place(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// ---- Barriers: 8 bytes of shared memory that count, phase after phase, arrivals and bytes that
// are copied. A phase ends when all have come; its parity is 0 for the first, then 1, 0, ...
KILN_INLINE void barrier_init(char* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(barrier)),
               "r"(arrivals));
}
// After the last barrier_init, before the block's threads meet.
KILN_INLINE void barriers_are_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
KILN_INLINE void barrier_arrive(char* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(barrier)) : "memory");
}
// Arrives, and lets the phase wait for `bytes` that copies bring.
KILN_INLINE void barrier_arrive_expecting(char* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_place(barrier)),
               "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of this parity. The one before the first has ended, with parity 1.
KILN_INLINE void barrier_wait(char* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(shared_place(barrier)),
      "r"(parity)
      : "memory");
}

// ---- Barriers of the block that go by a number, 1 to 15: each time so many of its threads, in whole
// warps, have come, those that wait go on.
template <int threads>
KILN_INLINE void numbered_barrier_wait(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(threads) : "memory");
}
template <int threads>
KILN_INLINE void numbered_barrier_arrive(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(threads) : "memory");
}

// ---- The copy engine: the box at `at` (innermost axis first), zeros outside the tensor. The bytes
// count at `barrier`. One thread calls it.
KILN_INLINE void copy_box(char* to, const CUtensorMap* map, char* barrier, const int (&at)[2]) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(shared_place(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(shared_place(barrier))
      : "memory");
}
KILN_INLINE void copy_box(char* to, const CUtensorMap* map, char* barrier, const int (&at)[3]) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(shared_place(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(shared_place(barrier))
      : "memory");
}
KILN_INLINE void copy_box(char* to, const CUtensorMap* map, char* barrier, const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(shared_place(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared_place(barrier))
      : "memory");
}
KILN_INLINE void copy_box(char* to, const CUtensorMap* map, char* barrier, const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5, %6}], [%7];" ::"r"(shared_place(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]),
      "r"(shared_place(barrier))
      : "memory");
}

// And back: what lies at `from`, as far as it is inside the tensor. Whoever has written it calls
// boxes_are_written() and meets the thread that stores. A thread's boxes up to a boxes_commit() are
// a group: boxes_are_read() waits until all but the last so many have left shared memory.
KILN_INLINE void store_box(const CUtensorMap* map, const char* from, const int (&at)[2]) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(at[0]), "r"(at[1]), "r"(shared_place(from))
               : "memory");
}
KILN_INLINE void store_box(const CUtensorMap* map, const char* from, const int (&at)[3]) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(shared_place(from))
               : "memory");
}
KILN_INLINE void store_box(const CUtensorMap* map, const char* from, const int (&at)[4]) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
               "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared_place(from))
               : "memory");
}
KILN_INLINE void store_box(const CUtensorMap* map, const char* from, const int (&at)[5]) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(map),
               "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(shared_place(from))
               : "memory");
}
KILN_INLINE void boxes_are_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
KILN_INLINE void boxes_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int groups_left>
KILN_INLINE void boxes_are_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups_left) : "memory");
}
KILN_INLINE void boxes_are_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- Four matrices of 8 rows of 16 bytes, as ldmatrix_x4 reads them.
KILN_INLINE void stmatrix_x4(void* row, const unsigned (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_place(row)),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// ---- The tensor cores. What a warpgroup starts between warpgroup_begin() and
// warpgroup_commit() is one group; sums are there when no group is left.
KILN_INLINE void warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KILN_INLINE void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups_left>
KILN_INLINE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
}
// Registers that a group has written or read: what is done with them stays behind this.
KILN_INLINE void hold_register(float& x) { asm volatile("" : "+f"(x)::"memory"); }
KILN_INLINE void hold_register(unsigned& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T, int count>
KILN_INLINE void warpgroup_hold(T (&x)[count]) {
  _Pragma("unroll") for (int i = 0; i < count; ++i) hold_register(x[i]);
}
// Where a matrix lies in shared memory, in 16 bytes: so constants are added to a descriptor, in one
// instruction for each product. Of the address 18 bits: in a cluster the ones above say which block's memory
// it is, and would be bits of `leading`.
struct Place {
  unsigned sixteens;
  KILN_MEMBER Place(const char* at) : sixteens((shared_place(at) & 0x3ffff) >> 4) {}
  KILN_MEMBER explicit Place(unsigned at) : sixteens(at) {}
  KILN_MEMBER Place operator+(int bytes) const { return Place(sixteens + static_cast<unsigned>(bytes) / 16); }
};
// How the tensor cores find a matrix in shared memory that the copy engine has laid out with
// exchanged pieces of 16 bytes in rows of 128. Strides in bytes: `leading` from 64 elements to the
// next along the axis that is contiguous, `stride` from 8 rows to the next.
KILN_INLINE unsigned long matrix_descriptor(Place at, int leading, int stride) {
  return static_cast<unsigned long>(at.sixteens + (static_cast<unsigned>(leading >> 4) << 16)) |
         static_cast<unsigned long>(stride >> 4) << 32 | 1ul << 62;
}

// ---- Where `p` lies in the block's shared memory, as far as 1024 bytes repeat.
KILN_INLINE int shared_offset(const void* p) { return shared_place(p) & 1023; }

// ---- Registers that a warpgroup hands to another: a multiple of 8 a thread.
template <int registers>
KILN_INLINE void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
KILN_INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace
#endif  // KILN_ON_HOST
