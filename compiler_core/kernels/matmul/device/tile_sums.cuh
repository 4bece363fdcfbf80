// The sums of a tile of a product, once all its warps have staged theirs. Where the blocks of a cluster
// divide the depth of a tile, they divide its vectors too, and each block brings the owner of a vector
// its sums of it: one way through the cluster, where fetching them takes two, and nobody has to stay
// until others have read.
//
// Vectors of LANES columns are numbered row by row; number i belongs to block i % blocks. Vectors that
// lie side by side in the `parts` of a tile have one number.
//
// In front of it stands matmul.cuh.
namespace {

template <class Tiling, int parts, int blocks>
struct TileSums;

// A block has the tile alone: sums stay where the first warp's lay.
template <class Tiling, int parts>
struct TileSums<Tiling, parts, 1> {
  static constexpr int width = Tiling::columns / parts;  // columns of a part
  static constexpr int vectors = Tiling::rows * width / LANES;
  const float* const staged;

  KILN_INLINE void begin() {}
  KILN_INLINE void wait_for_others() {}
  KILN_INLINE void finish() { block_barrier(); }
  KILN_MEMBER void bring(float* place, int /*row*/, int /*column*/, float sum) const { *place = sum; }
  // The sums of vector `own` of this block, LANES of them.
  KILN_MEMBER Vec<float> operator()(int own, int part) const {
    const int row = own * LANES / width, column = own * LANES % width + part * width;
    return unpack(*reinterpret_cast<const Packed<float>*>(staged + row * Staging<Tiling>::pitch + column));
  }
};

#if __CUDA_ARCH__ >= 900  // there are clusters
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
struct TileSums {
  static constexpr int width = Tiling::columns / parts;
  static constexpr int vectors = Tiling::rows * width / LANES / blocks;  // of this block
  float* const brought;  // [blocks][vectors][parts][LANES]

  KILN_INLINE void begin() { cluster_has_begun(); }
  KILN_INLINE void wait_for_others() { wait_for_cluster(); }
  KILN_INLINE void finish() { cluster_barrier(); }
  // Where the sums of vector `own` of this block lie that block `rank` brings.
  KILN_MEMBER float* place(int rank, int own, int part) const {
    return brought + ((rank * vectors + own) * parts + part) * LANES;
  }
  KILN_MEMBER void bring(float* /*place*/, int row, int column, float sum) const {
    const int i = (row * width + column % width) / LANES;
    cluster_store(place(cluster_rank(), i / blocks, column / width) + column % LANES, i % blocks, sum);
  }
  // Of all blocks, in their order.
  KILN_MEMBER Vec<float> operator()(int own, int part) const {
    Vec<float> sums = unpack(*reinterpret_cast<const Packed<float>*>(place(0, own, part)));
    _Pragma("unroll") for (int rank = 1; rank < blocks; ++rank)
      sums = sums + unpack(*reinterpret_cast<const Packed<float>*>(place(rank, own, part)));
    return sums;
  }
};
#endif

}  // namespace
