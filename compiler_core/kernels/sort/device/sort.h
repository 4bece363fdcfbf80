// Rows of entries sorted by a thread each, and sorted runs merged by several.
namespace {

// The entries of row[from] to row[to].
template <bool descending, class T>
KILN_INLINE void fill_entries(const T* row, int64_t from, int64_t to, entry_of<T>* entries) {
  for (int64_t i = from; i < to; ++i) {
    key_type<T> key = key_of(row + i);
    if (descending) key = ~key;
    set_entry(entries[i - from], key, uint64_t(i));
  }
}

template <class Entry>
KILN_INLINE void insertion_sort(Entry* entries, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    const Entry x = entries[i];
    int64_t j = i;
    for (; j > 0 && before(x, entries[j - 1]); --j) entries[j] = entries[j - 1];
    entries[j] = x;
  }
}

// Sorts by one digit after the other, the least significant first. Where the entries are then:
// in `entries` or in `other`.
template <int digit, class Entry>
KILN_INLINE Entry* sort_entries(Entry* entries, Entry* other, int64_t count) {
  if (count <= 48) {
    insertion_sort(entries, count);
    return entries;
  }
  constexpr int bits = 8 * sizeof(typename Entry::key_type), buckets = 1 << digit;
  constexpr int passes = (bits + digit - 1) / digit;
  unsigned places[passes][buckets] = {};
  for (int64_t i = 0; i < count; ++i)
    for (int pass = 0; pass < passes; ++pass)
      ++places[pass][key_in(entries[i]) >> (pass * digit) & (buckets - 1)];
  for (int pass = 0; pass < passes; ++pass) {
    unsigned sum = 0;
    bool trivial = false;  // one bucket has them all
    for (int b = 0; b < buckets; ++b) {
      const unsigned own = places[pass][b];
      trivial = trivial || own == count;
      places[pass][b] = sum;
      sum += own;
    }
    if (trivial) continue;
    for (int64_t i = 0; i < count; ++i)
      other[places[pass][key_in(entries[i]) >> (pass * digit) & (buckets - 1)]++] = entries[i];
    Entry* const swapped = entries;
    entries = other;
    other = swapped;
  }
  return entries;
}

// How many of a's entries are among the first `count` of a and b merged.
template <class Entry>
KILN_INLINE int64_t merged_share(const Entry* a, int64_t a_size, const Entry* b, int64_t b_size,
                                 int64_t count) {
  int64_t low = larger(0, count - b_size), high = smaller(count, a_size);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (before(a[middle], b[count - 1 - middle]))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class Entry>
KILN_INLINE void put_entry(Entry* to, const Entry& e) { *to = e; }
template <class Entry>
KILN_INLINE void put_entry(int64_t* to, const Entry& e) { *to = position(e); }

// Entries [from, to) of what comes of merging each pair of sorted runs of `run` entries of a row of
// `size`. They lie within one pair, as `run` is a multiple of their number.
template <class Entry, class Out>
KILN_INLINE void merge_runs(const Entry* row, int64_t run, int64_t size, Out* out, int64_t from,
                            int64_t to) {
  const int64_t first = from / (2 * run) * (2 * run), middle = smaller(first + run, size);
  const int64_t last = smaller(first + 2 * run, size);
  const Entry *a = row + first, *b = row + middle;
  const int64_t a_size = middle - first, b_size = last - middle;
  int64_t i = merged_share(a, a_size, b, b_size, from - first);
  int64_t j = from - first - i;
  for (int64_t at = from; at < to; ++at) {
    const bool take_a = j >= b_size || (i < a_size && before(a[i], b[j]));
    put_entry(out + at, take_a ? a[i] : b[j]);
    (take_a ? i : j) += 1;
  }
}

}  // namespace
