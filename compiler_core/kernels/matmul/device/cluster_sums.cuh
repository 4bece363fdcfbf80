// A tile whose depth the blocks of a cluster divide: they divide its vectors too, and each brings the
// owner of a vector its sums of it. Bringing them takes one way through the cluster where fetching
// them takes two, and nobody has to stay until others have read.
//
// Vectors of LANES columns are numbered row by row; number i belongs to block i % blocks. Vectors that
// lie side by side in the `parts` of a tile have one number.
namespace {

template <class Tiling, int parts, int blocks>
struct ClusterSums;

#if __CUDA_ARCH__ >= 900
#ifndef KILN_ON_HOST
// This block has begun: others may store to its shared memory once they have waited for that.
KILN_INLINE void cluster_has_begun() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
KILN_INLINE void wait_for_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
KILN_INLINE void cluster_store(float* mine, int rank, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;"
               :
               : "r"(remote_shared(mine, rank)), "f"(x)
               : "memory");
}
#endif

template <class Tiling, int parts, int blocks>
struct ClusterSums {
  static constexpr int width = Tiling::columns / parts;  // columns of a part
  static constexpr int vectors = Tiling::rows * width / LANES / blocks;  // of a block
  float* const brought;  // [blocks][vectors][parts][LANES]

  KILN_INLINE void begin() { cluster_has_begun(); }
  KILN_INLINE void wait_for_others() { wait_for_cluster(); }
  KILN_INLINE void finish() { cluster_barrier(); }
  // Where the sums of vector `own` of this block lie that block `rank` brings.
  KILN_MEMBER float* place(int rank, int own, int part) const {
    return brought + ((rank * vectors + own) * parts + part) * LANES;
  }
  KILN_MEMBER void bring(float* /*staged*/, int row, int column, float sum) const {
    const int i = (row * width + column % width) / LANES;
    cluster_store(place(cluster_rank(), i / blocks, column / width) + column % LANES, i % blocks, sum);
  }
  // The sums of all blocks, in their order.
  KILN_MEMBER Vec<float> operator()(int own, int part) const {
    Vec<float> sums = unpack(*reinterpret_cast<const Packed<float>*>(place(0, own, part)));
    _Pragma("unroll") for (int rank = 1; rank < blocks; ++rank)
      sums = sums + unpack(*reinterpret_cast<const Packed<float>*>(place(rank, own, part)));
    return sums;
  }
};
#endif

}  // namespace
