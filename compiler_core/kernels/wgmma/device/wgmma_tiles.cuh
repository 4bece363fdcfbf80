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

// A step of a tile of b, into a slot that is empty, or where it stays.
KILN_INLINE void bring_b(const Ring& ring, int slot, const CUtensorMap* b, const Tile& tile, int batch,
                         int step) {
  char* full = ring.full + 8 * slot;
  barrier_arrive_expecting(full, kABytes + kBBytes);
  copy_tile<B, Tiling::columns>(ring.b + (kKeepsB ? step : slot) * kBBytes, b, full, tile.column,
                                step * kDepth, batch);
}

// Lets the copy engine bring this block's steps of a tile: `batch` of both operands. Of the first `early`
// of them b is on its way; where it is kept it has come with the block's first tile.
KILN_INLINE void bring_tile(const Ring& ring, Slot<Tiling::stages>& slot, const CUtensorMap* a,
                            const CUtensorMap* b, const Tile& tile, int batch, int early = 0,
                            bool is_first = true) {
  const Share share = own_share();
  _Pragma("unroll 1") for (int step = share.begin; step < share.begin + share.steps; ++step) {
    if (step >= share.begin + early) {
      barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
      if (kKeepsB && !is_first)
        barrier_arrive_expecting(ring.full + 8 * slot.number, kABytes);
      else
        bring_b(ring, slot.number, b, tile, batch, step);
    }
    copy_tile<A, Tiling::rows>(ring.a + slot.number * kABytes, a, ring.full + 8 * slot.number, tile.row,
                               step * kDepth, batch);
    slot.next();
  }
}

// Lets the copy engine bring every step of every tile, and waits for the kernel in front of this one:
// before that it brings of b what there is room for, if it is ready, and lets the next one begin.
struct BoxTiles {
  static constexpr int arrivals = 1;
  static constexpr bool waits = true;
  const CUtensorMap *a, *b;
  Sizes sizes;
  bool b_is_ready;

  KILN_MEMBER void bring(const Ring& ring) const {
    if (thread_index() != 0) return;
    const int first = own_first_tile();
    const Share share = own_share();
    int early = b_is_ready ? smaller(share.steps, Tiling::stages) : 0;
    const Tile first_tile(first, sizes);
    _Pragma("unroll 1") for (int step = 0; step < early; ++step)
        bring_b(ring, step, b, first_tile, first_tile.batch, share.begin + step);
    let_next_kernel_begin();
    wait_for_kernel_before();
    Slot<Tiling::stages> slot;
    _Pragma("unroll 1") for (int t = first; t < sizes.tiles(); t += Tiling::blocks) {
      const Tile tile(t, sizes);
      bring_tile(ring, slot, a, b, tile, tile.batch, early, t == first);
      early = 0;
    }
  }
};

}  // namespace
