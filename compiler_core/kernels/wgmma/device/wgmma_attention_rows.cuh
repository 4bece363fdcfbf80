// Rows of attention on the tensor cores of compute capability 9.0: 64 of a warpgroup. Scores stay in the
// registers that the tensor cores leave them in, are weighed there (online softmax, as in
// cpu/attention.h) and are the first operand of the second product as they lie.
//
// In front of it the generated source defines Problem (attention.cuh), keys_multiply(), a product of
// Tiling::keys columns, values_multiply(), one of Tiling::columns with its first operand in
// registers, and
//   struct Tiling  query_rows (in shared memory, piece by piece of 64 columns), keys (of a tile: in
//                  whole 16); depth, room (of a value's row): in whole 64; columns; steps (of 16 of
//                  the depth); scale: a score, as scores() gives it, times it goes into the
//                  exponential; scores_read: whether scores() reads inputs, which have no more rows
//                  than queries; far_scores: whether they may be as low as the least finite number
namespace {

// exp((score - from) Tiling::scale). Scores near the least finite number are subtracted first, since their
// multiples are infinite.
constexpr float kWeightScale = Tiling::scale * 0x1.715476p0f;  // 1 / ln 2
KILN_INLINE float weight_of(float score, float from) {
  return quick_exp2(Tiling::far_scores ? (score - from) * kWeightScale
                                       : score * kWeightScale - from * kWeightScale);
}
// Whether it is so in a lane of the warp.
KILN_INLINE bool in_any_lane(bool x) {
#ifndef KILN_ON_HOST
  return __any_sync(0xffffffffu, x) != 0;
#else
  int any = x ? 1 : 0;
  for (int distance = 1; distance < 32; distance *= 2) any |= shuffle_xor(any, distance);
  return any != 0;
#endif
}

// The part of a thread: rows 16 w + l / 4 and 8 further of its warpgroup's, 32 w + l its number; of
// columns 8 j + 2 (l % 4) and the next, in this order, for every j.
struct Rows {
  float score[Tiling::keys / 2], sum[Tiling::columns / 2];
  unsigned weight[Tiling::keys / 16][4];
  float origin[2], total[2], factor[2];  // weights are exp((score - origin) scale)
  bool moves[2];                         // origins, with this tile

  KILN_MEMBER void clear() {
    _Pragma("unroll") for (float& x : sum) x = 0;
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      origin[half] = -infinity_f32();
      total[half] = 0;
      moves[half] = false;
    }
  }
  // Begins score = query * key^T.
  KILN_MEMBER void multiply_keys(Place query, Place key) {
    warpgroup_begin();
    _Pragma("unroll") for (int s = 0; s < Tiling::steps; ++s)
        keys_multiply(score, query + (s / 4 * (Tiling::query_rows * 128) + s % 4 * 32),
                      key + (s / 4 * (Tiling::keys * 128) + s % 4 * 32), s > 0);
    warpgroup_commit();
  }
  // Begins sum += weight * value.
  KILN_MEMBER void add_values(Place value) {
    warpgroup_begin();
    _Pragma("unroll") for (int k = 0; k < Tiling::keys / 16; ++k)
        values_multiply(sum, weight[k], value + (k / 4 * (Tiling::room * 128) + k % 4 * 2048), true);
    warpgroup_commit();
  }
  // Products become scores, where there is a key (`all_keys`: there is); `row`, `key`: this thread's first.
  template <bool all_keys, class Score>
  KILN_MEMBER void finish_scores(const Problem& problem, int row, int key, const Score& scores) {
    _Pragma("unroll") for (int i = 0; i < Tiling::keys / 2; i += LANES) {
      const int at_row = row + i % 4 / 2 * 8, at_key = key + i / 4 * 8 + i % 2;
      const bool live = (Problem::whole_rows || !Tiling::scores_read || at_row < problem.rows) &&
                        (all_keys || at_key < problem.keys);
      Vec<float> x;
      KILN_EACH_LANE x[l] = live ? score[i + l] : -infinity_f32();
      if (live) x = scores(x, at_row, at_key);
      KILN_EACH_LANE score[i + l] = x[l];
    }
  }
  // Scores become weights, still in f32; sums wait for rescale(). A row's origin is moved to its greatest
  // score only where weights would pass 2^kMostDoublings otherwise: then few tiles rescale anything.
  KILN_MEMBER void weigh() {
    constexpr float kMostDoublings = 8;
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      const float before = origin[half];
      float most = before;
      _Pragma("unroll") for (int i = half * 2; i < Tiling::keys / 2; i += 4) most =
          max_or_nan(most, max_or_nan(score[i], score[i + 1]));
      most = max_or_nan(most, shuffle_xor(most, 1));
      most = max_or_nan(most, shuffle_xor(most, 2));
      moves[half] = !((most - before) * kWeightScale <= kMostDoublings);  // and where that is NaN
      origin[half] = moves[half] ? most : before;
      // A row of nothing but -inf so far: its weights are exp(-inf) = 0.
      const float from = origin[half] == -infinity_f32() ? 0.0f : origin[half];
      const float moved = weight_of(before, from);
      factor[half] = moves[half] ? moved : 1.0f;
      float added = 0;
      _Pragma("unroll") for (int i = half * 2; i < Tiling::keys / 2; i += 4)
        _Pragma("unroll") for (int l = 0; l < 2; ++l) {
          score[i + l] = weight_of(score[i + l], from);
          added += score[i + l];
        }
      total[half] = total[half] * factor[half] + added;  // of this lane's columns
    }
  }
  KILN_MEMBER void rescale() {
    if (in_any_lane(moves[0] || moves[1]))
      _Pragma("unroll") for (int i = 0; i < Tiling::columns / 2; ++i) sum[i] *= factor[i % 4 / 2];
  }
  KILN_MEMBER void take_weights() {
    _Pragma("unroll") for (int k = 0; k < Tiling::keys / 16; ++k)
      _Pragma("unroll") for (int w = 0; w < 4; ++w) weight[k][w] =
          pack_pair(static_cast<const Query::stored*>(nullptr), score[k * 8 + w * 2], score[k * 8 + w * 2 + 1]);
  }
  // Sums become results, totals those of whole rows.
  KILN_MEMBER void finish(const Problem& problem) {
    const float none = Problem::guarded || problem.keys == 0 ? 0.0f : nan_f32();
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      total[half] += shuffle_xor(total[half], 1);
      total[half] += shuffle_xor(total[half], 2);
      const bool blind = origin[half] == -infinity_f32();
      const float share = Problem::normalised ? 1.0f / total[half] : 1.0f;
      _Pragma("unroll") for (int i = half * 2; i < Tiling::columns / 2; i += 4)
        _Pragma("unroll") for (int l = 0; l < 2; ++l) sum[i + l] = blind ? none : sum[i + l] * share;
      if (blind && !Problem::guarded) total[half] = none;
    }
  }
  // The logarithms of the sums of whole rows, behind finish(); `row`: this thread's first.
  template <class Store>
  KILN_MEMBER void store_log_sums(const Problem& problem, int row, const Store& store_log_sum) const {
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      if (thread_index() % 4 != 0 || row + half * 8 >= problem.rows) continue;
      const float blind = problem.keys == 0 ? -infinity_f32() : nan_f32();
      const float log_sum = logf(total[half]) + origin[half] * Tiling::scale;
      store_log_sum(splat<vf32>(origin[half] == -infinity_f32() ? blind : log_sum), row + half * 8);
    }
  }
  // `row`: this thread's first.
  template <class Store>
  KILN_MEMBER void store(const Problem& problem, int row, const Store& store_result) const {
    _Pragma("unroll") for (int i = 0; i < Tiling::columns / 2; i += LANES) {
      const int half = i % 4 / 2, at_row = row + half * 8;
      const int column = i / 4 * 8 + thread_index() % 4 * 2 + i % 2;
      if (at_row >= problem.rows || column >= Problem::columns) continue;
      Vec<float> x;
      KILN_EACH_LANE x[l] = sum[i + l];
      store_result(x, splat<Vec<float>>(total[half]), at_row, column);
    }
  }
};

}  // namespace
