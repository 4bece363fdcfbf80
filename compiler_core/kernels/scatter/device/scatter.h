// Rows combined into rows.
namespace {

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

// Negative from the end; -1 for what is out of range.
KILN_INLINE int64_t scatter_row(int64_t index, int64_t rows) {
  const int64_t row = index < 0 ? index + rows : index;
  return row < 0 || row >= rows ? -1 : row;
}
// The block that has the row; `parts` for what is dropped.
KILN_INLINE int64_t part_of(int64_t index, int64_t rows, int64_t part_rows, int64_t parts) {
  const int64_t row = scatter_row(index, rows);
  return row < 0 ? parts : row / part_rows;
}
// counts[chunk][part] becomes where, in the order of parts, then chunks, they begin.
KILN_INLINE void count_to_places(int64_t* counts, int64_t chunks, int64_t parts) {
  int64_t sum = 0;
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t own = counts[chunk * parts + part];
      counts[chunk * parts + part] = sum;
      sum += own;
    }
}

template <class How, class To, class From>
KILN_INLINE void combine_row(To* to, const From* from, int64_t width) {
  const auto body = [&](int64_t j, auto live) KILN_LAMBDA {
    store(to + j, How::combine(load(to + j, live), load(from + j, live)), live);
  };
  if (width == 1) return store_one(to, How::combine(load_splat(to), load_splat(from)));
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) body(j, AllLanes{});
  if (j < width) body(j, SomeLanes{width - j});
}

KILN_INLINE vf32 round_to(const f16*, vf32 x) { return round_f16(x); }
KILN_INLINE vf32 round_to(const bf16*, vf32 x) { return round_bf16(x); }
template <class To>
KILN_INLINE void round_row(To* to, const float* from, int64_t width) {
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES)
    store(to + j, round_to(to, load(from + j, AllLanes{})), AllLanes{});
  if (j < width) {
    const SomeLanes live{width - j};
    store(to + j, round_to(to, load(from + j, live)), live);
  }
}

}  // namespace
