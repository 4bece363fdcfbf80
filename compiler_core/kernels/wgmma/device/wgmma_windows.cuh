// Operands of wgmma_matmul.cuh for convolutions whose results lie channels last: lines of the first
// are windows of images that lie so too, lines of the second weights. A warpgroup copies them
// (cp.async) to where the copy engine would have put them; what a window has outside its image, and
// channels that do not exist, are zeros: no byte is read where they would lie.
//
// In front of it the generated source defines, in bytes where it says nothing else,
//   struct A   image, row, column: from one to the next; positions (results of an image),
//              positions_across (of them a row), pieces (of 16 bytes) of a position's channels, depth
//              in pieces, height, width of an image, above, before (zeros), stride_*, dilation_*,
//              window_width: numbers
//   struct B   pitch: from a line to the next
namespace {

// Threads copy so many steps before they say that the first has come.
constexpr int kLag = Tiling::stages > 3 ? 2 : 1;

struct WindowTiles {
  static constexpr int arrivals = 128;
  static constexpr bool waits = false;
  static constexpr int lines = Tiling::rows / 16;  // of the first operand, a thread
  static constexpr int nowhere = -(1 << 14);       // a row that no window reaches into the image from
  const char *images, *weights;
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
      const char* lines_of_b =
          weights + static_cast<long>(tile.column + first) * B::pitch + piece * 16;
      // Where each line's window begins: its bytes from the tile's first image on, and its row and column in
      // one word.
      const int first_image = tile.row / A::positions;
      const char* from = images + static_cast<long>(first_image) * A::image;
      int begin[lines], place[lines];
      _Pragma("unroll") for (int i = 0; i < lines; ++i) {
        const bool is_line = tile.row + first + i * 16 < sizes.all_rows();
        const int line = is_line ? tile.row + first + i * 16 : tile.row, position = line % A::positions;
        const int row = position / A::positions_across * A::stride_height - A::above;
        const int column = position % A::positions_across * A::stride_width - A::before;
        begin[i] = (line / A::positions - first_image) * A::image + row * A::row + column * A::column;
        place[i] = (is_line ? row : nowhere) * 65536 + (column & 0xffff);
      }
      _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
        barrier_wait(ring.empty + 8 * slot.number, slot.parity ^ 1);
        const int at = step * 8 + piece, element = at / A::pieces;
        const int down = element / A::window_width * A::dilation_height;
        const int right = element % A::window_width * A::dilation_width;
        const int beyond = down * A::row + right * A::column + at % A::pieces * 16;
        const bool exists = at < A::depth;
        char* to_a = ring.a + slot.number * kABytes + to;
        char* to_b = ring.b + slot.number * kBBytes + to;
        _Pragma("unroll") for (int i = 0; i < lines; ++i) {
          const int row = (place[i] >> 16) + down, column = static_cast<short>(place[i]) + right;
          const bool inside = exists && static_cast<unsigned>(row) < A::height &&
                              static_cast<unsigned>(column) < A::width;
          cp_async_16(to_a + i * 2048, from + (begin[i] + beyond), inside ? 16 : 0);
        }
        _Pragma("unroll") for (int i = 0; i < Tiling::columns / 16; ++i) {
          const bool is_line = Tiling::all_columns % Tiling::columns == 0 ||
                               tile.column + first + i * 16 < Tiling::all_columns;
          cp_async_16(to_b + i * 2048, lines_of_b + (i * 16 * B::pitch + step * 128),
                      exists && is_line ? 16 : 0);
        }
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
