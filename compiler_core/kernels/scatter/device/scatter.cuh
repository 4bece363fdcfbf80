// Updates in the order of their rows, combined into them.
namespace {

using RowEntry = narrow_entry<unsigned>;  // the row and the update's position
constexpr unsigned kDropped = 0xffffffff;

struct Replace {
  template <class V>
  KILN_INLINE V combine(const V&, const V& b) { return b; }
};
struct Plus {
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return a + b; }
};
struct Times {
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return a * b; }
};
struct Greater {
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return op_max(a, b); }
};
struct Less {
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return op_min(a, b); }
};

// Negative from the end; kDropped for what is out of range.
KILN_INLINE unsigned scatter_row(int64_t index, int64_t rows) {
  const int64_t row = index < 0 ? index + rows : index;
  return row < 0 || row >= rows ? kDropped : static_cast<unsigned>(row);
}

// Updates of one row that a thread combines on its own: a row with more has partial results.
KILN_CONSTANT int64_t chunk_entries() { return 64; }

// `sum` and the updates of the entries from `at` on that are of `row`, in front of `end`.
template <class How, class V, class T>
KILN_INLINE V combine_run(V sum, const RowEntry* entries, int64_t at, int64_t end, uint64_t row,
                          const T* updates, int64_t width) {
  for (; at < end && key_in(entries[at]) == row; ++at)
    sum = How::combine(sum, load<LANES>(updates + position(entries[at]) * width, AllLanes{}));
  return sum;
}
KILN_INLINE int64_t chunk_end(int64_t at, int64_t count) {
  const int64_t end = (at / chunk_entries() + 1) * chunk_entries();
  return end < count ? end : count;
}
// Whether merging runs of `run` until `count` entries are one, from one half of the workspace to the
// other, ends in the other.
KILN_INLINE bool ends_swapped(int64_t run, int64_t count) {
  bool swapped = false;
  for (; run < count; run *= 2) swapped = !swapped;
  return swapped;
}

// Where a row began before this chunk: what the chunk has of it, by `across` threads.
template <class How, int across, class V, class T, class Partial>
KILN_INLINE void combine_chunk(const RowEntry* entries, int64_t count, int64_t chunk,
                               const T* updates, Partial* partials, int64_t width) {
  const int64_t at = chunk * chunk_entries();
  const uint64_t row = key_in(entries[at]);
  if (row == kDropped || key_in(entries[at - 1]) != row) return;
  for (int64_t j = thread_index() % across * LANES; j < width; j += across * LANES) {
    const V first = load<LANES>(updates + position(entries[at]) * width + j, AllLanes{});
    store<LANES>(partials + chunk * width + j,
                 combine_run<How>(first, entries, at + 1, chunk_end(at, count), row, updates + j,
                                  width),
                 AllLanes{});
  }
}

// The row of entry `at`, by `across` threads, when it is the first of its row. Halves meet in f32
// and are rounded once, where they are stored.
template <class How, int across, class V, class T, class Partial>
KILN_INLINE void combine_row(const RowEntry* entries, int64_t count, int64_t at, const T* x,
                             const T* updates, const Partial* partials, T* out, int64_t width) {
  const uint64_t row = key_in(entries[at]);
  if (row == kDropped || (at > 0 && key_in(entries[at - 1]) == row)) return;
  const int64_t end = chunk_end(at, count);
  for (int64_t j = thread_index() % across * LANES; j < width; j += across * LANES) {
    V sum = load<LANES>(x + row * width + j, AllLanes{});
    sum = combine_run<How>(sum, entries, at, end, row, updates + j, width);
    for (int64_t next = end; next < count && key_in(entries[next]) == row; next += chunk_entries())
      sum = How::combine(
          sum, load<LANES>(partials + next / chunk_entries() * width + j, AllLanes{}));
    store<LANES>(out + row * width + j, sum, AllLanes{});
  }
}

}  // namespace
