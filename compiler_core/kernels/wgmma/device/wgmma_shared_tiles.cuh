// The depth of a product divided among blocks, where whole tiles would leave many of them idle
// (stream-K): the steps of all tiles stand in one line, tile after tile, of which each block has an
// equal share. Blocks that share a tile leave their sums in global memory; the warp that comes there
// last adds them up, in the order of the steps whoever it is, and ends its rows of the tile. Nobody
// waits for anybody.
//
// The memory: a counter of each warp of each tile, zero in front of the kernel, up to `parts_at` bytes;
// then sums, a tile's for each of kTiles + Tiling::blocks - 1 parts.
namespace {

constexpr int kTiles = Tiling::row_tiles * Tiling::column_tiles * Tiling::batches;  // sizes are known

struct SharedTiles {
  static constexpr int warps = Tiling::groups * 4;
  static constexpr int columns = Tiling::columns / 8;  // of four sums, a thread
  static constexpr int vectors = kParts * columns;
  static constexpr int part_bytes = Tiling::rows * Tiling::columns * 4;
  static constexpr long parts_at = (static_cast<long>(kTiles) * warps * 4 + 255) / 256 * 256;
  static constexpr long all = static_cast<long>(kTiles) * Tiling::steps;
  int tile, first, steps, left;  // `left`: of this block, with those of this tile

  static KILN_MEMBER long begin_of(int block) { return all * block / Tiling::blocks; }
  static KILN_MEMBER int block_of(long step) {
    return static_cast<int>(((step + 1) * Tiling::blocks - 1) / all);
  }
  KILN_MEMBER explicit SharedTiles(const Sizes&) {
    const int block = static_cast<int>(block_index());
    const long begin = begin_of(block);
    left = static_cast<int>(begin_of(block + 1) - begin);
    tile = static_cast<int>(begin / Tiling::steps);
    first = static_cast<int>(begin % Tiling::steps);
    take();
  }
  KILN_MEMBER void take() { steps = smaller(Tiling::steps - first, left); }
  KILN_MEMBER bool goes_on() const { return left > 0; }
  KILN_MEMBER bool is_whole() const { return steps == Tiling::steps; }
  KILN_MEMBER void next() {
    left -= steps;
    ++tile;
    first = 0;
    take();
  }

  // Puts this block's sums to the others'. Whether this warp is the last: then `sums` are the tile's.
  KILN_MEMBER bool add(char* memory, int group, float (&sums)[kParts][Tiling::columns / 2]) const {
    const int warp = group * 4 + thread_index() / 32 % 4, lane = thread_index() % 32;
    const long begin = static_cast<long>(tile) * Tiling::steps;
    const int from = block_of(begin), to = block_of(begin + Tiling::steps - 1);
    char* parts = memory + parts_at + (warp * vectors * 32 + lane) * 16;
    char* mine = parts + static_cast<long>(tile + static_cast<int>(block_index())) * part_bytes;
    wait_for_kernel_before();
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) {
      Bits<16> x;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) x.word[i] = as_bits(sums[v / columns][v % columns * 4 + i]);
      store_output(mine + v * 512, x);
    }
    warp_barrier();
    unsigned before = 0;
    if (lane == 0) before = arrive_at(reinterpret_cast<unsigned*>(memory) + tile * warps + warp);
    if (shuffle(static_cast<int>(before), 0) != to - from) return false;
    // A barrier in front of every eight loads: behind the arrival, and no more under way than fit into
    // registers.
    _Pragma("unroll 1") for (int block = from; block <= to; ++block) {
      const char* part = parts + static_cast<long>(tile + block) * part_bytes;
      _Pragma("unroll") for (int v = 0; v < vectors; ++v) {
        if (v % 8 == 0) warp_barrier();
        Bits<16> x;
        load_part(part + v * 512, x);
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {
          float& sum = sums[v / columns][v % columns * 4 + i];
          sum = block == from ? as_float(x.word[i]) : sum + as_float(x.word[i]);
        }
      }
    }
    return true;
  }
};

// As multiply_all(), of this block's share of the tiles. `memory`: as above.
template <class Tiles, class Ending>
KILN_INLINE void multiply_shared(const Tiles& tiles, const Ring& ring, Ending& ending, char* memory) {
  const int group = begin_block<Tiles::arrivals>(ring, ending);
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    tiles.bring(ring);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  Slot<Tiling::stages> slot;
  _Pragma("unroll 1") for (SharedTiles walk(Sizes{}); walk.goes_on(); walk.next()) {
    const Tile tile(walk.tile);
    if (walk.is_whole()) ending.begin(tile, group);
    Accumulator sums[kParts][Tiling::columns / 2];
    sum_tile(ring, slot, group, walk.steps, sums);
    if (!walk.is_whole()) {
      if (!walk.add(memory, group, sums)) continue;
      ending.begin(tile, group);
    }
    ending.finish(tile, group, sums);
  }
  ending.end();
}

}  // namespace
