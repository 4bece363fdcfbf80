// Operands of wgmma_matmul.cuh that the copy engine brings as they lie in memory.
//
// In front of it A and B have copy(to, map, barrier, line, depth, batch), which brings one box.
namespace {

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

// Lets the copy engine bring every step of a tile: `batch` of both operands.
KILN_INLINE void bring_tile(const Ring& ring, Slot<Tiling::stages>& slot, const CUtensorMap* a,
                            const CUtensorMap* b, const Tile& tile, int batch) {
  _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
    char* full = ring.full + 8 * slot.number;
    barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
    barrier_arrive_expecting(full, kABytes + kBBytes);
    copy_tile<A, Tiling::rows>(ring.a + slot.number * kABytes, a, full, tile.row, step * kDepth, batch);
    copy_tile<B, Tiling::columns>(ring.b + slot.number * kBBytes, b, full, tile.column, step * kDepth,
                                  batch);
    slot.next();
  }
}

// Lets the copy engine bring every step of every tile.
struct BoxTiles {
  static constexpr int arrivals = 1;
  const CUtensorMap *a, *b;

  KILN_MEMBER void bring(const Ring& ring) const {
    if (thread_index() != 0) return;
    Slot<Tiling::stages> slot;
    _Pragma("unroll 1") for (int t = block_index(); t < kTiles; t += Tiling::blocks) {
      const Tile tile(t);
      bring_tile(ring, slot, a, b, tile, tile.batch);
    }
  }
};

}  // namespace
