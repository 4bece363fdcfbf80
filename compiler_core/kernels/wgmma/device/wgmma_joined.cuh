// Products of one first operand on wgmma_matmul.cuh: a tile belongs to one output, and has equally many
// columns of each of its products, side by side. Results are halves, and leave as boxes (wgmma_boxes.cuh).
//
// In front of it the generated source defines
//   struct Joined  products (of an output); box_columns, boxes (in a warp's ring); bodies;
//                  part_of(tile column), first_tile(part), body_of(part)
//   struct Weights bring(to, barrier, part, product, line, depth): a box of a second operand
//   struct Results map(part)
namespace {

constexpr int kWidth = Tiling::columns / Joined::products;  // of the results in a tile
constexpr int kBoxPitch = Joined::box_columns * 2, kBoxBytes = 16 * kBoxPitch;
constexpr int kPieces = kWidth / Joined::box_columns;  // of 16 rows

// The output that a tile is of, and the tile's first column in it.
struct TilePart {
  int number, column;
  KILN_MEMBER explicit TilePart(const Tile& tile) {
    const int all = tile.column / Tiling::columns;
    number = Joined::part_of(all);
    column = (all - Joined::first_tile(number)) * kWidth;
  }
};

// As BoxTiles, of several second operands.
struct JoinedTiles {
  static constexpr int arrivals = 1;
  static constexpr bool waits = true;
  const CUtensorMap* a;
  const Weights& weights;
  Sizes sizes;
  bool are_ready;

  KILN_MEMBER void bring_weights(const Ring& ring, int slot, const TilePart& part, int step) const {
    char* full = ring.full + 8 * slot;
    barrier_arrive_expecting(full, kABytes + kBBytes);
    _Pragma("unroll") for (int i = 0; i < Joined::products; ++i)
        weights.bring(ring.b + slot * kBBytes + i * kWidth * 128, full, part.number, i, part.column,
                      step * kDepth);
  }
  KILN_MEMBER void bring(const Ring& ring) const {
    if (thread_index() != 0) return;
    const int first = static_cast<int>(block_index());
    int early = are_ready ? smaller(Tiling::steps, Tiling::stages) : 0;
    const TilePart first_part{Tile(first, sizes)};
    _Pragma("unroll 1") for (int step = 0; step < early; ++step)
        bring_weights(ring, step, first_part, step);
    let_next_kernel_begin();
    wait_for_kernel_before();
    Slot<Tiling::stages> slot;
    _Pragma("unroll 1") for (int t = first; t < sizes.tiles(); t += Tiling::blocks) {
      const Tile tile(t, sizes);
      const TilePart part(tile);
      _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
        if (step >= early) {
          barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
          bring_weights(ring, slot.number, part, step);
        }
        const int at[2] = {step * kDepth, tile.row};
        copy_box(ring.a + slot.number * kABytes, a, ring.full + 8 * slot.number, at);
        slot.next();
      }
      early = 0;
    }
  }
};

// finish(body, row, column, sums of each product) is two results; parts of one body have one epilogue.
template <class Finish>
struct JoinedEnding {
  const Ring& ring;
  const Results& results;
  const Finish& finish_pair;
  Slot<Joined::boxes> slot = {};

  KILN_INLINE int warp() { return thread_index() / 32 - 4; }
  KILN_INLINE bool leads() { return thread_index() % 32 == 0; }
  KILN_MEMBER void make_barriers() const {}
  KILN_MEMBER void begin(const Tile&, int) const {}

  KILN_MEMBER void finish_body(int body, const Tile& tile, const TilePart& part, int group,
                               const Accumulator (&sums)[kParts][Tiling::columns / 2]) {
    const int lane = thread_index() % 32;
    // Lane 8i + r names row r of matrix i, of which two lie above one another, then the next two.
    const int matrix_row = lane / 8 % 2 * 8 + lane % 8, matrix_piece = lane / 16;
    _Pragma("unroll") for (int number = 0; number < kParts * kPieces; ++number) {
      const int row = tile.row + group * kTileRows + number / kPieces * 64 + warp() % 4 * 16;
      const int column = part.column + number % kPieces * Joined::box_columns;
      char* to = ring.staged + warp() * Tiling::staged_bytes + slot.number * kBoxBytes;
      if (leads()) boxes_are_read<Joined::boxes - 1>();
      warp_barrier();
      _Pragma("unroll") for (int j = 0; j < Joined::box_columns / 16; ++j) {
        const int piece = 2 * j + matrix_piece;
        const int swizzled = piece ^ matrix_row * kBoxPitch / 128 % (Joined::box_columns / 8);
        unsigned words[4];
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {
          Vec<Accumulator> pairs[Joined::products];
          _Pragma("unroll") for (int p = 0; p < Joined::products; ++p) {
            const Accumulator* first = sums[number / kPieces] + p * kWidth / 2 +
                                       number % kPieces * Joined::box_columns / 2 + j * 8;
            KILN_LANES(pairs[p].lane[l] = first[i * 2 + l])
          }
          words[i] = finish_pair(body, row + lane / 4 + i % 2 * 8,
                                 column + lane % 4 * 2 + j * 16 + i / 2 * 8, pairs);
        }
        stmatrix_x4(to + matrix_row * kBoxPitch + (swizzled << 4), words);
      }
      boxes_are_written();
      warp_barrier();
      if (leads()) {
        const int at[2] = {column, row};
        store_box(results.map(part.number), to, at);
        boxes_commit();
      }
      slot.next();
    }
  }
  KILN_MEMBER void finish(const Tile& tile, int group,
                          const Accumulator (&sums)[kParts][Tiling::columns / 2]) {
    const TilePart part(tile);
    _Pragma("unroll") for (int body = 0; body < Joined::bodies; ++body)
      if (body == Joined::body_of(part.number)) finish_body(body, tile, part, group, sums);
  }
  KILN_MEMBER void end() const {
    if (leads()) boxes_are_stored();
  }
};

}  // namespace
