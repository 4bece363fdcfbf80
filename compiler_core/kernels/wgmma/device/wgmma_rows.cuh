// How a tile of wgmma_matmul.cuh ends whatever its results are: sums go through shared memory, so
// that threads side by side store what lies side by side. Tiling::staged: columns at a time.
namespace {

constexpr int kStagedPitch = Tiling::staged + 8;  // rows begin in different banks

// Hands the sums to finish(batch, row, column, LANES neighbouring sums).
template <class Finish>
struct RowEnding {
  const Ring& ring;
  const Finish& finish_vector;
  Sizes sizes;

  KILN_MEMBER void make_barriers() const {}
  KILN_MEMBER void begin(const Tile&, int) const {}
  KILN_MEMBER void finish(const Tile& tile, int group,
                          const Accumulator (&sums)[kParts][Tiling::columns / 2]) const {
    const int warp = thread_index() / 32 % 4, lane = thread_index() % 32;
    Accumulator* staged =
        reinterpret_cast<Accumulator*>(ring.staged + (thread_index() / 32 - 4) * Tiling::staged_bytes);
    _Pragma("unroll") for (int i = 0; i < kParts; ++i) {
      _Pragma("unroll") for (int part = 0; part < Tiling::columns / Tiling::staged; ++part) {
        if (!ends_piece(i * (Tiling::columns / Tiling::staged) + part)) continue;
        warp_barrier();  // what was staged before has been read
        _Pragma("unroll") for (int j = 0; j < Tiling::staged / 8; ++j) {
          const int first = part * Tiling::staged / 2 + j * 4;
          _Pragma("unroll") for (int half = 0; half < 2; ++half) {
            Accumulator* at = staged + (lane / 4 + half * 8) * kStagedPitch + j * 8 + lane % 4 * 2;
            at[0] = sums[i][first + half * 2];
            at[1] = sums[i][first + half * 2 + 1];
          }
        }
        warp_barrier();
        constexpr int vectors = Tiling::staged / LANES;
        _Pragma("unroll 4") for (int v = lane; v < 16 * vectors; v += 32) {
          const int tile_row = v / vectors, tile_column = v % vectors * LANES;
          const index_t row = tile.row + group * kTileRows + i * 64 + warp * 16 + tile_row;
          const index_t column = tile.column + part * Tiling::staged + tile_column;
          if (row >= sizes.all_rows() || column >= Tiling::all_columns) continue;
          finish_vector(tile.batch, row, column,
                        unpack(*reinterpret_cast<const Packed<Accumulator>*>(
                            staged + tile_row * kStagedPitch + tile_column)));
        }
      }
    }
  }
  KILN_MEMBER void end() const {}
};

}  // namespace
