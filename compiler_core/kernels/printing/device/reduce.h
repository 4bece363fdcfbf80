// Reductions: accumulators of one vector, folded across their lanes at the end.
namespace {

// Which lanes of a tail exist.
KILN_INLINE vi32 lane_mask(SomeLanes live) {
  return lane_numbers_as<vi32>() < static_cast<int>(live.count);
}
// Lanes past a tail leave an accumulator as it was.
template <class V>
KILN_INLINE V where_live(AllLanes, V now, V) { return now; }
template <class V>
KILN_INLINE V where_live(SomeLanes live, V now, V before) {
  return op_select(lane_mask(live), now, before);
}

struct Sum {
  template <class V>
  KILN_INLINE V combine(V a, V b) { return a + b; }
};
struct Prod {
  template <class V>
  KILN_INLINE V combine(V a, V b) { return a * b; }
};
struct Max {
  template <class V>
  KILN_INLINE V combine(V a, V b) { return op_max(a, b); }
};
struct Min {
  template <class V>
  KILN_INLINE V combine(V a, V b) { return op_min(a, b); }
};

// A number of rows taken together, known to the compiler.
template <int n>
struct Rows { static constexpr int value = n; };

template <class V>
struct lane_numbers_of { using type = vi32; };
template <>
struct lane_numbers_of<vf64> { using type = vi64; };
template <>
struct lane_numbers_of<vi64> { using type = vi64; };

// Every lane gets the combination of all of them, the same bits in each.
template <class How, int DISTANCE = LANES / 2, class V>
KILN_INLINE V across_lanes(V x) {
  using Numbers = typename lane_numbers_of<V>::type;
  x = How::combine(x, __builtin_shuffle(x, lane_numbers_as<Numbers, DISTANCE>()));
  if constexpr (DISTANCE > 1)
    return across_lanes<How, DISTANCE / 2>(x);
  else
    return x;
}

}  // namespace
