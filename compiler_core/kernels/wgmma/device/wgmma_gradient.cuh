// The gradient of attention on the tensor cores of compute capability 9.0. A block keeps 64 rows a
// warpgroup of two operands, A and B (queries and their gradients, or keys and values), and walks the
// tokens of two others, X and Y, which another warpgroup lets the copy engine bring, 64 at a time,
// through a ring of slots. Of a tile's products A X^T and B Y^T, in the registers that the tensor cores
// leave them in, it makes weights, which as they lie are the first operand of the products that are
// kept: sums of weights times X, of others times Y, or of both. Where registers suffice the next tile's
// scores come meanwhile.
//
// In front of it the generated source defines scores_multiply(), a product of 64 columns, and
// add_first() and add_second(), of Tiling::first_columns and second_columns with their first operand
// in registers, and
//   using Stored    the operands' type
//   struct Problem  rows (of A and B), tokens (of X and Y) of a batch; whole_rows, whole_tokens: tiles
//                   end where these do; has_reach, reach: token - row <= reach has weights other than 0,
//                   or, where tokens_first, row - token <= reach
//   struct Tiling   groups (warpgroups that multiply), stages (slots); first_room, second_room (of a row
//                   of A and X, of B and Y): in whole 64; first_steps, second_steps (of 16 of their
//                   width); has_first, has_second: which sums there are; first_columns, second_columns;
//                   ahead: the next tile's scores begin before this one's sums are waited for;
//                   copying_registers, multiplying_registers
//   struct Maps     bring_a(to, barrier, row, column, batch), bring_b, bring_x, bring_y
namespace {

constexpr int kTile = 64;  // tokens
constexpr int kBlockRows = Tiling::groups * 64;
constexpr int kFirstBytes = kTile * Tiling::first_room * 2;
constexpr int kSlotBytes = kFirstBytes + kTile * Tiling::second_room * 2;
constexpr int kKeptBytes = kBlockRows * (Tiling::first_room + Tiling::second_room) * 2;

// The block's shared memory, from a multiple of 1024 bytes on.
struct Room {
  char *a, *b, *slots, *barriers;
  KILN_MEMBER explicit Room(char* shared) {
    a = shared + (1024 - shared_offset(shared)) % 1024;
    b = a + kBlockRows * Tiling::first_room * 2;
    slots = a + kKeptBytes;
    barriers = slots + Tiling::stages * kSlotBytes;
  }
  KILN_MEMBER char* x(int slot) const { return slots + slot * kSlotBytes; }
  KILN_MEMBER char* y(int slot) const { return x(slot) + kFirstBytes; }
  KILN_MEMBER char* kept() const { return barriers; }
  KILN_MEMBER char* full(int slot) const { return barriers + 8 + slot * 16; }
  KILN_MEMBER char* empty(int slot) const { return barriers + 16 + slot * 16; }
};

KILN_INLINE void bring_tile(const Maps& maps, const Room& room, Slot<Tiling::stages>& slot, int token, int batch) {
  char* full = room.full(slot.number);
  barrier_wait(room.empty(slot.number), slot.parity ^ 1);
  barrier_arrive_expecting(full, kSlotBytes);
  _Pragma("unroll") for (int i = 0; i < Tiling::first_room / 64; ++i)
      maps.bring_x(room.x(slot.number) + i * kTile * 128, full, token, i * 64, batch);
  _Pragma("unroll") for (int i = 0; i < Tiling::second_room / 64; ++i)
      maps.bring_y(room.y(slot.number) + i * kTile * 128, full, token, i * 64, batch);
  slot.next();
}
KILN_INLINE void bring_kept(const Maps& maps, const Room& room, int row, int batch) {
  barrier_arrive_expecting(room.kept(), kKeptBytes);
  _Pragma("unroll") for (int i = 0; i < Tiling::first_room / 64; ++i)
      maps.bring_a(room.a + i * kBlockRows * 128, room.kept(), row, i * 64, batch);
  _Pragma("unroll") for (int i = 0; i < Tiling::second_room / 64; ++i)
      maps.bring_b(room.b + i * kBlockRows * 128, room.kept(), row, i * 64, batch);
}

KILN_INLINE unsigned packed(float a, float b) {
  return pack_pair(static_cast<const Stored*>(nullptr), a, b);
}

// The part of a thread: rows 16 w + l / 4 and 8 further of its warpgroup's, 32 w + l its number; of
// columns 8 j + 2 (l % 4) and the next, in this order, for every j.
struct Part {
  float first[kTile / 2], second[kTile / 2];  // scores; weights, behind weigh()
  unsigned first_weight[kTile / 16][4], second_weight[kTile / 16][4];
  float first_sum[Tiling::first_columns / 2], second_sum[Tiling::second_columns / 2];

  KILN_MEMBER void clear() {
    _Pragma("unroll") for (float& x : first_sum) x = 0;
    _Pragma("unroll") for (float& x : second_sum) x = 0;
  }
  // Begins first = a x^T and second = b y^T.
  KILN_MEMBER void multiply(Place a, Place b, Place x, Place y) {
    warpgroup_begin();
    _Pragma("unroll") for (int s = 0; s < Tiling::first_steps; ++s)
        scores_multiply(first, a + (s / 4 * (kBlockRows * 128) + s % 4 * 32),
                        x + (s / 4 * (kTile * 128) + s % 4 * 32), s > 0);
    _Pragma("unroll") for (int s = 0; s < Tiling::second_steps; ++s)
        scores_multiply(second, b + (s / 4 * (kBlockRows * 128) + s % 4 * 32),
                        y + (s / 4 * (kTile * 128) + s % 4 * 32), s > 0);
    warpgroup_commit();
  }
  // Begins first_sum += first_weight x and second_sum += second_weight y.
  KILN_MEMBER void add(Place x, Place y) {
    warpgroup_begin();
    if constexpr (Tiling::has_first)
      _Pragma("unroll") for (int k = 0; k < kTile / 16; ++k)
          add_first(first_sum, first_weight[k], x + k * 2048, true);
    if constexpr (Tiling::has_second)
      _Pragma("unroll") for (int k = 0; k < kTile / 16; ++k)
          add_second(second_sum, second_weight[k], y + k * 2048, true);
    warpgroup_commit();
  }
  // Scores become weights, where there are a row and a token (`all_tokens`: there is); `row`, `token`:
  // this thread's first.
  template <bool all_tokens, class Weigh>
  KILN_MEMBER void weigh(const Problem& problem, int row, int token, const Weigh& weigh) {
    _Pragma("unroll") for (int i = 0; i < kTile / 2; i += LANES) {
      const int at_row = row + i % 4 / 2 * 8, at_token = token + i / 4 * 8 + i % 2;
      const bool live = (Problem::whole_rows || at_row < problem.rows) &&
                        (all_tokens || at_token < problem.tokens);
      Vec<float> a, b;
      KILN_EACH_LANE a[l] = live ? first[i + l] : 0.0f;
      KILN_EACH_LANE b[l] = live ? second[i + l] : 0.0f;
      if (live) weigh(a, b, at_row, at_token);
      KILN_EACH_LANE first[i + l] = a[l];
      KILN_EACH_LANE second[i + l] = b[l];
    }
  }
  KILN_MEMBER void take_weights() {
    _Pragma("unroll") for (int k = 0; k < kTile / 16; ++k)
      _Pragma("unroll") for (int w = 0; w < 4; ++w) {
        const int i = k * 8 + w * 2;
        if constexpr (Tiling::has_first) first_weight[k][w] = packed(first[i], first[i + 1]);
        if constexpr (Tiling::has_second) second_weight[k][w] = packed(second[i], second[i + 1]);
      }
  }
  template <int columns>
  KILN_MEMBER void store(const Problem& problem, const float (&sum)[columns / 2], Stored* to,
                         index_t row_stride, int row) const {
    _Pragma("unroll") for (int i = 0; i < columns / 2; i += 2) {
      const int at_row = row + i % 4 / 2 * 8, column = i / 4 * 8 + thread_index() % 4 * 2;
      if (!Problem::whole_rows && at_row >= problem.rows) continue;
      Bits<4> x;
      x.word[0] = packed(sum[i], sum[i + 1]);
      store_output(to + at_row * row_stride + column, x);
    }
  }
};

// A block of rows from `row` on. weigh(first, second, row, token) makes weights of scores, for first's and
// second's sums; end_with(part, own_row) stores the sums of a thread whose first row is that.
template <class Weigh, class End>
KILN_INLINE void differentiate(const Problem& problem, const Maps& maps, int batch, int row,
                               const Weigh& weigh, const End& end_with) {
  const Room room(shared_memory());
  // Tokens outside have no weight in any row of the block.
  int from = 0, end = problem.tokens;
  if (Problem::has_reach) {
    const int last = row + kBlockRows < problem.rows ? row + kBlockRows : problem.rows;
    if (Problem::tokens_first) {
      from = row - problem.reach > 0 ? row - problem.reach : 0;
    } else {
      end = last + problem.reach < end ? last + problem.reach : end;
    }
  }
  const int first_tile = from / kTile;
  const int tiles = end > first_tile * kTile ? (end - first_tile * kTile + kTile - 1) / kTile : 0;
  if (thread_index() == 0) {
    barrier_init(room.kept(), 1);
    _Pragma("unroll 1") for (int i = 0; i < Tiling::stages; ++i) {
      barrier_init(room.full(i), 1);
      barrier_init(room.empty(i), Tiling::groups);
    }
    barriers_are_made();
    bring_kept(maps, room, row, batch);
  }
  block_barrier();
  const int group = shuffle(thread_index() / 32, 0) / 4 - 1;  // the same of the warp, seen by the compiler
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    Slot<Tiling::stages> slot;
    if (thread_index() == 0)
      _Pragma("unroll 1") for (int tile = 0; tile < tiles; ++tile)
          bring_tile(maps, room, slot, (first_tile + tile) * kTile, batch);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  const bool leads = thread_index() % 128 == 0;
  char *const a = room.a + group * 64 * 128, *const b = room.b + group * 64 * 128;
  const int own_row = row + group * 64 + thread_index() % 128 / 32 * 16 + thread_index() % 32 / 4;
  int token = first_tile * kTile + thread_index() % 4 * 2;
  const auto make_weights = [&](Part& part, bool last) {
    if (Problem::whole_tokens || !last)
      part.template weigh<true>(problem, own_row, token, weigh);
    else
      part.template weigh<Problem::whole_tokens>(problem, own_row, token, weigh);
    token += kTile;
  };
  Slot<Tiling::stages> next, taken;
  Part part;
  part.clear();
  barrier_wait(room.kept(), 0);
  if constexpr (Tiling::ahead) {
    if (tiles > 0) {
      // The first tile apart, as in wgmma_attention.cuh.
      barrier_wait(room.full(0), 0);
      part.multiply(a, b, room.x(0), room.y(0));
      warpgroup_wait<0>();
      warpgroup_hold(part.first);
      warpgroup_hold(part.second);
      next.next();
      make_weights(part, tiles == 1);
      part.take_weights();
      if (tiles > 1) barrier_wait(room.full(next.number), next.parity);
    }
    _Pragma("unroll 1") for (int tile = 1; tile < tiles; ++tile) {
      part.multiply(a, b, room.x(next.number), room.y(next.number));
      part.add(room.x(taken.number), room.y(taken.number));
      warpgroup_wait<1>();
      warpgroup_hold(part.first);
      warpgroup_hold(part.second);
      next.next();
      make_weights(part, tile + 1 == tiles);
      warpgroup_hold(part.first);
      warpgroup_hold(part.second);
      // Its loop also keeps ptxas from waiting for the sums before the weights are made.
      if (tile + 1 < tiles) barrier_wait(room.full(next.number), next.parity);
      warpgroup_wait<0>();
      warpgroup_hold(part.first_sum);
      warpgroup_hold(part.second_sum);
      if (leads) barrier_arrive(room.empty(taken.number));
      taken.next();
      part.take_weights();
    }
    if (tiles > 0) {
      part.add(room.x(taken.number), room.y(taken.number));
      warpgroup_wait<0>();
      warpgroup_hold(part.first_sum);
      warpgroup_hold(part.second_sum);
    }
  } else {
    _Pragma("unroll 1") for (int tile = 0; tile < tiles; ++tile) {
      barrier_wait(room.full(next.number), next.parity);
      part.multiply(a, b, room.x(next.number), room.y(next.number));
      warpgroup_wait<0>();
      warpgroup_hold(part.first);
      warpgroup_hold(part.second);
      make_weights(part, tile + 1 == tiles);
      part.take_weights();
      part.add(room.x(next.number), room.y(next.number));
      warpgroup_wait<0>();
      warpgroup_hold(part.first_sum);
      warpgroup_hold(part.second_sum);
      if (leads) barrier_arrive(room.empty(next.number));
      next.next();
    }
  }
  end_with(part, own_row);
}

}  // namespace
