// Columns: a block whose threads stand `across` wide, in rows below each other, each with one
// vector of the block's columns. What the rows of threads bring is combined in an order that never
// changes, and every thread of a column gets the same bits.
namespace {

template <class T>
struct alignas(LANES * sizeof(T) < 16 ? LANES * sizeof(T) : 16) SharedVec {
  T lane[LANES];
};

// The rows of threads inside one warp, which is `across` < 32 wide.
template <class How, int across, class T>
KILN_INLINE Vec<T> down_warp(Vec<T> x) {
  _Pragma("unroll") for (int mask = across; mask < 32; mask *= 2) {
    KILN_EACH_LANE x[l] = How::one(x[l], shuffle_xor(x[l], mask));
  }
  return x;
}

// Shared memory has a row of across * LANES values for each row of threads, or for each warp where
// that is wider than `across`. REQUIRES: after down_warp, which leaves a warp's rows equal.
template <int across, class T>
KILN_INLINE void put_row(T* rows, const Vec<T>& x) {
  constexpr int width = across < 32 ? 32 : across;
  const int row = thread_index() / width, place = thread_index() % width;
  if (place >= across) return;
  SharedVec<T> shared;
  KILN_EACH_LANE shared.lane[l] = x[l];
  reinterpret_cast<SharedVec<T>*>(rows)[row * across + place] = shared;
}

// Between two barriers: the first row becomes the combination of all, each value of it by one of
// the block's `threads`.
template <class How, int across, int threads, class T>
KILN_INLINE void fold_rows(T* rows) {
  constexpr int width = across * LANES;
  constexpr int count = threads / (across < 32 ? 32 : across);
  for (int at = thread_index(); at < width; at += threads) {
    T x = rows[at];
    _Pragma("unroll 8") for (int row = 1; row < count; ++row) x = How::one(x, rows[row * width + at]);
    rows[at] = x;
  }
}
template <int across, class T>
KILN_INLINE Vec<T> combined_row(const T* rows) {
  const SharedVec<T> shared =
      reinterpret_cast<const SharedVec<T>*>(rows)[thread_index() % across];
  Vec<T> x;
  KILN_EACH_LANE x[l] = shared.lane[l];
  return x;
}

}  // namespace
