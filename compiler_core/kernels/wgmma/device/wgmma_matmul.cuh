// A batched matmul on the tensor cores of compute capability 9.0, by blocks that stay and take tile
// after tile. One warpgroup lets the copy engine fill a ring of slots in shared memory; the others
// multiply what is there, each its rows of the tile.
//
// A slot is filled when its `full` barrier ends a phase (all bytes have come) and may be filled
// again when its `empty` one does (every multiplying warpgroup has arrived). Slot and parity go on
// from one tile to the next: the copies of the next tile begin while the last one is stored.
//
// Warpgroups cooperate, each has some rows of a tile; or they take whole tiles by turns (ping-pong): while
// one stores its results, another multiplies.
//
// In front of it the generated source defines
//   struct Tiling   rows, columns of a tile; stages; groups (warpgroups that multiply); ping_pong;
//                   kept: steps of b that stay for all tiles of a block, all of them or none;
//                   splits: blocks of a cluster that divide the steps of a tile (wgmma_divided.cuh);
//                   staged_bytes of shared memory for what a warp stores; row_tiles,
//                   column_tiles, batches, steps (of `depth`); depth: elements in 128 bytes;
//                   promotes: whether each step's products are added up by themselves, since the
//                   tensor cores add those of 8-bit floats in few bits; blocks; raster;
//                   all_rows, of a batch. Of all_rows, row_tiles, batches 0 is a number that is known
//                   at run time only
//   Accumulator             float, or int of integers
//   struct A, B     depth_inner: whether a tile is contiguous along the depth
//   warpgroup_multiply(sums, a, b, adds): [64, columns] of sums, over a depth of 32 bytes
// wgmma_rows.cuh and wgmma_boxes.cuh store the sums.
namespace {

constexpr int kDepth = Tiling::depth;        // of a step: 128 bytes
constexpr int kAtomBytes = 64 * 128;         // of 64 lines
constexpr int kMultiplications = 4;          // of a step
constexpr int kApart = Tiling::ping_pong ? Tiling::groups : 1;     // warpgroups with tiles of their own
constexpr int kTileRows = Tiling::rows * kApart / Tiling::groups;  // of a warpgroup
constexpr int kParts = kTileRows / 64;                             // of them, for one instruction each
constexpr int kABytes = Tiling::rows * 128, kBBytes = Tiling::columns * 128;
constexpr bool kKeepsB = Tiling::kept > 0;

// The block's shared memory, from a multiple of 1024 bytes on; `ending`: after it, a
// warp's ending's own.
struct Ring {
  char *a, *b, *staged, *full, *empty, *ending;
  KILN_MEMBER explicit Ring(char* shared) {
    a = shared + (1024 - shared_offset(shared)) % 1024;
    b = a + Tiling::stages * kABytes;
    staged = b + (kKeepsB ? Tiling::kept : Tiling::stages) * kBBytes;
    full = staged + Tiling::groups * 4 * Tiling::staged_bytes;
    empty = full + 8 * Tiling::stages;
    ending = empty + 8 * Tiling::stages;
  }
};

// What may be known at run time only.
struct Sizes {
  int open_rows = 0, open_batches = 0;
  KILN_MEMBER int all_rows() const { return Tiling::all_rows > 0 ? Tiling::all_rows : open_rows; }
  KILN_MEMBER int row_tiles() const {
    return Tiling::row_tiles > 0 ? Tiling::row_tiles : (open_rows + Tiling::rows - 1) / Tiling::rows;
  }
  KILN_MEMBER int batches() const { return Tiling::batches > 0 ? Tiling::batches : open_batches; }
  KILN_MEMBER int tiles() const { return row_tiles() * Tiling::column_tiles * batches(); }
};

// The steps of a tile that this block multiplies, and the first of its tiles.
struct Share {
  int begin = 0, steps = Tiling::steps;
};
KILN_INLINE Share own_share() {
  if constexpr (Tiling::splits == 1) return Share{};
  const int rank = cluster_rank(), begin = Tiling::steps * rank / Tiling::splits;
  return {begin, Tiling::steps * (rank + 1) / Tiling::splits - begin};
}
KILN_INLINE int own_first_tile() { return static_cast<int>(block_index()) / Tiling::splits; }

// Whether this block ends piece number `piece` of a warp: a piece has 16 rows and Tiling::staged columns.
KILN_INLINE bool ends_piece(int piece) {
  return Tiling::splits == 1 || piece % Tiling::splits == cluster_rank();
}

// Tile number `tile`, of which batches follow each other.
struct Tile {
  static constexpr bool ends_among_rows = false;
  int row, column, batch;
  KILN_MEMBER explicit Tile(int tile, const Sizes& sizes = {}) {
    const int all = sizes.row_tiles() * Tiling::column_tiles;
    batch = Tiling::batches == 1 ? 0 : tile / all;
    const TilePlace place(tile - batch * all, sizes.row_tiles(), Tiling::column_tiles, Tiling::raster);
    row = place.row * Tiling::rows;
    column = place.column * Tiling::columns;
  }
};

// A warpgroup's turn to multiply, where they take whole tiles: one of its block's tiles. A wait by parity
// tells a phase from the next one alone, so a warpgroup waits for its steps when all of the tile in front have
// come.
struct Turn {
  int group = 0;
  bool is_first = true, is_last = true;
  KILN_MEMBER void wait() const {
    if (kApart > 1 && !is_first) numbered_barrier_wait<256>(1 + group);
  }
  KILN_MEMBER void pass() const {
    if (kApart > 1 && !is_last) numbered_barrier_arrive<256>(1 + (group + 1) % kApart);
  }
};

// The sums of `steps` of one tile, in registers: thread 32 w + l of a warpgroup has rows 16 w + l / 4 and 8
// further, and of columns 8 j + 2 (l % 4) and the next, in this order, for every j.
KILN_INLINE void sum_tile(const Ring& ring, Slot<Tiling::stages>& slot, int group, int steps,
                          Accumulator (&sums)[kParts][Tiling::columns / 2], const Turn& turn = {}) {
  const bool leads = thread_index() % 128 == 0;
  int before = -1;
  _Pragma("unroll 1") for (int step = 0; step < steps; ++step) {
    barrier_wait(ring.full + 8 * slot.number, slot.parity);
    warpgroup_begin();
    const Place a = ring.a + slot.number * kABytes + group * kTileRows * 128;
    const Place b = ring.b + (kKeepsB ? step : slot.number) * kBBytes;
    _Pragma("unroll") for (int q = 0; q < kMultiplications; ++q) {
      _Pragma("unroll") for (int i = 0; i < kParts; ++i)
          warpgroup_multiply(sums[i], a + (i * kAtomBytes + q * (A::depth_inner ? 32 : 2048)),
                             b + q * (B::depth_inner ? 32 : 2048), step + q > 0);
    }
    warpgroup_commit();
    warpgroup_wait<1>();  // the step before has been read
    if (leads && before >= 0) barrier_arrive(ring.empty + 8 * before);
    before = slot.number;
    slot.next();
  }
  turn.pass();
  warpgroup_wait<0>();
  if (leads) barrier_arrive(ring.empty + 8 * before);
}

// The factor of the sums of a step: none, or the scale of a row and step with that of
// `columns` neighbouring ones, a tile's at least, and the step.
struct NoScales {
  static constexpr bool scaled = false;
};
template <int columns_, class Row, class Column>
struct StepScales {
  static constexpr bool scaled = true;
  static constexpr int columns = columns_;
  const Row& row_scale;        // (row, step)
  const Column& column_scale;  // (number, step)
};
// Steps of which each has registers of its own for scales that are on their way: of one step alone they would
// be waited for, since the assembler reads as late in a step as it can.
template <class Scales>
constexpr int kTurns = Scales::scaled && Tiling::groups < 3 && Tiling::steps % 2 == 0 ? 2 : 1;
// The scales of a thread in one step, and those of the next kTurns, which are read meanwhile.
template <class Scales>
struct ThreadScales {
  static constexpr int turns = kTurns<Scales>;
  float row[kParts][2], next_row[turns][kParts][2], next_column[turns];
  KILN_MEMBER void read(const Scales& scales, const Tile& tile, int group, int step, int turn) {
    const int first = tile.row + group * kTileRows + thread_index() / 32 % 4 * 16 + thread_index() % 32 / 4;
    next_column[turn] = scales.column_scale(tile.column / Scales::columns, step);
    _Pragma("unroll") for (int i = 0; i < kParts; ++i)
      _Pragma("unroll") for (int half = 0; half < 2; ++half) next_row[turn][i][half] =
          scales.row_scale(first + i * 64 + half * 8, step);
  }
  KILN_MEMBER void take(int turn) {
    _Pragma("unroll") for (int i = 0; i < kParts; ++i)
      _Pragma("unroll") for (int half = 0; half < 2; ++half) row[i][half] =
          next_row[turn][i][half] * next_column[turn];
  }
  // The factor of sum j of part i.
  KILN_MEMBER float of(int i, int j) const { return row[i][j / 2 % 2]; }
};
template <>
struct ThreadScales<NoScales> {
  KILN_MEMBER void read(const NoScales&, const Tile&, int, int, int) {}
  KILN_MEMBER void take(int) {}
};

// The same in f32 proper: the tensor cores add up one step, a part of the rows after the other, while
// another warpgroup adds what it has.
template <class Wide, class Scales>
KILN_INLINE void sum_tile_by_steps(const Ring& ring, Slot<Tiling::stages>& slot, const Tile& tile,
                                   int group, const Scales& scales,
                                   Wide (&sums)[kParts][Tiling::columns / 2]) {
  const bool leads = thread_index() % 128 == 0;
  ThreadScales<Scales> scale;
  _Pragma("unroll") for (int i = 0; i < kParts; ++i)
      _Pragma("unroll") for (int j = 0; j < Tiling::columns / 2; ++j) sums[i][j] = 0;
  constexpr int turns = kTurns<Scales>;
  _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) scale.read(scales, tile, group, turn, turn);
  _Pragma("unroll 1") for (int step = 0; step < Tiling::steps;)
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn, ++step) {
      scale.take(turn);
      if (step + turns < Tiling::steps) scale.read(scales, tile, group, step + turns, turn);
      barrier_wait(ring.full + 8 * slot.number, slot.parity);
      const Place a = ring.a + slot.number * kABytes + group * kTileRows * 128;
      const Place b = ring.b + (kKeepsB ? step : slot.number) * kBBytes;
      _Pragma("unroll") for (int i = 0; i < kParts; ++i) {
        Wide part[Tiling::columns / 2];
        warpgroup_begin();
        _Pragma("unroll") for (int q = 0; q < kMultiplications; ++q)
            warpgroup_multiply(part, a + (i * kAtomBytes + q * 32), b + q * 32, q > 0);
        warpgroup_commit();
        warpgroup_wait<0>();
        warpgroup_hold(part);
        if (i == kParts - 1 && leads) barrier_arrive(ring.empty + 8 * slot.number);
        _Pragma("unroll") for (int j = 0; j < Tiling::columns / 2; ++j) {
          if constexpr (Scales::scaled)
            sums[i][j] += part[j] * scale.of(i, j);
          else
            sums[i][j] += part[j];
        }
      }
      slot.next();
    }
}

// Makes the barriers; a `full` one takes so many arrivals. The number of this warpgroup among those that
// multiply; -1: it is the first, which brings the operands.
template <int arrivals, class Ending>
KILN_INLINE int begin_block(const Ring& ring, const Ending& ending) {
  const int thread = thread_index();
  if (thread == 0) {
    _Pragma("unroll 1") for (int i = 0; i < Tiling::stages; ++i) {
      barrier_init(ring.full + 8 * i, arrivals);
      barrier_init(ring.empty + 8 * i, Tiling::groups / kApart);
    }
  }
  if (thread >= 128 && thread % 32 == 0) ending.make_barriers();
  barriers_are_made();
  block_barrier();
  const int group = shuffle(thread / 128, 0) - 1;  // the same of the warp, seen by the compiler
  return group;
}

// The place in the ring so many places on.
KILN_INLINE void skip(Slot<Tiling::stages>& slot, int places) {
  slot.number += places;
  slot.parity ^= slot.number / Tiling::stages % 2;
  slot.number %= Tiling::stages;
}

// Hands every tile of this block, once its sums are there, to ending.finish(). The threads of the
// first warpgroup call tiles.bring(), and arrive `Tiles::arrivals` times at a `full` barrier. Where that
// `waits` for the kernel in front of this one, so do the others for themselves.
template <class Tiles, class Ending, class Scales>
KILN_INLINE void multiply_all(const Tiles& tiles, const Ring& ring, Ending& ending,
                              const Scales& scales, const Sizes& sizes) {
  const int group = begin_block<Tiles::arrivals>(ring, ending);
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    tiles.bring(ring);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  if constexpr (Tiles::waits) wait_for_kernel_before();
  const int first = block_index(), part = Tiling::ping_pong ? 0 : group;  // of a tile's rows
  Slot<Tiling::stages> slot;
  if (Tiling::ping_pong) skip(slot, group * Tiling::steps);
  _Pragma("unroll 1") for (int t = first + (Tiling::ping_pong ? group * Tiling::blocks : 0); t < sizes.tiles();
                           t += kApart * Tiling::blocks) {
    const Tile tile(t, sizes);
    ending.begin(tile, part);
    const Turn turn{group, t == first, t + Tiling::blocks >= sizes.tiles()};
    turn.wait();
    Accumulator sums[kParts][Tiling::columns / 2];
    if constexpr (Tiling::promotes)
      sum_tile_by_steps(ring, slot, tile, part, scales, sums);
    else
      sum_tile(ring, slot, part, Tiling::steps, sums, turn);
    ending.finish(tile, part, sums);
    if (Tiling::ping_pong) skip(slot, (kApart - 1) * Tiling::steps);
  }
  ending.end();
}

}  // namespace
