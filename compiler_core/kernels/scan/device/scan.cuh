// Running sums. f32 is summed up in f64 from tile to tile, so that errors don't grow with the
// length; small integers in i32, which wraps to the same as they do. Every order is fixed.
namespace {

template <class T>
using register_of = typename element<typename memory<T>::vector>::type;
template <class T>
struct total { using type = T; };
template <>
struct total<float> { using type = double; };
template <class T>
using total_of = typename total<register_of<T>>::type;

// The sum of what the block's threads before this one bring; `all`: of what all of them do.
// `exchange`: shared memory of a T for each warp. Calls block_barrier().
template <int threads, class T>
KILN_INLINE T sum_before(T x, T* exchange, T& all) {
  const int lane = thread_index() % 32, warp = thread_index() / 32;
  T sum = x;
  _Pragma("unroll") for (int step = 1; step < 32; step *= 2) {
    const T below = shuffle(sum, lane >= step ? lane - step : lane);
    sum = lane >= step ? sum + below : sum;
  }
  const T left = shuffle(sum, lane > 0 ? lane - 1 : 0);
  T before = lane > 0 ? left : T{};
  if (lane == 31) exchange[warp] = sum;
  block_barrier();
  T warps{};
  _Pragma("unroll 4") for (int w = 0; w < threads / 32; ++w) {
    before = w == warp ? warps + before : before;
    warps = warps + exchange[w];
  }
  all = warps;
  block_barrier();
  return before;
}

// The block along `count` elements, from *before on, or from zero.
template <int threads, int aligned, class T>
KILN_INLINE void run_row(const T* in, T* out, int64_t count, const total_of<T>* before) {
  using R = register_of<T>;
  R* const exchange = reinterpret_cast<R*>(shared_memory());
  total_of<T> sum = before != nullptr ? *before : total_of<T>{};
  for (int64_t from = 0; from < count; from += threads * LANES) {
    const int64_t j = from + thread_index() * LANES, left = count - j;
    typename memory<T>::vector x = splat<typename memory<T>::vector>(0);
    if (left >= LANES)
      x = load<aligned>(in + j, AllLanes{});
    else if (left > 0)
      x = load<aligned>(in + j, SomeLanes{static_cast<index_t>(left)});
    _Pragma("unroll") for (int l = 1; l < LANES; ++l) x[l] = x[l - 1] + x[l];
    R all;
    const R base = sum_before<threads>(x[LANES - 1], exchange, all);
    KILN_EACH_LANE x[l] = static_cast<R>(sum) + (base + x[l]);
    if (left >= LANES)
      store<aligned>(out + j, x, AllLanes{});
    else if (left > 0)
      store<aligned>(out + j, x, SomeLanes{static_cast<index_t>(left)});
    sum += all;
  }
}
template <int threads, int aligned, class T>
KILN_INLINE void sum_row(const T* in, int64_t count, total_of<T>* result) {
  total_of<T> sum{}, all;
  for (int64_t j = thread_index() * LANES; j < count; j += threads * LANES) {
    if (count - j >= LANES) {
      const auto x = load<aligned>(in + j, AllLanes{});
      KILN_EACH_LANE sum += x[l];
    } else {
      const auto x = load<aligned>(in + j, SomeLanes{static_cast<index_t>(count - j)});
      KILN_EACH_LANE sum += x[l];
    }
  }
  sum_before<threads>(sum, reinterpret_cast<total_of<T>*>(shared_memory()), all);
  if (thread_index() == 0) *result = all;
}

// A thread down `count` rows of `stride` elements.
template <class T>
KILN_INLINE void run_column(const T* in, T* out, int64_t count, int64_t stride,
                            const total_of<T>* before) {
  total_of<T> sum[LANES];
  KILN_EACH_LANE sum[l] = before != nullptr ? before[l] : total_of<T>{};
  _Pragma("unroll 4") for (int64_t i = 0; i < count; ++i) {
    typename memory<T>::vector x = load<LANES>(in + i * stride, AllLanes{});
    KILN_EACH_LANE {
      sum[l] += x[l];
      x[l] = static_cast<register_of<T>>(sum[l]);
    }
    store<LANES>(out + i * stride, x, AllLanes{});
  }
}
template <class T>
KILN_INLINE void sum_column(const T* in, int64_t count, int64_t stride, total_of<T>* result) {
  total_of<T> sum[LANES];
  KILN_EACH_LANE sum[l] = total_of<T>{};
  _Pragma("unroll 4") for (int64_t i = 0; i < count; ++i) {
    const auto x = load<LANES>(in + i * stride, AllLanes{});
    KILN_EACH_LANE sum[l] += x[l];
  }
  KILN_EACH_LANE result[l] = sum[l];
}

// The sum of a piece becomes that of all before it: along a row by a block, down a column by a
// thread.
template <int threads, class Total>
KILN_INLINE void running_offsets(Total* totals, int64_t pieces) {
  Total sum{};
  for (int64_t from = 0; from < pieces; from += threads) {
    const int64_t at = from + thread_index();
    Total all;
    const Total before = sum_before<threads>(at < pieces ? totals[at] : Total{},
                                             reinterpret_cast<Total*>(shared_memory()), all);
    if (at < pieces) totals[at] = sum + before;
    sum += all;
  }
}
template <class Total>
KILN_INLINE void running_offsets_down(Total* totals, int64_t pieces, int64_t stride) {
  Total sum{};
  _Pragma("unroll 4") for (int64_t piece = 0; piece < pieces; ++piece) {
    const Total own = totals[piece * stride];
    totals[piece * stride] = sum;
    sum += own;
  }
}

}  // namespace
