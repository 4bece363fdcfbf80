// Attention of few rows, which waits for keys and values: at most 16 rows of a batch are a block's, and
// its warps, and the blocks of a cluster, take tiles of keys by turns. Each warp brings its own tiles, or
// computes them: what the next is made of waits in registers while one is multiplied. Each has its own
// greatest scores, totals and sums; those of all are put together at the end, first in a block, then in
// the cluster.
//
// In front of it stands attention.cuh; Tiling::row_warps is 1.
namespace {

// What a warp or a block has of its rows: their greatest scores, totals and sums.
template <int columns>
struct PartOfRows {
  static constexpr int pitch = columns + 8;
  float greatest[16], total[16], sum[16 * pitch];
};

// One element of parts that are put together, of which part(i) has {greatest, total, sums}.
struct RowPart {
  float greatest, total;
  Vec<float> sums;
};
template <class Core, int parts, class Part>
KILN_INLINE RowPart put_together(const Part& part) {
  RowPart all = part(0);
  _Pragma("unroll") for (int i = 1; i < parts; ++i) {
    const RowPart one = part(i);
    const float most = max_or_nan(all.greatest, one.greatest);
    const float from = most == -infinity_f32() ? 0.0f : most;
    const float mine = Weights<Core>::exponential(all.greatest - from);
    const float its = Weights<Core>::exponential(one.greatest - from);
    all.greatest = most;
    all.total = all.total * mine + one.total * its;
    KILN_EACH_LANE all.sums[l] = all.sums[l] * mine + one.sums[l] * its;
  }
  return all;
}

// What blocks of a cluster do together. A target without clusters has no words for it, and needs none:
// its kernels do not name a cluster of several.
template <int blocks>
struct ClusterOf;
#if __CUDA_ARCH__ >= 900
template <int blocks>
struct ClusterOf {
  KILN_INLINE void barrier() { cluster_barrier(); }
  KILN_INLINE float load(const float* mine, int rank) { return cluster_load(mine, rank); }
};
#endif

// The rows from `row` on, 16 at most, by block `split` of a cluster of `splits`.
template <class Core, int splits, class Keys, class Values, class Score, class Finish, class LogSum>
KILN_INLINE void attend_few_rows(const Problem& problem, const typename Query::stored* query,
                                 const Keys& key, const Values& value, int row, int split, char* shared,
                                 const Score& scores, const Finish& store,
                                 const LogSum& store_log_sum) {
  using This = Attention<Core>;
  using Part = PartOfRows<This::used_columns>;
  constexpr int warps = Tiling::warps, step = splits * warps;
  const int warp = thread_index() / 32, lane = thread_index() % 32;
  This state;
  state.clear();
  const int end = SeenKeys(problem, row, 16).end;
  char* const stages = shared + This::QueryTile::bytes + warp * (Tiling::stages * This::stage_bytes);
  // Number `turn` of this warp's tiles.
  const auto tile_of = [&](int turn) { return turn * step + split * warps + warp; };
  const auto stage_of = [&](int turn) { return stages + turn % Tiling::stages * This::stage_bytes; };
  This::fetch_queries(problem, query, row, shared);
  cp_async_commit();
  const auto multiply = [&](int turn) {
    const char* stage = stage_of(turn);
    state.multiply_keys(shared, stage);
    state.finish_scores(problem, row, tile_of(turn) * Tiling::keys, scores);
    state.weigh();
    state.add_values(stage + This::KeyTile::bytes);
  };
  const auto is_tile = [&](int turn) { return tile_of(turn) * Tiling::keys < end; };
  if constexpr (Key::computed || Value::computed) {
    using Coming = typename This::template ComingTile<32, Keys, Values>;
    cp_async_wait<0>();
    if (is_tile(0)) {
      Coming first;
      first.begin(problem, key, value, tile_of(0), lane);
      first.end(problem, key, value, tile_of(0), stage_of(0), lane);
    }
    block_barrier();  // all have brought their part of the queries
    _Pragma("unroll 1") for (int turn = 0; is_tile(turn); ++turn) {
      Coming next;
      if (is_tile(turn + 1)) next.begin(problem, key, value, tile_of(turn + 1), lane);
      multiply(turn);
      warp_barrier();  // its stage may be written
      if (is_tile(turn + 1))
        next.end(problem, key, value, tile_of(turn + 1), stage_of(turn + 1), lane);
      warp_barrier();
    }
  } else {
    const auto fetch = [&](int turn) {
      This::template fetch<32>(problem, key, value, tile_of(turn), end, stage_of(turn), lane);
    };
    _Pragma("unroll 1") for (int turn = 0; turn < Tiling::stages - 1; ++turn) fetch(turn);
    cp_async_wait<Tiling::stages - 1>();
    block_barrier();  // all have brought their part of the queries
    _Pragma("unroll 1") for (int turn = 0; is_tile(turn); ++turn) {
      fetch(turn + Tiling::stages - 1);
      cp_async_wait<Tiling::stages - 1>();
      warp_barrier();
      multiply(turn);
      warp_barrier();  // its stage may be written
    }
  }
  cp_async_wait<0>();
  state.add_totals();
  block_barrier();  // nobody reads queries, keys or values any more
  Part* const parts = reinterpret_cast<Part*>(shared);
  _Pragma("unroll") for (int half = 0; half < 2; ++half) {
    const int at = lane / 4 + half * 8;
    if (lane % 4 == 0) {
      parts[warp].greatest[at] = state.greatest[half];
      parts[warp].total[at] = state.total[half];
    }
    _Pragma("unroll") for (int j = 0; j < This::used_columns / 8; ++j)
      _Pragma("unroll") for (int i = 0; i < 2; ++i)
        parts[warp].sum[at * Part::pitch + j * 8 + lane % 4 * 2 + i] = state.sum[j][half * 2 + i];
  }
  block_barrier();
  constexpr int vectors = This::used_columns / LANES;
  const auto of_warp = [&](const Part& part, int at, int column) {
    RowPart x = {part.greatest[at], part.total[at], {}};
    KILN_EACH_LANE x.sums[l] = part.sum[at * Part::pitch + column + l];
    return x;
  };
  const auto finish = [&](const RowPart& x, int at, int column) {
    if (row + at >= problem.rows || column >= Problem::columns) return;
    const bool blind = x.greatest == -infinity_f32();
    const float none = This::of_nothing(problem);
    Vec<float> result;
    KILN_EACH_LANE result[l] = blind                 ? none
                               : Problem::normalised ? This::normalised(x.sums[l], x.total)
                                                     : x.sums[l];
    store(result, splat<Vec<float>>(blind && !Problem::guarded ? none : x.total), row + at, column);
    if (Problem::has_log_sums && column == 0)
      store_log_sum(splat<vf32>(This::log_sum_of(problem, x.greatest, x.total)), row + at);
  };
  const auto of_block = [&](int at, int column) {
    return put_together<Core, warps>([&](int i) { return of_warp(parts[i], at, column); });
  };
  if constexpr (splits == 1) {
    for (int i = thread_index(); i < 16 * vectors; i += warps * 32)
      finish(of_block(i / vectors, i % vectors * LANES), i / vectors, i % vectors * LANES);
  } else {
    using Cluster = ClusterOf<splits>;
    Part& whole = parts[warps];
    for (int i = thread_index(); i < 16 * vectors; i += warps * 32) {
      const int at = i / vectors, column = i % vectors * LANES;
      const RowPart x = of_block(at, column);
      if (column == 0) {
        whole.greatest[at] = x.greatest;
        whole.total[at] = x.total;
      }
      KILN_EACH_LANE whole.sum[at * Part::pitch + column + l] = x.sums[l];
    }
    Cluster::barrier();
    for (int i = split * (warps * 32) + thread_index(); i < 16 * vectors; i += step * 32) {
      const int at = i / vectors, column = i % vectors * LANES;
      finish(put_together<Core, splits>([&](int rank) {
               RowPart x = {Cluster::load(&whole.greatest[at], rank),
                            Cluster::load(&whole.total[at], rank),
                            {}};
               KILN_EACH_LANE x.sums[l] =
                   Cluster::load(&whole.sum[at * Part::pitch + column + l], rank);
               return x;
             }),
             at, column);
    }
    Cluster::barrier();  // nobody ends while others read what it has
  }
}

}  // namespace
