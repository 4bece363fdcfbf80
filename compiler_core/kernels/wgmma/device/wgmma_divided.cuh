// The depth of a product divided among the blocks of a cluster, where whole tiles would leave many
// multiprocessors idle (split-K): each block adds up its share of a tile's steps. Then the blocks divide
// the tile's pieces. Each block brings the owner of a piece its sums of that piece, into the shared memory
// where the operands lay. Owners add up in the order of the ranks, so results are the same each time.
//
// A cluster has one tile, of known sizes.
namespace {

struct DividedSums {
  static constexpr int across = Tiling::columns / Tiling::staged, pieces = kParts * across;
  static constexpr int own = (pieces + Tiling::splits - 1) / Tiling::splits;  // of a block, at most
  static constexpr int vectors = Tiling::staged / 8;  // of four sums, of a thread in a piece
  char* const brought;  // [from, without this block][own][warp][vectors][lane] of 16 bytes

  // Where a piece that this block ends lies as block `from` has brought it; `owner` ends it.
  KILN_MEMBER char* place(int from, int owner, int piece) const {
    const int index = from < owner ? from : from - 1, warp = thread_index() / 32 - 4;
    const int line = (index * own + piece / Tiling::splits) * (Tiling::groups * 4) + warp;
    return brought + (line * vectors * 32 + thread_index() % 32) * 16;
  }
  static KILN_MEMBER float& sum(float (&sums)[kParts][Tiling::columns / 2], int piece, int vector, int i) {
    return sums[piece / across][piece % across * (Tiling::staged / 2) + vector * 4 + i];
  }
  KILN_MEMBER void bring(float (&sums)[kParts][Tiling::columns / 2]) const {
    _Pragma("unroll") for (int piece = 0; piece < pieces; ++piece) {
      const int owner = piece % Tiling::splits;
      if (owner == cluster_rank()) continue;
      char* to = place(cluster_rank(), owner, piece);
      _Pragma("unroll") for (int v = 0; v < vectors; ++v) {
        unsigned word[4];
        _Pragma("unroll") for (int i = 0; i < 4; ++i) word[i] = as_bits(sum(sums, piece, v, i));
        cluster_store_16(to + v * 512, owner, word);
      }
    }
  }
  KILN_MEMBER void add(float (&sums)[kParts][Tiling::columns / 2]) const {
    _Pragma("unroll") for (int piece = 0; piece < pieces; ++piece) {
      const int owner = piece % Tiling::splits;
      if (owner != cluster_rank()) continue;
      _Pragma("unroll") for (int v = 0; v < vectors; ++v) {
        float total[4];
        _Pragma("unroll") for (int from = 0; from < Tiling::splits; ++from) {
          AlignedWords<4> x;
          if (from != owner)
            x = *reinterpret_cast<const AlignedWords<4>*>(place(from, owner, piece) + v * 512);
          _Pragma("unroll") for (int i = 0; i < 4; ++i) {
            const float part = from == owner ? sum(sums, piece, v, i) : as_float(x.word[i]);
            total[i] = from == 0 ? part : total[i] + part;
          }
        }
        _Pragma("unroll") for (int i = 0; i < 4; ++i) sum(sums, piece, v, i) = total[i];
      }
    }
  }
};

// As multiply_all(), of a cluster's tile.
template <class Tiles, class Ending>
KILN_INLINE void multiply_divided(const Tiles& tiles, const Ring& ring, Ending& ending) {
  const int group = begin_block<Tiles::arrivals>(ring, ending);
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    tiles.bring(ring);
    warp_barrier();
    cluster_barrier();
    cluster_barrier();
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  if constexpr (Tiles::waits) wait_for_kernel_before();
  const Tile tile(own_first_tile());
  ending.begin(tile, group);
  Slot<Tiling::stages> slot;
  Accumulator sums[kParts][Tiling::columns / 2];
  sum_tile(ring, slot, group, own_share().steps, sums);
  const DividedSums divided{ring.a};
  cluster_barrier();  // all have read their operands
  divided.bring(sums);
  cluster_barrier();
  divided.add(sums);
  ending.finish(tile, group, sums);
  ending.end();
}

}  // namespace
