// Columns: a block whose threads stand `across` wide, in rows below each other, each with one
// vector of the block's columns. What the rows of threads bring is combined in an order that never
// changes, and every thread of a column gets the same bits.
namespace {

template <int lanes, class T>
struct alignas(lanes * sizeof(T) < 16 ? lanes * sizeof(T) : 16) SharedVec {
  T lane[lanes];
};

// The rows of threads inside one warp, which is `across` < 32 wide.
template <class How, int across, class T>
KILN_INLINE Vec<T> down_warp(Vec<T> x) {
  _Pragma("unroll") for (int mask = across; mask < 32; mask *= 2) {
    KILN_EACH_LANE x[l] = How::one(x[l], shuffle_xor(x[l], mask));
  }
  return x;
}

// Shared memory has a row of across * lanes values for each row of threads, or for each warp where
// that is wider than `across`. Of a vector, the first `lanes` count. REQUIRES: after down_warp,
// which leaves a warp's rows equal.
template <int across, int lanes, class T>
KILN_INLINE void put_row(T* rows, const Vec<T>& x) {
  constexpr int width = across < 32 ? 32 : across;
  const int row = thread_index() / width, place = thread_index() % width;
  if (place >= across) return;
  SharedVec<lanes, T> shared;
  _Pragma("unroll") for (int l = 0; l < lanes; ++l) shared.lane[l] = x[l];
  reinterpret_cast<SharedVec<lanes, T>*>(rows)[row * across + place] = shared;
}

// Between two barriers: the first of `count` rows becomes the combination of all, each value of it
// by one of the block's `threads`.
template <class How, int width, int threads, int count, class T>
KILN_INLINE void fold_rows(T* rows) {
  _Pragma("unroll 1") for (int at = thread_index(); at < width; at += threads) {
    T x = rows[at];
    _Pragma("unroll 4") for (int row = 1; row < count; ++row) x = How::one(x, rows[row * width + at]);
    rows[at] = x;
  }
}
#if defined(KILN_ON_HOST) || __CUDA_ARCH__ >= 900
// Between two barriers of the cluster: the row after the last becomes the combination of the first
// rows of all `blocks`, which every block takes in the same order.
template <class How, int blocks, int width, int threads, int count, class T>
KILN_INLINE void fold_cluster(T* rows) {
  _Pragma("unroll 1") for (int at = thread_index(); at < width; at += threads) {
    T x = cluster_load(rows + at, 0);
    _Pragma("unroll") for (int block = 1; block < blocks; ++block) x =
        How::one(x, cluster_load(rows + at, block));
    rows[count * width + at] = x;
  }
}
#endif
template <int across, int lanes, class T>
KILN_INLINE Vec<T> combined_row(const T* rows) {
  const SharedVec<lanes, T> shared =
      reinterpret_cast<const SharedVec<lanes, T>*>(rows)[thread_index() % across];
  Vec<T> x;
  KILN_EACH_LANE x[l] = shared.lane[l < lanes ? l : 0];
  return x;
}

}  // namespace
