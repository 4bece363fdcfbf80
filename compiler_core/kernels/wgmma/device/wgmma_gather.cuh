// Operands of wgmma_matmul.cuh that are gathered from global memory: each line has 64 elements of a
// step side by side, at a place of its own. A warpgroup copies them (cp.async) to where the copy
// engine would have put them.
//
// In front of it the generated source defines, in bytes,
//   struct A   pitch: from a line to the next; step(step): what a step adds to a line's place. Lines
//              of a whole number of tiles exist.
//   struct B   line(line), step(step); image: from a batch to the next
namespace {

// Threads copy so many steps before they say that the first has come.
constexpr int kLag = Tiling::stages > 3 ? 2 : 1;

struct GatheredTiles {
  static constexpr int arrivals = 128;
  static constexpr bool waits = false;
  const char *a, *b;
  Sizes sizes;

  // Waits until all of this thread's copies but the last `groups_left` steps' are there, and says so.
  template <int groups_left>
  KILN_INLINE void announce(const Ring& ring, Slot<Tiling::stages>& due) {
    cp_async_wait<groups_left>();
    boxes_are_written();  // the tensor cores read past this thread's own view of shared memory
    barrier_arrive(ring.full + 8 * due.number);
    due.next();
  }

  KILN_MEMBER void bring(const Ring& ring) const {
    // Eight threads a line, 16 bytes each; 16 lines at a time, of which every eighth is alike.
    const int piece = thread_index() % 8, first = thread_index() / 8;
    const int to = first * 128 + ((piece ^ first % 8) << 4);
    Slot<Tiling::stages> slot, due;
    int under_way = 0;
    _Pragma("unroll 1") for (int t = block_index(); t < sizes.tiles(); t += Tiling::blocks) {
      const Tile tile(t, sizes);
      const char* rows = a + static_cast<long>(tile.row + first) * A::pitch + piece * 16;
      const char* image = b + tile.batch * B::image + piece * 16;
      int columns[Tiling::columns / 16];
      _Pragma("unroll") for (int i = 0; i < Tiling::columns / 16; ++i) {
        const int column = tile.column + first + i * 16;
        columns[i] = B::line(column < Tiling::all_columns ? column : Tiling::all_columns - 1);
      }
      _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
        barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
        char* to_a = ring.a + slot.number * kABytes + to;
        char* to_b = ring.b + slot.number * kBBytes + to;
        const char* from_a = rows + A::step(step);
        const char* from_b = image + B::step(step);
        _Pragma("unroll") for (int i = 0; i < Tiling::rows / 16; ++i)
            cp_async_16(to_a + i * 2048, from_a + static_cast<long>(i) * 16 * A::pitch);
        _Pragma("unroll") for (int i = 0; i < Tiling::columns / 16; ++i)
            cp_async_16(to_b + i * 2048, from_b + columns[i]);
        cp_async_commit();
        slot.next();
        if (under_way == kLag)
          announce<kLag>(ring, due);
        else
          ++under_way;
      }
    }
    _Pragma("unroll 1") for (; under_way > 0; --under_way) announce<0>(ring, due);
  }
};

}  // namespace
