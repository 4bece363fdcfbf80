// Reductions: accumulators of one vector a thread, folded across lanes, threads, the block and the
// cluster. Every thread gets the same bits, in an order that never changes.
namespace {

// Lanes past a tail leave an accumulator as it was.
template <class V>
KILN_INLINE V where_live(AllLanes, const V& now, const V&) { return now; }
template <class V>
KILN_INLINE V where_live(SomeLanes live, V now, const V& before) {
  KILN_LANES(now.lane[l] = l < live.count ? now.lane[l] : before.lane[l])
  return now;
}
template <class V>
KILN_INLINE V where_live(LanesWithin live, V now, const V& before) {
  KILN_LANES(now.lane[l] = is_live(live, l) ? now.lane[l] : before.lane[l])
  return now;
}

struct Sum {
  template <class T>
  KILN_INLINE T one(T a, T b) { return a + b; }
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return a + b; }
};
struct Prod {
  template <class T>
  KILN_INLINE T one(T a, T b) { return a * b; }
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return a * b; }
};
struct Max {
  template <class T>
  KILN_INLINE T one(T a, T b) { return greatest(a, b); }
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return op_max(a, b); }
};
struct Min {
  template <class T>
  KILN_INLINE T one(T a, T b) { return least(a, b); }
  template <class V>
  KILN_INLINE V combine(const V& a, const V& b) { return op_min(a, b); }
};

// The lanes of one thread's vector, as a tree.
template <class How, class V>
KILN_INLINE typename element<V>::type across_lanes(V x) {
  _Pragma("unroll") for (int width = LANES / 2; width > 0; width /= 2)
    _Pragma("unroll") for (int l = 0; l < width; ++l) x[l] = How::one(x[l], x[l + width]);
  return x[0];
}

// Neighbouring `threads` (a power of two, at most 32) of a warp.
template <class How, int threads, class T>
KILN_INLINE T across_warp(T x) {
  _Pragma("unroll") for (int mask = threads / 2; mask > 0; mask /= 2) x =
      How::one(x, shuffle_xor(x, mask));
  return x;
}

// The groups of `threads` (a power of two) neighbouring threads that the block consists of. Groups
// of more than a warp meet at `exchange`: shared memory of one T a warp of the block, that nobody
// else uses before the next barrier. Calls block_barrier() then: every thread of the block takes
// part.
template <class How, int threads, class T>
KILN_INLINE T across_threads(T x, T* exchange) {
  x = across_warp<How, (threads < 32 ? threads : 32)>(x);
  if constexpr (threads > 32) {
    constexpr int warps = threads / 32;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    if (lane == 0) exchange[warp] = x;
    block_barrier();
    x = across_warp<How, warps>(exchange[warp / warps * warps + lane % warps]);
  }
  return x;
}

// The maximum and the sum of exp(x - maximum) in one reading (M. Milakov, N. Gimelshein, "Online
// normalizer calculation for softmax", 2018): where a new maximum comes, the sum is rescaled, once
// a vector. A thread's own are lane 0. -inf adds nothing, so that a row may begin with it.
template <class Live>
KILN_INLINE void add_online(Live live, vf32& greatest_yet, vf32& sum, vf32 x) {
  constexpr float kLog2E = 0x1.715476p0f;
  KILN_EACH_LANE x[l] = is_live(live, l) ? x[l] : -infinity_f32();
  const float now = greatest(greatest_yet[0], across_lanes<Max>(x));
  const float base = now == -infinity_f32() ? 0.0f : now;
  const float ratio = quick_exp2((greatest_yet[0] - base) * kLog2E);
  KILN_EACH_LANE x[l] = quick_exp2((x[l] - base) * kLog2E);
  sum[0] = fmaf(sum[0], ratio, across_lanes<Sum>(x));
  greatest_yet[0] = now;
}
// A sum that was taken under one maximum, under a greater one.
KILN_INLINE vf32 rescaled(vf32 sum, const vf32& under, const vf32& greater) {
  KILN_EACH_LANE sum[l] = under[l] == greater[l] ? sum[l] : sum[l] * expf(under[l] - greater[l]);
  return sum;
}

// Both, folded together: as across_lanes() and so on, but that all meet once.
struct Online {
  float greatest, sum;
};
template <int threads>
KILN_INLINE Online online_across_warp(Online x) {
  const float all = across_warp<Max, threads>(x.greatest);
  const float ratio = x.greatest == all ? 1.0f : quick_exp2((x.greatest - all) * 0x1.715476p0f);
  return {all, across_warp<Sum, threads>(x.sum * ratio)};
}
template <int threads>
KILN_INLINE Online online_across_threads(Online x, Online* exchange) {
  x = online_across_warp<(threads < 32 ? threads : 32)>(x);
  if constexpr (threads > 32) {
    constexpr int warps = threads / 32;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    if (lane == 0) exchange[warp] = x;
    block_barrier();
    x = online_across_warp<warps>(exchange[warp / warps * warps + lane % warps]);
  }
  return x;
}

#if defined(KILN_ON_HOST) || __CUDA_ARCH__ >= 900
template <int blocks>
KILN_INLINE Online online_across_cluster(Online x, Online* exchange) {
  if (thread_index() == 0) *exchange = x;
  cluster_barrier();
  const int rank = thread_index() % blocks;
  return online_across_warp<blocks>(
      {cluster_load(&exchange->greatest, rank), cluster_load(&exchange->sum, rank)});
}
// The `blocks` (a power of two) of a cluster, from what each block's threads agree on. `exchange`:
// one T of shared memory that nobody else uses. Calls cluster_barrier(); a block must not end
// before the others have read it: one more cluster_barrier().
template <class How, int blocks, class T>
KILN_INLINE T across_cluster(T x, T* exchange) {
  if (thread_index() == 0) *exchange = x;
  cluster_barrier();
  return across_warp<How, blocks>(cluster_load(exchange, thread_index() % blocks));
}
#endif

}  // namespace
