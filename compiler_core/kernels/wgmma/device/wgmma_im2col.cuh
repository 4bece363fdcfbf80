// Operands of wgmma_matmul.cuh for convolutions whose images and results lie channels last: lines of
// the first are windows, which the copy engine reads from where the images lie (im2col), zeros around
// them; lines of the second weights. A step is 64 channels of one element of the windows.
//
// In front of it the generated source defines
//   struct A   chunks (of 64 channels), positions (results of an image), positions_across (of them a
//              row), stride_*, above, before (zeros), window_width, dilation_*: numbers
//   struct B   Source; bring(to, source, barrier, line, step); follows: whether the kernel before this
//              one writes it
namespace {

// The work of a block, as multiply_all() has it: tile after tile, of each all steps.
struct WholeTiles {
  static constexpr int first = 0, steps = Tiling::steps;
  int tile = static_cast<int>(block_index()), end;
  KILN_MEMBER explicit WholeTiles(const Sizes& sizes) { end = sizes.tiles(); }
  KILN_MEMBER bool goes_on() const { return tile < end; }
  KILN_MEMBER void next() { tile += Tiling::blocks; }
};

// `Walk`: WholeTiles, or SharedTiles (wgmma_shared_tiles.cuh). Where it `waits` for the kernel in front
// of this one, it brings before that the weights that there is room for, if they are ready, and lets
// the next one begin; else it waits only for a kernel that writes the weights.
template <class Walk, bool waits_>
struct Im2colTiles {
  static constexpr int arrivals = 1;
  static constexpr bool waits = waits_;
  const CUtensorMap* images;
  B::Source weights;
  Sizes sizes;
  bool weights_are_ready;

  KILN_MEMBER void bring_weights(const Ring& ring, int slot, const Tile& tile, int step) const {
    char* full = ring.full + 8 * slot;
    barrier_arrive_expecting(full, kABytes + kBBytes);
    B::bring(ring.b + slot * kBBytes, weights, full, tile.column, step);
  }
  // How many of the first steps' weights are on their way behind it.
  KILN_MEMBER int begin(const Ring& ring) const {
    int early = 0;
    if constexpr (waits) {
      const Walk walk(sizes);
      if (weights_are_ready && walk.goes_on()) early = smaller(walk.steps, Tiling::stages);
      _Pragma("unroll 1") for (int step = 0; step < early; ++step)
          bring_weights(ring, step, Tile(walk.tile, sizes), walk.first + step);
    }
    if constexpr (waits) let_next_kernel_begin();
    if constexpr (waits || B::follows) wait_for_kernel_before();
    return early;
  }
  KILN_MEMBER void bring(const Ring& ring) const {
    if (thread_index() != 0) return;
    int early = begin(ring);
    Slot<Tiling::stages> slot;
    _Pragma("unroll 1") for (Walk walk(sizes); walk.goes_on(); walk.next()) {
      const Tile tile(walk.tile, sizes);
      const int position = tile.row % A::positions, image = tile.row / A::positions;
      const int row = position / A::positions_across * A::stride_height - A::above;
      const int column = position % A::positions_across * A::stride_width - A::before;
      _Pragma("unroll 1") for (int step = walk.first; step < walk.first + walk.steps; ++step, --early) {
        const int element = step / A::chunks;
        const int at[4] = {step % A::chunks * 64, column, row, image};
        if (early <= 0) {
          barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
          bring_weights(ring, slot.number, tile, step);
        }
        copy_windows(ring.a + slot.number * kABytes, images, ring.full + 8 * slot.number, at,
                     element % A::window_width * A::dilation_width,
                     element / A::window_width * A::dilation_height);
        slot.next();
      }
    }
  }
};

}  // namespace
