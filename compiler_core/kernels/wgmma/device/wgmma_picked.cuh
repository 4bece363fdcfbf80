// Products of rows with matrices that an index picks (wgmma_matmul.cuh). Neighbouring rows that the
// index gives one matrix are a run. A kernel of one block lists the runs; then each tile is of rows of
// one run, and the tiles of a run read its matrix, where it lies, side by side. A tile may reach over
// the end of its run: what it has there is not stored, and a warpgroup that has nothing else waits.
//
// In front of it the generated source defines
//   struct Runs   indices; rows: of an index; matrices: that there are
// and A and B have copy(to, map, barrier, line, depth, matrix), which brings one box.
namespace {

constexpr int kRunThreads = 1024;

// Rows [begin, end) with `matrix`. Of the rows of tiles of all runs it has those from `first` on.
struct alignas(16) Run { int begin, end, first, matrix; };

KILN_INLINE int row_tiles(int begin, int end) {
  return (end - begin + Tiling::rows - 1) / Tiling::rows;
}

// A negative index counts from the end; one out of range reads what is nearest.
template <class T>
KILN_INLINE int matrix_of(const T* index, int i) {
  const int64_t matrix = index[i] < 0 ? index[i] + Runs::matrices : index[i];
  return static_cast<int>(matrix < 0 ? 0 : matrix < Runs::matrices ? matrix : Runs::matrices - 1);
}
// The end of the run that index i is in, `limit` at most.
template <class T>
KILN_INLINE int end_of_run(const T* index, int i, int limit) {
  const int matrix = matrix_of(index, i);
  _Pragma("unroll 1") for (++i; i < limit && matrix_of(index, i) == matrix; ++i) {
  }
  return i;
}

// Writes a Run for every row of tiles to runs[1], runs[2], ..., and how many there are to
// runs[0].first. Each thread finds the runs that begin in its share of the indices.
template <class T>
KILN_INLINE void find_runs(const T* index, Run* runs) {
  constexpr int share = (Runs::indices + kRunThreads - 1) / kRunThreads;
  int* firsts = reinterpret_cast<int*>(shared_memory());
  int* counts = firsts + kRunThreads;
  const int thread = thread_index();
  const int from = thread * share < Runs::indices ? thread * share : Runs::indices;
  const int to = from + share < Runs::indices ? from + share : Runs::indices;
  int first = Runs::indices;
  if (from < to) {
    const bool begins = from == 0 || matrix_of(index, from - 1) != matrix_of(index, from);
    first = begins ? from : end_of_run(index, from, to);
    if (first == to) first = Runs::indices;
  }
  firsts[thread] = first;
  block_barrier();
  // The first run that begins in a later share: the least of those behind.
  _Pragma("unroll 1") for (int step = 1; step < kRunThreads; step *= 2) {
    const int behind = thread + step < kRunThreads ? firsts[thread + step] : Runs::indices;
    block_barrier();
    if (behind < firsts[thread]) firsts[thread] = behind;
    block_barrier();
  }
  const int next = thread + 1 < kRunThreads ? firsts[thread + 1] : Runs::indices;
  int count = 0;
  _Pragma("unroll 1") for (int i = first; i < to;) {
    int end = end_of_run(index, i, to);
    if (end == to) end = next;
    count += row_tiles(i * Runs::rows, end * Runs::rows);
    i = end;
  }
  counts[thread] = count;
  block_barrier();
  _Pragma("unroll 1") for (int step = 1; step < kRunThreads; step *= 2) {
    const int before = thread >= step ? counts[thread - step] : 0;
    block_barrier();
    counts[thread] += before;
    block_barrier();
  }
  int tile = counts[thread] - count;
  _Pragma("unroll 1") for (int i = first; i < to;) {
    int end = end_of_run(index, i, to);
    if (end == to) end = next;
    const Run run{i * Runs::rows, end * Runs::rows, tile, matrix_of(index, i)};
    const int behind = tile + row_tiles(run.begin, run.end);
    _Pragma("unroll 1") for (; tile < behind; ++tile) runs[1 + tile] = run;
    i = end;
  }
  if (thread == kRunThreads - 1) runs[0] = Run{0, 0, counts[thread], 0};
}

// Tile number `tile` of all runs'. `batch` is where its run ends.
struct PickedTile : Tile {
  static constexpr bool ends_among_rows = true;
  int matrix;
  KILN_MEMBER PickedTile(const Run* runs, int tile) : Tile(0) {
    const Run run = runs[1 + tile / Tiling::column_tiles];
    const TilePlace place(tile - run.first * Tiling::column_tiles, row_tiles(run.begin, run.end),
                          Tiling::column_tiles, Tiling::raster);
    row = run.begin + place.row * Tiling::rows;
    column = place.column * Tiling::columns;
    batch = run.end;
    matrix = run.matrix;
  }
};

// Lets the copy engine bring every step of every tile.
struct PickedTiles {
  const CUtensorMap *a, *b;
  const Run* runs;

  KILN_MEMBER int count() const { return runs->first * Tiling::column_tiles; }
  KILN_MEMBER void bring(const Ring& ring) const {
    if (thread_index() != 0) return;
    Slot<Tiling::stages> slot;
    const int tiles = count();
    _Pragma("unroll 1") for (int t = block_index(); t < tiles; t += Tiling::blocks) {
      const PickedTile tile(runs, t);
      bring_tile(ring, slot, a, b, tile, tile.matrix);
    }
  }
};

// For a warpgroup without rows in a tile. Its warps meet at each step, as they do where they multiply:
// one that had not seen a phase end when the next but one does would wait for ever.
KILN_INLINE void pass_tile(const Ring& ring, Slot<Tiling::stages>& slot, int group) {
  _Pragma("unroll 1") for (int step = 0; step < Tiling::steps; ++step) {
    barrier_wait(ring.full + 8 * slot.number, slot.parity);
    numbered_barrier_wait<128>(1 + group);
    if (thread_index() % 128 == 0) barrier_arrive(ring.empty + 8 * slot.number);
    slot.next();
  }
}

// As multiply_all(), of as many tiles as the runs have.
template <class Ending>
KILN_INLINE void multiply_picked(const PickedTiles& tiles, const Ring& ring, Ending& ending) {
  const int group = begin_block<1>(ring, ending);
  if (group < 0) {
    keep_registers<Tiling::copying_registers>();
    tiles.bring(ring);
    return;
  }
  take_registers<Tiling::multiplying_registers>();
  Slot<Tiling::stages> slot;
  const int count = tiles.count();
  _Pragma("unroll 1") for (int t = block_index(); t < count; t += Tiling::blocks) {
    const PickedTile tile(tiles.runs, t);
    if (tile.row + group * kTileRows >= tile.batch) {
      pass_tile(ring, slot, group);
      continue;
    }
    Accumulator sums[kParts][Tiling::columns / 2];
    sum_tile(ring, slot, group, Tiling::steps, sums);
    ending.finish(tile, group, sums);
  }
  ending.end();
}

}  // namespace
