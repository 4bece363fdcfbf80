// Entries (sort_keys.h) sorted in shared memory, and sorted runs merged in global memory.
namespace {

template <bool descending, class T>
KILN_INLINE key_type<T> sort_key(const T* p) {
  const key_type<T> key = key_of(p);
  return static_cast<key_type<T>>(descending ? ~key : key);
}
template <class T>
KILN_INLINE key_type<T> greatest_key() { return static_cast<key_type<T>>(~key_type<T>{}); }

// K. Batcher, "Sorting networks and their applications", 1968: bitonic, each group ascending.
// Powers of two. Calls block_barrier(), before and after too.
template <int threads, int group, int count, class Entry>
KILN_INLINE void sort_groups(Entry* entries) {
  _Pragma("unroll 1") for (int run = 2; run <= group; run *= 2)
    _Pragma("unroll 1") for (int gap = run / 2; gap > 0; gap /= 2) {
      block_barrier();
      _Pragma("unroll 2") for (int i = thread_index(); i < count / 2; i += threads) {
        const int low = (i & ~(gap - 1)) * 2 + (i & (gap - 1)), high = low + gap;
        const bool ascends = (low & (group - 1) & run) == 0;
        const Entry a = entries[low], b = entries[high];
        if (before(b, a) == ascends) {
          entries[low] = b;
          entries[high] = a;
        }
      }
    }
  block_barrier();
}

template <class Entry>
KILN_INLINE void put_entry(Entry* to, const Entry& e) { *to = e; }
template <class Entry>
KILN_INLINE void put_entry(int64_t* to, const Entry& e) { *to = position(e); }

// Brings entry `at` of a row of `size` to where it stands when each pair of sorted runs of `run`
// is merged: behind its run's entries before it, and those of the other run that are less.
template <class Entry, class Out>
KILN_INLINE void merge_entry(const Entry* row, int64_t run, int64_t size, int64_t at, Out* out) {
  const int64_t first = at / (2 * run) * (2 * run);
  const int64_t middle = first + run < size ? first + run : size;
  const int64_t last = first + 2 * run < size ? first + 2 * run : size;
  const bool is_left = at < middle;
  const Entry e = row[at];
  int64_t low = is_left ? middle : first, high = is_left ? last : middle;
  const int64_t begin = low;
  while (low < high) {
    const int64_t half = (low + high) / 2;
    if (before(row[half], e))
      low = half + 1;
    else
      high = half;
  }
  put_entry(out + (is_left ? at : first + at - middle) + (low - begin), e);
}

}  // namespace
