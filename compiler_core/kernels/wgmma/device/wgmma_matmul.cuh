// A batched matmul on the tensor cores of compute capability 9.0, by blocks that stay and take tile
// after tile. One warpgroup lets the copy engine fill a ring of slots in shared memory; the others
// multiply what is there, each its rows of the tile.
//
// A slot is filled when its `full` barrier ends a phase (all bytes have come) and may be filled
// again when its `empty` one does (every multiplying warpgroup has arrived). Slot and parity go on
// from one tile to the next: the copies of the next tile begin while the last one is stored.
//
// In front of it the generated source defines
//   struct Tiling   rows, columns of a tile; stages; groups (warpgroups that multiply);
//                   staged (columns that are stored at a time); row_tiles, column_tiles, batches,
//                   steps (of kDepth); blocks; raster
//   struct A, B     depth_inner: whether memory is contiguous along the depth; copy(to, map,
//                   barrier, line, depth, batch): one box
//   warpgroup_multiply(sums, a, b, adds): [64, columns] of sums, over a depth of 16
namespace {

constexpr int kDepth = 64;                 // of a step: 128 bytes of a half type
constexpr int kAtomBytes = 64 * kDepth * 2;  // of 64 lines
constexpr int kTileRows = Tiling::rows / Tiling::groups;  // of a warpgroup
constexpr int kParts = kTileRows / 64;                    // of them, for one instruction each
constexpr int kABytes = Tiling::rows * kDepth * 2, kBBytes = Tiling::columns * kDepth * 2;
constexpr int kStagedPitch = Tiling::staged + 8;  // rows begin in different banks

// What the block has in shared memory, from a multiple of 1024 bytes on.
struct Ring {
  char *a, *b, *staged, *full, *empty;
  KILN_MEMBER explicit Ring(char* shared) {
    a = shared + (1024 - shared_offset(shared)) % 1024;
    b = a + Tiling::stages * kABytes;
    staged = b + Tiling::stages * kBBytes;
    full = staged + Tiling::groups * 4 * 16 * kStagedPitch * 4;
    empty = full + 8 * Tiling::stages;
  }
};

// A place in the ring.
struct Slot {
  int number = 0, parity = 0;
  KILN_MEMBER void next() {
    if (++number < Tiling::stages) return;
    number = 0;
    parity ^= 1;
  }
};

// Tile number `tile`, of which batches follow each other.
struct Tile {
  int row, column, batch;
  KILN_MEMBER explicit Tile(int tile) {
    constexpr int all = Tiling::row_tiles * Tiling::column_tiles;
    batch = tile / all;
    const TilePlace place(tile % all, Tiling::row_tiles, Tiling::column_tiles, Tiling::raster);
    row = place.row * Tiling::rows;
    column = place.column * Tiling::columns;
  }
};
constexpr int kTiles = Tiling::row_tiles * Tiling::column_tiles * Tiling::batches;

// All boxes of an operand's tile; lines of it that do not exist are zeros.
template <class Operand, int lines>
KILN_INLINE void copy_tile(char* to, const CUtensorMap* map, char* barrier, int line, int depth,
                           int batch) {
  if constexpr (Operand::depth_inner) {
    Operand::copy(to, map, barrier, line, depth, batch);
  } else {
    _Pragma("unroll") for (int i = 0; i < lines / 64; ++i)
        Operand::copy(to + i * kAtomBytes, map, barrier, line + i * 64, depth, batch);
  }
}

// Lets the copy engine bring every step of every tile. One thread.
KILN_INLINE void bring_tiles(const Ring& ring, const CUtensorMap* a, const CUtensorMap* b) {
  Slot slot;
  _Pragma("unroll 1") for (int t = block_index(); t < kTiles; t += Tiling::blocks) {
    const Tile tile(t);
    _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
      char* full = ring.full + 8 * slot.number;
      barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
      barrier_arrive_expecting(full, kABytes + kBBytes);
      copy_tile<A, Tiling::rows>(ring.a + slot.number * kABytes, a, full, tile.row, step * kDepth,
                                 tile.batch);
      copy_tile<B, Tiling::columns>(ring.b + slot.number * kBBytes, b, full, tile.column,
                                    step * kDepth, tile.batch);
      slot.next();
    }
  }
}

// The sums of one tile, in registers: thread 32 w + l of a warpgroup has rows 16 w + l / 4 and 8
// further, and of columns 8 j + 2 (l % 4) and the next, in this order, for every j.
KILN_INLINE void sum_tile(const Ring& ring, Slot& slot, int group,
                               float (&sums)[kParts][Tiling::columns / 2]) {
  const bool leads = thread_index() % 128 == 0;
  int before = -1;
  _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
    barrier_wait(ring.full + 8 * slot.number, slot.parity);
    warpgroup_begin();
    const char* a = ring.a + slot.number * kABytes + group * kTileRows * 128;
    const char* b = ring.b + slot.number * kBBytes;
    _Pragma("unroll") for (int q = 0; q < kDepth / 16; ++q) {
      _Pragma("unroll") for (int i = 0; i < kParts; ++i)
          warpgroup_multiply(sums[i], a + i * kAtomBytes + q * (A::depth_inner ? 32 : 2048),
                             b + q * (B::depth_inner ? 32 : 2048), step + q > 0);
    }
    warpgroup_commit();
    warpgroup_wait<1>();  // the step before has been read
    if (leads && before >= 0) barrier_arrive(ring.empty + 8 * before);
    before = slot.number;
    slot.next();
  }
  warpgroup_wait<0>();
  if (leads) barrier_arrive(ring.empty + 8 * before);
}

// Hands the sums to finish(batch, row, column, LANES neighbouring sums), by way of the warp's own
// piece of shared memory, so that threads side by side store what lies side by side.
template <class Finish>
KILN_INLINE void finish_tile(const Ring& ring, const Tile& tile, int group,
                             const float (&sums)[kParts][Tiling::columns / 2], index_t rows,
                             index_t columns, const Finish& finish) {
  const int warp = thread_index() / 32 % 4, lane = thread_index() % 32;
  float* staged =
      reinterpret_cast<float*>(ring.staged) + (group * 4 + warp) * 16 * kStagedPitch;
  _Pragma("unroll") for (int i = 0; i < kParts; ++i) {
    _Pragma("unroll") for (int part = 0; part < Tiling::columns / Tiling::staged; ++part) {
      warp_barrier();  // what was staged before has been read
      _Pragma("unroll") for (int j = 0; j < Tiling::staged / 8; ++j) {
        const int first = part * Tiling::staged / 2 + j * 4;
        _Pragma("unroll") for (int half = 0; half < 2; ++half) {
          float* at = staged + (lane / 4 + half * 8) * kStagedPitch + j * 8 + lane % 4 * 2;
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
        if (row >= rows || column >= columns) continue;
        finish(tile.batch, row, column,
               unpack(*reinterpret_cast<const Packed<float>*>(staged + tile_row * kStagedPitch +
                                                              tile_column)));
      }
    }
  }
}

// Calls finish() for every vector of results that is this block's.
template <class Finish>
KILN_INLINE void multiply_all(const CUtensorMap* a, const CUtensorMap* b, index_t rows,
                              index_t columns, const Finish& finish) {
  const Ring ring(shared_memory());
  if (thread_index() == 0) {
    _Pragma("unroll 1") for (int i = 0; i < Tiling::stages; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, Tiling::groups);
    }
    barriers_are_made();
  }
  block_barrier();
  const int group = shuffle(thread_index() / 128, 0) - 1;  // the same of the warp, seen by the compiler
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    if (thread_index() == 0) bring_tiles(ring, a, b);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  Slot slot;
  _Pragma("unroll 1") for (int t = block_index(); t < kTiles; t += Tiling::blocks) {
    const Tile tile(t);
    float sums[kParts][Tiling::columns / 2];
    sum_tile(ring, slot, group, sums);
    finish_tile(ring, tile, group, sums, rows, columns, finish);
  }
}

}  // namespace
