// Attention in one pass on the tensor cores of compute capability 9.0. A block has 64 query rows of one
// batch a warpgroup; another warpgroup lets the copy engine bring keys and values, a tile at a time,
// through rings of slots (see wgmma_matmul.cuh). Scores stay in the registers that the tensor cores
// leave them in, are weighed there (online softmax, as in cpu/attention.h) and are the first operand
// of the second product as they lie; while a tile's values are added, the next tile's scores come.
//
// In front of it the generated source defines Problem (attention.cuh), keys_multiply(), a product of
// Tiling::keys columns, values_multiply(), one of Tiling::columns with its first operand in
// registers, and
//   struct Tiling  groups (warpgroups that multiply), keys (of a tile: in whole 16), stages; depth,
//                  room (of a value's row): in whole 64; columns; steps (of 16 of the depth);
//                  copying_registers, multiplying_registers; scale: a score, as scores() gives it,
//                  times it goes into the exponential; scores_read: whether scores() reads inputs,
//                  which have no more rows than queries
//   struct Maps    query, key, value; bring_query(to, barrier, row, column, batch), ...
namespace {

constexpr int kBlockRows = Tiling::groups * 64;
constexpr int kQueryBytes = kBlockRows * Tiling::depth * 2;
constexpr int kKeyBytes = Tiling::keys * Tiling::depth * 2;
constexpr int kValueKeys = (Tiling::keys + 63) / 64 * 64;  // values come in whole 64
constexpr int kValueBytes = kValueKeys * Tiling::room * 2;

// The block's shared memory, from a multiple of 1024 bytes on.
struct Room {
  char *query, *keys, *values, *barriers;
  KILN_MEMBER explicit Room(char* shared) {
    query = shared + (1024 - shared_offset(shared)) % 1024;
    keys = query + kQueryBytes;
    values = keys + Tiling::stages * kKeyBytes;
    barriers = values + Tiling::stages * kValueBytes;
  }
  KILN_MEMBER char* key(int slot) const { return keys + slot * kKeyBytes; }
  KILN_MEMBER char* value(int slot) const { return values + slot * kValueBytes; }
  KILN_MEMBER char* query_full() const { return barriers; }
  KILN_MEMBER char* key_full(int slot) const { return barriers + 8 + slot * 32; }
  KILN_MEMBER char* key_empty(int slot) const { return barriers + 16 + slot * 32; }
  KILN_MEMBER char* value_full(int slot) const { return barriers + 24 + slot * 32; }
  KILN_MEMBER char* value_empty(int slot) const { return barriers + 32 + slot * 32; }
};

// Warpgroups begin their products in turn: the tensor cores finish one's scores before the next
// one's, and the softmax of one meets the products of the others.
KILN_INLINE void wait_for_turn(int group) {
  if (Tiling::groups > 1) numbered_barrier_wait<256>(group + 1);
}
KILN_INLINE void pass_turn(int group) {
  if (Tiling::groups > 1) numbered_barrier_arrive<256>(group + 1 < Tiling::groups ? group + 2 : 1);
}

KILN_INLINE void bring_keys(const Maps& maps, const Room& room, Slot<Tiling::stages>& slot, int key, int batch) {
  char* full = room.key_full(slot.number);
  barrier_wait(room.key_empty(slot.number), slot.parity ^ 1);
  barrier_arrive_expecting(full, kKeyBytes);
  _Pragma("unroll") for (int i = 0; i < Tiling::depth / 64; ++i)
      maps.bring_key(room.key(slot.number) + i * Tiling::keys * 128, full, key, i * 64, batch);
  slot.next();
}
// 64 keys after one another, each of them in pieces of 64 columns.
KILN_INLINE void bring_values(const Maps& maps, const Room& room, Slot<Tiling::stages>& slot, int key, int batch) {
  constexpr int across = Tiling::room / 64;
  char* full = room.value_full(slot.number);
  barrier_wait(room.value_empty(slot.number), slot.parity ^ 1);
  barrier_arrive_expecting(full, kValueBytes);
  _Pragma("unroll") for (int i = 0; i < kValueKeys / 64 * across; ++i)
      maps.bring_value(room.value(slot.number) + i * 8192, full, key + i / across * 64,
                       i % across * 64, batch);
  slot.next();
}
// One thread, the one that made the barriers: what the first scores need.
KILN_INLINE void bring_first(const Maps& maps, const Room& room, int row, int batch, int tiles) {
  Slot<Tiling::stages> of_keys;
  barrier_arrive_expecting(room.query_full(), kQueryBytes);
  _Pragma("unroll") for (int i = 0; i < Tiling::depth / 64; ++i)
      maps.bring_query(room.query + i * kBlockRows * 128, room.query_full(), row, i * 64, batch);
  if (tiles > 0) bring_keys(maps, room, of_keys, 0, batch);
}
// The same thread, when all threads see the barriers: everything else.
KILN_INLINE void bring_all(const Maps& maps, const Room& room, int batch, int tiles) {
  Slot<Tiling::stages> of_keys, of_values;
  of_keys.next();
  _Pragma("unroll 1") for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) bring_keys(maps, room, of_keys, (tile + 1) * Tiling::keys, batch);
    bring_values(maps, room, of_values, tile * Tiling::keys, batch);
  }
}

// exp((score - from) Tiling::scale).
constexpr float kWeightScale = Tiling::scale * 0x1.715476p0f;  // 1 / ln 2
KILN_INLINE float weight_of(float score, float from) {
  return quick_exp2(score * kWeightScale - from * kWeightScale);
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
        keys_multiply(score, query + (s / 4 * (kBlockRows * 128) + s % 4 * 32),
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

// A block of query rows from `row` on. `scores`, `within`: as in attention.cuh. end_with(rows, query,
// row, own_row) stores a warpgroup's results, whose first row is `row`, a thread's `own_row`; nobody reads
// its queries in shared memory any more.
template <class Score, class Within, class End>
KILN_INLINE void attend(const Problem& problem, const Maps& maps, int batch, int row,
                        const Score& scores, const Within& within, const End& end_with) {
  const Room room(shared_memory());
  // Keys beyond are hidden from all rows of the block.
  const int last = row + kBlockRows < problem.rows ? row + kBlockRows : problem.rows;
  const int seen = last + problem.reach;
  const int end = !Problem::has_reach || seen > problem.keys ? problem.keys : seen;
  const int tiles = end > 0 ? (end + Tiling::keys - 1) / Tiling::keys : 0;
  if (thread_index() == 0) {
    barrier_init(room.query_full(), 1);
    _Pragma("unroll 1") for (int i = 0; i < Tiling::stages; ++i) {
      barrier_init(room.key_full(i), 1);
      barrier_init(room.key_empty(i), Tiling::groups);
      barrier_init(room.value_full(i), 1);
      barrier_init(room.value_empty(i), Tiling::groups);
    }
    barriers_are_made();
    bring_first(maps, room, row, batch, tiles);
  }
  block_barrier();
  const int warp = shuffle(thread_index() / 32, 0);  // the same of the warp, seen by the compiler
  const int group = warp / 4 - 1;
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    if (thread_index() == 0) bring_all(maps, room, batch, tiles);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  const bool leads = thread_index() % 128 == 0;
  char* query = room.query + group * 64 * 128;
  const int first_row = row + group * 64;
  const int own_row = first_row + thread_index() % 128 / 32 * 16 + thread_index() % 32 / 4;
  const int own_key = thread_index() % 4 * 2;
  // A warp without rows multiplies, as its warpgroup has to, and leaves the issue slots to others.
  const bool has_rows = Problem::whole_rows || first_row + warp % 4 * 16 < problem.rows;
  Slot<Tiling::stages> of_keys, of_values;
  Rows rows;
  rows.clear();
  barrier_wait(room.query_full(), 0);
  if (tiles > 0) {
    // The first tile apart: between one that begins and one that ends there is no branch then, and
    // ptxas lets both products be under way.
    barrier_wait(room.key_full(0), 0);
    rows.multiply_keys(query, room.key(0));
    warpgroup_wait<0>();
    warpgroup_hold(rows.score);
    if (leads) barrier_arrive(room.key_empty(0));
    of_keys.next();
    if (has_rows) {
      rows.finish_scores<Tiling::keys <= Problem::keys>(problem, own_row, own_key, scores);
      rows.weigh();
    }
    rows.take_weights();
    if (tiles > 1) barrier_wait(room.key_full(of_keys.number), of_keys.parity);
  }
  if (tiles > 1 && group == Tiling::groups - 1) pass_turn(group);
  _Pragma("unroll 1") for (int tile = 1; tile < tiles; ++tile) {
    wait_for_turn(group);
    rows.multiply_keys(query, room.key(of_keys.number));
    barrier_wait(room.value_full(of_values.number), of_values.parity);
    rows.add_values(room.value(of_values.number));
    pass_turn(group);
    warpgroup_wait<1>();
    warpgroup_hold(rows.score);
    if (leads) barrier_arrive(room.key_empty(of_keys.number));
    of_keys.next();
    const int first = tile * Tiling::keys;
    const int last = first + Tiling::keys - 1;
    if (has_rows) {
      if ((Problem::whole_keys || last < problem.keys) &&
          (!Problem::has_within || last <= first_row + problem.reach))
        rows.finish_scores<true>(problem, own_row, first + own_key, within);
      else
        rows.finish_scores<Problem::whole_keys>(problem, own_row, first + own_key, scores);
      rows.weigh();
    }
    warpgroup_hold(rows.score);
    // Its loop also keeps ptxas from waiting for the values before the weights are made.
    if (tile + 1 < tiles) barrier_wait(room.key_full(of_keys.number), of_keys.parity);
    warpgroup_wait<0>();
    warpgroup_hold(rows.sum);
    if (leads) barrier_arrive(room.value_empty(of_values.number));
    of_values.next();
    rows.rescale();
    rows.take_weights();
  }
  if (tiles > 0) {
    barrier_wait(room.value_full(of_values.number), of_values.parity);
    rows.add_values(room.value(of_values.number));
    warpgroup_wait<0>();
    warpgroup_hold(rows.sum);
  }
  rows.finish(problem);
  end_with(rows, query, first_row, own_row);
}

}  // namespace
