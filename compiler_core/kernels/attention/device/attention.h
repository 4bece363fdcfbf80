// Attention in one pass: blocks of query rows walk the keys a tile at a time and keep, for each
// row, the greatest score so far, the sum of exponentials and the weighted sum of values, all
// rescaled when the greatest score grows (Milakov, Gimelshein: Online normalizer calculation for
// softmax, 2018; Dao: FlashAttention-2, 2023). Scores never leave scratch. The generated source
// defines in front of this file
//
//   struct Problem   `stored` (memory type of query, key, value), sizes rows, keys, depth, columns,
//                    the operands' row and column strides in elements, has_reach, reach,
//                    has_past, past (AttentionProblem), normalised, guarded (AttentionPattern), one_tile: one tile
//                    holds all keys, and where a batch's operands begin. What is known at run time
//                    only is a member, all else a constant
//   struct Tiling    mr rows x vectors: the register tile; queries, keys: the block
//   struct Scores    operator()(sums, batch, row, column, live): scores from sums of products;
//                    within(...) the same where the mask is known to show all
//   struct Epilogue  operator()(value, sum, batch, row, column, live): stores a vector of results;
//                    store_log_sum(log_sum, batch, row), where the problem has_log_sums
//
// and behind it the entry.
namespace {

using Stored = Problem::stored;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// ---- Where things lie in scratch, in floats.
struct Scratch {
  static constexpr int64_t width = Tiling::vectors * LANES;  // of a panel of keys
  static constexpr int64_t columns = round_up(Problem::columns, LANES);
  static constexpr int64_t score_pitch = Tiling::keys + LANES;
  static constexpr int64_t depth_pitch = round_up(Problem::depth, LANES) + LANES;
  static constexpr int64_t query = 0;                                            // [queries][depth]
  static constexpr int64_t key = query + Tiling::queries * depth_pitch;          // panels [depth][width]
  static constexpr int64_t value = key + Tiling::keys * Problem::depth;          // [keys][columns]
  static constexpr int64_t score = value + Tiling::keys * columns;               // [queries][keys]
  static constexpr int64_t sums = score + Tiling::queries * score_pitch;         // [queries][columns]
  static constexpr int64_t greatest = sums + Tiling::queries * columns;          // [queries]
  static constexpr int64_t total = greatest + Tiling::queries;                   // [queries]
  static constexpr int64_t factor = total + Tiling::queries;                     // [queries]
  static constexpr int64_t size = factor + Tiling::queries;
};

// LANES elements of one row, contiguous or not.
template <class Live>
KILN_INLINE vf32 load_row(const Stored* p, int64_t stride, Live live) {
  return stride == 1 ? load(p, live) : load_strided(p, stride, live);
}

// `count` rows of WIDTH elements as floats, PITCH apart; zeros to the end of the last vector. They
// lie `row` apart, their elements `column`.
template <int64_t WIDTH, int64_t PITCH>
KILN_INLINE void copy_rows(const Stored* from, int64_t row, int64_t column, int64_t count,
                           float* to) {
  for (int64_t r = 0; r < count; ++r, from += row, to += PITCH) {
    int64_t c = 0;
    for (; c + LANES <= WIDTH; c += LANES)
      store(to + c, load_row(from + c * column, column, AllLanes{}), AllLanes{});
    if constexpr (WIDTH % LANES != 0)
      store(to + c, load_row(from + c * column, column, SomeLanes{WIDTH - c}), AllLanes{});
  }
}

// `count` keys, at most LANES, as columns of a panel. Missing ones are zeros.
KILN_INLINE void transpose_keys(const Problem& problem, const Stored* from, int64_t count,
                                float* panel) {
  const int64_t row = problem.key_row, column = problem.key_column;
  if (row == 1) {  // columns already
    for (int64_t p = 0; p < Problem::depth; ++p) {
      const vf32 x = count == LANES  ? load(from + p * column, AllLanes{})
                     : count > 0     ? load(from + p * column, SomeLanes{count})
                                     : vf32{};
      store(panel + p * Scratch::width, x, AllLanes{});
    }
    return;
  }
  int64_t p = 0;
  for (; p + LANES <= Problem::depth; p += LANES) {
    vf32 x[LANES];
#pragma GCC unroll 16
    for (int l = 0; l < LANES; ++l)
      x[l] = l < count ? load_row(from + l * row + p * column, column, AllLanes{}) : vf32{};
    transpose_lanes(x);
#pragma GCC unroll 16
    for (int l = 0; l < LANES; ++l) store(panel + (p + l) * Scratch::width, x[l], AllLanes{});
  }
  for (; p < Problem::depth; ++p)
    for (int64_t l = 0; l < LANES; ++l)
      panel[p * Scratch::width + l] = l < count ? load_splat(from + l * row + p * column)[0] : 0;
}

KILN_INLINE void pack_keys(const Problem& problem, const Stored* from, int64_t count,
                           float* panels) {
  for (int64_t key = 0; key < count; key += LANES)
    transpose_keys(problem, from + key * problem.key_row, smaller(count - key, LANES),
                   panels + key / Scratch::width * Scratch::width * Problem::depth +
                       key % Scratch::width);
}

// ---- Products: sums[r][v] += a[r][p] * b[p][v] over `depth`, rows of a and b so far apart.
template <int VECTORS, int64_t A_PITCH, int64_t B_PITCH>
KILN_INLINE void accumulate(const float* a, const float* b, int64_t depth,
                            vf32 (&sums)[Tiling::mr][VECTORS]) {
  for (int64_t p = 0; p < depth; ++p, b += B_PITCH) {
    vf32 y[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) y[v] = load(b + v * LANES, AllLanes{});
#pragma GCC unroll 32
    for (int r = 0; r < Tiling::mr; ++r) {
      const vf32 x = a[r * A_PITCH + p] - vf32{};
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sums[r][v] += x * y[v];
    }
  }
}

// The products of mr queries with a panel of keys.
KILN_INLINE void multiply_keys(const float* query, const float* panel, float* score) {
  vf32 sums[Tiling::mr][Tiling::vectors] = {};
  accumulate<Tiling::vectors, Scratch::depth_pitch, Scratch::width>(query, panel, Problem::depth,
                                                                    sums);
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::mr; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Tiling::vectors; ++v)
      store(score + r * Scratch::score_pitch + v * LANES, sums[r][v], AllLanes{});
}

// One tile holds all keys: nothing is rescaled.
constexpr bool kOneTile = Problem::one_tile;

// mr rows of results: rescaled, plus `keys` weighted values, from column `c` on.
template <int VECTORS>
KILN_INLINE void add_values(const float* weight, const float* value, int64_t keys,
                            const float* factor, float* result) {
  vf32 sums[Tiling::mr][VECTORS];
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::mr; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = kOneTile
                       ? vf32{}
                       : load(result + r * Scratch::columns + v * LANES, AllLanes{}) * factor[r];
  accumulate<VECTORS, Scratch::score_pitch, Scratch::columns>(weight, value, keys, sums);
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::mr; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      store(result + r * Scratch::columns + v * LANES, sums[r][v], AllLanes{});
}

// ---- Softmax, ROWS rows of a tile: products become weights; each row's greatest score, its sum
// and the factor for what it had before. Several rows at a time, since what goes across the lanes
// of one would wait for itself.
template <int ROWS, class Score>
KILN_INLINE void weigh_rows(float* rows, int64_t keys, const Score& score, float* greatest,
                            float* total, float* factor) {
  const vf32 least = splat<vf32>(-infinity_f32());
  vf32 most[ROWS], from[ROWS], sum[ROWS] = {};
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) most[i] = kOneTile ? least : splat<vf32>(greatest[i]);
  int64_t k = 0;
  for (; k + LANES <= keys; k += LANES)
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      float* const at = rows + i * Scratch::score_pitch + k;
      const vf32 s = score(load(at, AllLanes{}), i, k, AllLanes{});
      store(at, s, AllLanes{});
      most[i] = op_max(most[i], s);
    }
  if (k < keys) {
    const SomeLanes live{keys - k};
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      float* const at = rows + i * Scratch::score_pitch + k;
      const vf32 s = where_live(live, score(load(at, AllLanes{}), i, k, live), least);
      store(at, s, AllLanes{});
      most[i] = op_max(most[i], s);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
    most[i] = across_lanes<Max>(most[i]);
    // A row of nothing but -inf so far: its weights are exp(-inf) = 0.
    from[i] = most[i] == least ? vf32{} : most[i];
  }
  for (k = 0; k < keys; k += LANES)
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      float* const at = rows + i * Scratch::score_pitch + k;
      const vf32 e = op_exp(load(at, AllLanes{}) - from[i]);
      store(at, e, AllLanes{});
      sum[i] += e;
    }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
    const float added = across_lanes<Sum>(sum[i])[0];
    if (!kOneTile) factor[i] = op_exp(splat<vf32>(greatest[i]) - from[i])[0];
    total[i] = kOneTile ? added : total[i] * factor[i] + added;
    greatest[i] = most[i][0];
  }
}

// ---- A block: `rows` queries from `row` on, of one batch.
template <class Epilogue>
KILN_INLINE void finish_row(const Problem& problem, const float* sums, float greatest, float total,
                            int64_t batch, int64_t row, const Epilogue& epilogue) {
  const bool blind = greatest == -infinity_f32();
  const float none = Problem::guarded || problem.keys == 0 ? 0 : nan_f32();
  const float by = blind ? none : Problem::normalised ? total : 1;
  const auto result = [&](int64_t c) KILN_LAMBDA {
    const vf32 x = load(sums + c, AllLanes{});
    return blind ? splat<vf32>(by) : x / by;
  };
  if (Problem::has_log_sums) {
    const float nothing = problem.keys == 0 ? -infinity_f32() : nan_f32();
    epilogue.store_log_sum(
        blind ? splat<vf32>(nothing) : op_log(splat<vf32>(total)) + greatest, batch, row);
  }
  const vf32 sum = splat<vf32>(blind && !Problem::guarded ? none : total);
  int64_t c = 0;
  for (; c + LANES <= Problem::columns; c += LANES)
    epilogue(result(c), sum, batch, row, c, AllLanes{});
  if constexpr (Problem::columns % LANES != 0)
    epilogue(result(c), sum, batch, row, c, SomeLanes{Problem::columns - c});
}

template <class Scores, class Epilogue>
KILN_INLINE void attend(const Problem& problem, const Stored* query, const Stored* key,
                        const Stored* value, int64_t batch, int64_t row, float* scratch,
                        const Scores& scores, const Epilogue& epilogue) {
  const int64_t rows = smaller(problem.rows - row, Tiling::queries);
  float* const q = scratch + Scratch::query;
  float* const sums = scratch + Scratch::sums;
  float *const greatest = scratch + Scratch::greatest, *const total = scratch + Scratch::total;
  float* const factor = scratch + Scratch::factor;
  copy_rows<Problem::depth, Scratch::depth_pitch>(query + row * problem.query_row,
                                                  problem.query_row, problem.query_column, rows, q);
  for (int64_t i = rows * Scratch::depth_pitch; i < round_up(rows, Tiling::mr) * Scratch::depth_pitch;
       ++i)
    q[i] = 0;
  for (int64_t i = 0; i < Tiling::queries * Scratch::columns; ++i) sums[i] = 0;
  for (int64_t i = 0; i < Tiling::queries; ++i) {
    greatest[i] = -infinity_f32();
    total[i] = factor[i] = 0;
  }
  // Keys beyond, and before, are hidden from all rows of the block.
  const int64_t end = Problem::has_reach
                          ? smaller(problem.keys, larger(0, row + rows + problem.reach))
                          : problem.keys;
  const int64_t begin = Problem::has_past && !kOneTile
                            ? larger(0, row - problem.past) / Tiling::keys * Tiling::keys
                            : 0;
  for (int64_t first = begin; first < end; first += Tiling::keys) {
    const int64_t keys = smaller(end - first, Tiling::keys);
    pack_keys(problem, key + first * problem.key_row, keys, scratch + Scratch::key);
    copy_rows<Problem::columns, Scratch::columns>(value + first * problem.value_row,
                                                  problem.value_row, problem.value_column, keys,
                                                  scratch + Scratch::value);
    for (int64_t r = 0; r < rows; r += Tiling::mr) {
      float* const tile = scratch + Scratch::score + r * Scratch::score_pitch;
      for (int64_t k = 0; k < keys; k += Scratch::width)
        multiply_keys(q + r * Scratch::depth_pitch, scratch + Scratch::key + k * Problem::depth,
                      tile + k);
      const auto weigh = [&](int64_t i, auto at_once) KILN_LAMBDA {
        constexpr int ROWS = decltype(at_once)::value;
        float* const products = tile + i * Scratch::score_pitch;
        const int64_t at = row + r + i;
        const auto with = [&](auto score) KILN_LAMBDA {
          weigh_rows<ROWS>(products, keys, score, greatest + r + i, total + r + i, factor + r + i);
        };
        if (Problem::has_within && (!Problem::has_reach || first + keys - 1 <= at + problem.reach) &&
            (!Problem::has_past || first >= at + ROWS - 1 - problem.past))
          with([&](vf32 x, int64_t j, int64_t k, auto live) KILN_LAMBDA {
            return scores.within(x, batch, at + j, first + k, live);
          });
        else
          with([&](vf32 x, int64_t j, int64_t k, auto live) KILN_LAMBDA {
            return scores(x, batch, at + j, first + k, live);
          });
      };
      const int64_t live_rows = smaller(rows - r, Tiling::mr);
      int64_t i = 0;
      for (; i + 4 <= live_rows; i += 4) weigh(i, Rows<4>{});
      for (; i < live_rows; ++i) weigh(i, Rows<1>{});
      float* const result = sums + r * Scratch::columns;
      constexpr int64_t width = Scratch::width;
      int64_t c = 0;
      for (; c + width <= Scratch::columns; c += width)
        add_values<Tiling::vectors>(tile, scratch + Scratch::value + c, keys, factor + r,
                                    result + c);
      for (; c < Scratch::columns; c += LANES)
        add_values<1>(tile, scratch + Scratch::value + c, keys, factor + r, result + c);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    finish_row(problem, sums + r * Scratch::columns, greatest[r], total[r], batch, row + r, epilogue);
}

}  // namespace
