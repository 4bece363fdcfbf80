// Compute capability 9.0's means for convolutions, beside warpgroup.cuh: windows and plain bytes by the
// copy engine, and parts that meet in global memory. All of it is PTX; the tests put words of the same
// names in its place.
#ifndef KILN_ON_HOST
namespace {

// ---- The copy engine: of the map's positions from `at` on (channel, column, row, image; where windows
// begin), so many as it says, the element of each window that lies `down` and `right` of its begin;
// zeros outside the images. The bytes count at `barrier`. One thread calls it.
KILN_INLINE void copy_windows(char* to, const CUtensorMap* map, char* barrier, const int (&at)[4],
                              int right, int down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared_place(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared_place(barrier)),
      "h"(static_cast<unsigned short>(right)), "h"(static_cast<unsigned short>(down))
      : "memory");
}
// The same of bytes that lie side by side: a multiple of 16, as both places are.
KILN_INLINE void copy_bytes(char* to, const char* from, int bytes, char* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_place(to)),
      "l"(from), "r"(bytes), "r"(shared_place(barrier))
      : "memory");
}

// ---- Counts an arrival in global memory, and says how many came before. What this warp has written
// in front of a warp_barrier() is seen by whoever arrives later, behind one.
KILN_INLINE unsigned arrive_at(unsigned* counter) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}
// Reads what other blocks have written.
KILN_INLINE void load_part(const void* p, Bits<16>& x) {
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
               : "l"(p)
               : "memory");
}

}  // namespace
#endif  // KILN_ON_HOST
