// How a tile of wgmma_matmul.cuh ends where its results are halves: registers become boxes of 16
// rows in shared memory, which the copy engine stores while the warp goes on. Each warp has a ring
// of boxes for itself and meets no other. LANES is 2: what a thread holds side by side.
//
// A box is laid out as the copy engine has it: rows of 64 (or 32) results whose pieces of 16 bytes
// are exchanged over 8 rows (the low two bits over 8 rows of 64 bytes).
//
// An addend is an input of halves in the results' shape: the copy engine brings its boxes to where
// the results will be, those of a tile's begin while the tile is multiplied.
//
// Where other rows follow the last ones of a tile, a box that reaches over those is stored by its warp.
//
// In front of it the generated source defines
//   struct Boxes   columns, count (in a warp's ring); has_addend; copy(to, map, barrier, row,
//                  column, batch), store(map, from, row, column, batch)
namespace {

constexpr int kBoxPitch = Boxes::columns * 2, kBoxBytes = 16 * kBoxPitch;
constexpr int kPieces = Tiling::columns / Boxes::columns;  // of 16 rows

KILN_INLINE int box_offset(int row, int piece) {
  return row * kBoxPitch + ((piece ^ row * kBoxPitch / 128 % (Boxes::columns / 8)) << 4);
}

// finish(batch, row, column, two sums, two addends) is two results.
template <class Finish>
struct BoxEnding {
  const Ring& ring;
  const CUtensorMap *out, *addend;
  const Finish& finish_pair;
  char* rows = nullptr;  // the results, where tiles end among them
  Slot<Boxes::count> slot = {};

  KILN_INLINE int warp() { return thread_index() / 32 - 4; }
  KILN_INLINE bool leads() { return thread_index() % 32 == 0; }
  KILN_MEMBER char* box(int number) const {
    return ring.staged + warp() * Tiling::staged_bytes + number * kBoxBytes;
  }
  KILN_MEMBER char* brought(int number) const {
    return ring.ending + (warp() * Boxes::count + number) * 8;
  }
  KILN_INLINE int row_of(const Tile& tile, int group, int number) {
    return tile.row + group * kTileRows + number / kPieces * 64 + warp() % 4 * 16;
  }
  KILN_INLINE int column_of(const Tile& tile, int number) {
    return tile.column + number % kPieces * Boxes::columns;
  }
  KILN_MEMBER void bring(const Tile& tile, int group, int number, int to) const {
    barrier_arrive_expecting(brought(to), kBoxBytes);
    Boxes::copy(box(to), addend, brought(to), row_of(tile, group, number),
                column_of(tile, number), tile.batch);
  }

  // The box of the addend for piece `i` of those that this block ends.
  KILN_MEMBER void bring_own(const Tile& tile, int group, int i, int to) const {
    if constexpr (Tiling::splits == 1) {
      bring(tile, group, i, to);
    } else {
      const int number = i * Tiling::splits + cluster_rank();
      if (number < kParts * kPieces) bring(tile, group, number, to);
    }
  }

  KILN_MEMBER void make_barriers() const {
    if constexpr (Boxes::has_addend)
      _Pragma("unroll") for (int i = 0; i < Boxes::count; ++i) barrier_init(brought(i), 1);
  }
  KILN_MEMBER void begin(const Tile& tile, int group) const {
    if constexpr (Boxes::has_addend) {
      if (!leads()) return;
      boxes_are_read<0>();
      _Pragma("unroll") for (int i = 0; i < Boxes::count; ++i)
          bring_own(tile, group, i, (slot.number + i) % Boxes::count);
    }
  }
  // Stores the rows before `end` of a box at (row, column).
  KILN_MEMBER void store_rows(const char* from, int row, int column, int end) const {
    constexpr int pieces = Boxes::columns / 8;
    _Pragma("unroll 1") for (int i = thread_index() % 32; i < 16 * pieces; i += 32) {
      const int box_row = i / pieces, piece = i % pieces;
      if (row + box_row >= end || column + piece * 8 >= Tiling::all_columns) continue;
      const index_t first = static_cast<index_t>(row + box_row) * Tiling::all_columns + column + piece * 8;
      *reinterpret_cast<AlignedWords<4>*>(rows + first * 2) =
          *reinterpret_cast<const AlignedWords<4>*>(from + box_offset(box_row, piece));
    }
  }
  template <class AnyTile>
  KILN_MEMBER void finish(const AnyTile& tile, int group,
                          const Accumulator (&sums)[kParts][Tiling::columns / 2]) {
    const int lane = thread_index() % 32;
    // Lane 8i + r names row r of matrix i, of which two lie above one another, then the next two.
    const int matrix_row = lane / 8 % 2 * 8 + lane % 8, matrix_piece = lane / 16;
    _Pragma("unroll") for (int number = 0; number < kParts * kPieces; ++number) {
      if (!ends_piece(number)) continue;
      const int row = row_of(tile, group, number), column = column_of(tile, number);
      char* to = box(slot.number);
      if (AnyTile::ends_among_rows && row >= tile.batch) return;
      if constexpr (Boxes::has_addend) {
        barrier_wait(brought(slot.number), slot.parity);
      } else {
        if (leads()) boxes_are_read<Boxes::count - 1>();
        warp_barrier();
      }
      _Pragma("unroll") for (int j = 0; j < Boxes::columns / 16; ++j) {
        char* at = to + box_offset(matrix_row, 2 * j + matrix_piece);
        unsigned addends[4] = {}, results[4];
        if constexpr (Boxes::has_addend) ldmatrix_x4(addends, at);
        const Accumulator* first =
            sums[number / kPieces] + number % kPieces * Boxes::columns / 2 + j * 8;
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {
          Vec<Accumulator> pair;
          KILN_LANES(pair.lane[l] = first[i * 2 + l])
          results[i] = finish_pair(tile.batch, row + lane / 4 + i % 2 * 8,
                                   column + lane % 4 * 2 + j * 16 + i / 2 * 8, pair, addends[i]);
        }
        stmatrix_x4(at, results);
      }
      boxes_are_written();
      warp_barrier();
      const bool is_whole = !AnyTile::ends_among_rows || row + 16 <= tile.batch;
      if constexpr (AnyTile::ends_among_rows)
        if (!is_whole) store_rows(to, row, column, tile.batch);
      if (leads()) {
        if (is_whole) Boxes::store(out, to, row, column, tile.batch);
        boxes_commit();
        if constexpr (Boxes::has_addend && Boxes::count * Tiling::splits < kParts * kPieces) {
          if (number + Boxes::count * Tiling::splits < kParts * kPieces) {
            boxes_are_read<0>();
            bring(tile, group, number + Boxes::count * Tiling::splits, slot.number);
          }
        }
      }
      slot.next();
    }
  }
  KILN_MEMBER void end() const {
    if (leads()) boxes_are_stored();
  }
};

}  // namespace
