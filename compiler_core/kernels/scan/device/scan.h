// Running sums. f32 is summed up in f64 from vector to vector, so that errors don't grow with the
// length; small integers in i32, which wraps to the same as they do.
namespace {

template <class V>
struct total { using type = V; };
template <>
struct total<vf32> { using type = vf64; };
// The type that a register's vectors are added up in, and one element of it.
template <class T>
using total_vector = typename total<typename memory<T>::vector>::type;
template <class T>
using total_of = typename element<total_vector<T>>::type;

template <class V>
struct shuffle_mask { using type = vi32; };
template <>
struct shuffle_mask<vf64> { using type = vi64; };
template <>
struct shuffle_mask<vi64> { using type = vi64; };

// Lane l: the sum of the lanes 0 to l.
template <class V>
KILN_INLINE V running_lanes(V x) {
#pragma GCC unroll 4
  for (int step = 1; step < LANES; step *= 2) {
    typename shuffle_mask<V>::type from{};
    for (int l = 0; l < LANES; ++l) from[l] = l < step ? l : LANES + l - step;
    x += __builtin_shuffle(V{}, x, from);
  }
  return x;
}

// From *before on, or from zero.
template <class T>
KILN_INLINE void run_row(const T* in, T* out, int64_t count, const total_of<T>* before) {
  using V = typename memory<T>::vector;
  total_of<T> sum = before ? *before : total_of<T>{};
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
    const V x = running_lanes(load(in + j, AllLanes{}));
    store(out + j, x + splat<V>(sum), AllLanes{});
    sum += x[LANES - 1];
  }
  if (j < count) {
    const SomeLanes live{count - j};
    store(out + j, running_lanes(load(in + j, live)) + splat<V>(sum), live);
  }
}
template <class T>
KILN_INLINE void sum_row(const T* in, int64_t count, total_of<T>* result) {
  total_vector<T> sum{};
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    sum += convert<total_vector<T>>(load(in + j, AllLanes{}));
  if (j < count) sum += convert<total_vector<T>>(load(in + j, SomeLanes{count - j}));
  total_of<T> all{};
  for (int l = 0; l < LANES; ++l) all += sum[l];
  *result = all;
}

// Down `count` rows of `stride` elements, `vectors` side by side.
template <int vectors, class T, class Total, class Live>
KILN_INLINE void run_strip(const T* in, T* out, int64_t count, int64_t stride,
                           const Total* before, Live live) {
  using V = typename memory<T>::vector;
  total_vector<T> sum[vectors] = {};
  if (before)
    for (int u = 0; u < vectors; ++u) sum[u] = load(before + u * LANES, live);
  for (int64_t i = 0; i < count; ++i, in += stride, out += stride)
#pragma GCC unroll 16
    for (int u = 0; u < vectors; ++u) {
      sum[u] += convert<total_vector<T>>(load(in + u * LANES, live));
      store(out + u * LANES, convert<V>(sum[u]), live);
    }
}
template <int vectors, class T, class Total, class Live>
KILN_INLINE void sum_strip(const T* in, int64_t count, int64_t stride, Total* result, Live live) {
  total_vector<T> sum[vectors] = {};
  for (int64_t i = 0; i < count; ++i, in += stride)
#pragma GCC unroll 16
    for (int u = 0; u < vectors; ++u)
      sum[u] += convert<total_vector<T>>(load(in + u * LANES, live));
  for (int u = 0; u < vectors; ++u) store(result + u * LANES, sum[u], live);
}
// A strip of `columns` columns: `vectors` of them at once where it is whole.
template <int vectors, class T, class Total>
KILN_INLINE void run_columns(const T* in, T* out, int64_t count, int64_t stride, int64_t columns,
                             const Total* before) {
  if (columns == vectors * LANES)
    return run_strip<vectors>(in, out, count, stride, before, AllLanes{});
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES)
    run_strip<1>(in + j, out + j, count, stride, before ? before + j : before, AllLanes{});
  if (j < columns)
    run_strip<1>(in + j, out + j, count, stride, before ? before + j : before,
                 SomeLanes{columns - j});
}
template <int vectors, class T, class Total>
KILN_INLINE void sum_columns(const T* in, int64_t count, int64_t stride, int64_t columns,
                             Total* result) {
  if (columns == vectors * LANES)
    return sum_strip<vectors>(in, count, stride, result, AllLanes{});
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES)
    sum_strip<1>(in + j, count, stride, result + j, AllLanes{});
  if (j < columns) sum_strip<1>(in + j, count, stride, result + j, SomeLanes{columns - j});
}

// totals[pieces][inner]: the sum of a piece becomes that of all before it.
template <class Total>
KILN_INLINE void running_offsets(Total* totals, int64_t pieces, int64_t inner) {
  for (int64_t j = 0; j < inner; ++j) {
    Total sum{};
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const Total own = totals[piece * inner + j];
      totals[piece * inner + j] = sum;
      sum += own;
    }
  }
}

}  // namespace
