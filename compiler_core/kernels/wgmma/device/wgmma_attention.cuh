// Attention in one pass on the tensor cores of compute capability 9.0. A block has 64 query rows of one
// batch a warpgroup; another warpgroup lets the copy engine bring keys and values, a tile at a time,
// through rings of slots (see wgmma_matmul.cuh). While a tile's values are added, the next tile's
// scores come; and where a block has rows of several batches after one another, what its next rows need
// comes while it ends with these.
//
// In front of it stand wgmma_attention_rows.cuh and attention_seen.cuh, and the generated source defines besides
//   struct Tiling  groups (warpgroups that multiply), stages; query_slots: 2 where a block has rows of
//                  several batches; copying_registers, multiplying_registers; least_keys: there are so
//                  many keys at least
//   struct Maps    query, key, value; bring_query(to, barrier, row, column, batch), ...
namespace {

constexpr int kBlockRows = Tiling::query_rows;
constexpr int kQueryBytes = kBlockRows * Tiling::depth * 2;
constexpr int kKeyBytes = Tiling::keys * Tiling::depth * 2;
constexpr int kValueKeys = (Tiling::keys + 63) / 64 * 64;  // values come in whole 64
constexpr int kValueBytes = kValueKeys * Tiling::room * 2;

// The block's shared memory, from a multiple of 1024 bytes on.
struct Room {
  char *queries, *keys, *values, *barriers;
  KILN_MEMBER explicit Room(char* shared) {
    queries = shared + (1024 - shared_offset(shared)) % 1024;
    keys = queries + Tiling::query_slots * kQueryBytes;
    values = keys + Tiling::stages * kKeyBytes;
    barriers = values + Tiling::stages * kValueBytes;
  }
  KILN_MEMBER char* key(int slot) const { return keys + slot * kKeyBytes; }
  KILN_MEMBER char* value(int slot) const { return values + slot * kValueBytes; }
  KILN_MEMBER char* query(int slot) const { return queries + slot * kQueryBytes; }
  KILN_MEMBER char* key_full(int slot) const { return barriers + slot * 32; }
  KILN_MEMBER char* key_empty(int slot) const { return barriers + 8 + slot * 32; }
  KILN_MEMBER char* value_full(int slot) const { return barriers + 16 + slot * 32; }
  KILN_MEMBER char* value_empty(int slot) const { return barriers + 24 + slot * 32; }
  KILN_MEMBER char* query_full(int slot) const { return barriers + Tiling::stages * 32 + slot * 16; }
  KILN_MEMBER char* query_empty(int slot) const { return barriers + Tiling::stages * 32 + 8 + slot * 16; }
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
// Where a thread is in the rings.
struct Places {
  Slot<Tiling::query_slots> of_queries;
  Slot<Tiling::stages> of_keys, of_values;
  bool takes_turns = false;  // from the first rows that see several tiles on
};

// What the first scores of rows from `row` on need. One thread, as bring_rest().
KILN_INLINE void bring_first(const Problem& problem, const Maps& maps, const Room& room, Places& at,
                             int batch, int row) {
  char* const full = room.query_full(at.of_queries.number);
  if (Tiling::query_slots > 1) barrier_wait(room.query_empty(at.of_queries.number), at.of_queries.parity ^ 1);
  barrier_arrive_expecting(full, kQueryBytes);
  _Pragma("unroll") for (int i = 0; i < Tiling::depth / 64; ++i)
      maps.bring_query(room.query(at.of_queries.number) + i * kBlockRows * 128, full, row, i * 64, batch);
  at.of_queries.next();
  const SeenKeys seen(problem, row, kBlockRows);
  if (seen.first_tile < seen.end_tile) bring_keys(maps, room, at.of_keys, seen.first_tile * Tiling::keys, batch);
}
KILN_INLINE void bring_rest(const Problem& problem, const Maps& maps, const Room& room, Places& at,
                            int batch, int row) {
  const SeenKeys seen(problem, row, kBlockRows);
  _Pragma("unroll 1") for (int tile = seen.first_tile; tile < seen.end_tile; ++tile) {
    if (tile + 1 < seen.end_tile) bring_keys(maps, room, at.of_keys, (tile + 1) * Tiling::keys, batch);
    bring_values(maps, room, at.of_values, tile * Tiling::keys, batch);
  }
}

// Makes the barriers, and asks for what the first scores need, of rows from `row` on. This thread's group of
// those that multiply, or -1: of these, the first brings.
KILN_INLINE int begin_block(const Problem& problem, const Maps& maps, const Room& room, Places& at,
                             int batch, int row) {
  if (thread_index() == 0) {
    _Pragma("unroll 1") for (int i = 0; i < Tiling::stages; ++i) {
      barrier_init(room.key_full(i), 1);
      barrier_init(room.key_empty(i), Tiling::groups);
      barrier_init(room.value_full(i), 1);
      barrier_init(room.value_empty(i), Tiling::groups);
    }
    _Pragma("unroll 1") for (int i = 0; i < Tiling::query_slots; ++i) {
      barrier_init(room.query_full(i), 1);
      barrier_init(room.query_empty(i), Tiling::groups * 4);
    }
    barriers_are_made();
    bring_first(problem, maps, room, at, batch, row);
  }
  block_barrier();
  const int group = shuffle(thread_index() / 128, 0) - 1;  // the same of the warp, seen by the compiler
  if (group < 0)
    keep_registers<Tiling::copying_registers>();
  else
    take_registers<Tiling::multiplying_registers>();
  return group;
}

// A block's query rows from `row` on, by `group` of those that multiply. `scores`, `within`: as in
// attention.cuh. end_with(rows, query, row, own_row) stores a warpgroup's results, whose
// first row is `row`, a thread's `own_row`; nobody reads its queries in shared memory any more.
template <class Score, class Within, class End>
KILN_INLINE void attend(const Problem& problem, const Room& room, Places& at, int group, int row,
                        const Score& scores, const Within& within, const End& end_with) {
  const SeenKeys seen(problem, row, kBlockRows);
  const bool leads = thread_index() % 128 == 0;
  char* query = room.query(at.of_queries.number) + group * 64 * 128;
  const int first_row = row + group * 64;
  const int own_row = first_row + thread_index() % 128 / 32 * 16 + thread_index() % 32 / 4;
  const int own_key = thread_index() % 4 * 2;
  // A warp without rows multiplies, as its warpgroup has to, and leaves the issue slots to others.
  const bool has_rows = Problem::whole_rows || first_row + thread_index() % 128 / 32 * 16 < problem.rows;
  Rows rows;
  rows.clear();
  barrier_wait(room.query_full(at.of_queries.number), at.of_queries.parity);
  if (seen.first_tile < seen.end_tile) {
    // The first tile apart: between one that begins and one that ends there is no branch then, and
    // ptxas lets both products be under way.
    barrier_wait(room.key_full(at.of_keys.number), at.of_keys.parity);
    rows.multiply_keys(query, room.key(at.of_keys.number));
    warpgroup_wait<0>();
    warpgroup_hold(rows.score);
    if (leads) barrier_arrive(room.key_empty(at.of_keys.number));
    at.of_keys.next();
    if (has_rows) {
      rows.finish_scores<Problem::has_past ? Problem::whole_keys : Tiling::keys <= Tiling::least_keys>(
          problem, own_row, seen.first_tile * Tiling::keys + own_key, scores);
      rows.weigh();
    }
    rows.take_weights();
    if (seen.first_tile + 1 < seen.end_tile) barrier_wait(room.key_full(at.of_keys.number), at.of_keys.parity);
  }
  if (!at.takes_turns && seen.first_tile + 1 < seen.end_tile) {
    if (group == Tiling::groups - 1) pass_turn(group);
    at.takes_turns = true;
  }
  _Pragma("unroll 1") for (int tile = seen.first_tile + 1; tile < seen.end_tile; ++tile) {
    wait_for_turn(group);
    rows.multiply_keys(query, room.key(at.of_keys.number));
    barrier_wait(room.value_full(at.of_values.number), at.of_values.parity);
    rows.add_values(room.value(at.of_values.number));
    pass_turn(group);
    warpgroup_wait<1>();
    warpgroup_hold(rows.score);
    if (leads) barrier_arrive(room.key_empty(at.of_keys.number));
    at.of_keys.next();
    const int from = tile * Tiling::keys, last = from + Tiling::keys - 1;
    if (has_rows) {
      if ((Problem::whole_keys || last < problem.keys) &&
          (!Problem::has_within || shows_tile(problem, first_row, first_row + 63, from)))
        rows.finish_scores<true>(problem, own_row, from + own_key, within);
      else
        rows.finish_scores<Problem::whole_keys>(problem, own_row, from + own_key, scores);
      rows.weigh();
    }
    warpgroup_hold(rows.score);
    // Its loop also keeps ptxas from waiting for the values before the weights are made.
    if (tile + 1 < seen.end_tile) barrier_wait(room.key_full(at.of_keys.number), at.of_keys.parity);
    warpgroup_wait<0>();
    warpgroup_hold(rows.sum);
    if (leads) barrier_arrive(room.value_empty(at.of_values.number));
    at.of_values.next();
    rows.rescale();
    rows.take_weights();
  }
  if (seen.first_tile < seen.end_tile) {
    barrier_wait(room.value_full(at.of_values.number), at.of_values.parity);
    rows.add_values(room.value(at.of_values.number));
    warpgroup_wait<0>();
    warpgroup_hold(rows.sum);
    if (leads && Tiling::query_slots > 1) barrier_arrive(room.value_empty(at.of_values.number));
    at.of_values.next();
  }
  rows.finish(problem);
  end_with(rows, query, first_row, own_row);
  if (Tiling::query_slots > 1 && thread_index() % 32 == 0) {
    boxes_are_read<0>();
    barrier_arrive(room.query_empty(at.of_queries.number));
  }
  at.of_queries.next();
}

}  // namespace
