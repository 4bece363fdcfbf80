// Batched matrix product of strided operands with an elementwise epilogue. The generated source
// defines in front of this file
//
//   struct Problem   `stored` (memory type of the operands), `real` (register type of the result),
//                    sizes m, n, k, and strides in elements: a_row, a_depth, b_depth, b_column
//   struct Tiling    rows (MR), columns (NR, whole vectors), depth (kc), block_rows (mc),
//                    block_columns (nc), b_from: where the inner loop reads B; a_packed
//
// and behind it the epilogue and the entries. Two phases: pack, then multiply. A panel of A holds
// MR rows, a panel of B NR columns, both as [k][width] in the result's type, so that the inner loop
// reads memory in order; missing rows and columns are zero. A is packed whole in the first phase,
// or (not a_packed: small products, for which a phase is dear) read where it lies. B is packed too
// (kPacked), or each block packs its part of it to scratch (kSlab: less memory traffic, but packed
// again for every block of rows), or it stays where it is (kInPlace).
//
// Where sizes are known only at run time, the source defines KILN_SIZES_AT_RUN_TIME and a struct
// Sizes with the same names as members; Problem then says what may be decided without them: 0 for a
// size or stride that is not known, the greatest number for such a depth.
namespace {

#ifndef KILN_SIZES_AT_RUN_TIME
using Sizes = Problem;
#endif
using Stored = Problem::stored;
using Real = Problem::real;
using Value = element<Real>::type;

constexpr int kInPlace = 0, kPacked = 1, kSlab = 2;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// ---- Packing ----

// LANES vectors become the LANES vectors across them: log2(LANES) rounds of exchanging halves.
template <int HALF>
KILN_INLINE void exchange(Real (&x)[LANES]) {
  typedef decltype(Real{} == Real{}) Mask;
  Mask low, high;
  for (int l = 0; l < LANES; ++l) {
    const bool upper = (l & HALF) != 0;
    low[l] = upper ? LANES + l - HALF : l;
    high[l] = upper ? LANES + l : l + HALF;
  }
#pragma GCC unroll 32
  for (int i = 0; i < LANES; ++i) {
    if ((i & HALF) != 0) continue;
    const Real a = x[i], b = x[i + HALF];
    x[i] = __builtin_shuffle(a, b, low);
    x[i + HALF] = __builtin_shuffle(a, b, high);
  }
}
KILN_INLINE void transpose(Real (&x)[LANES]) {
  exchange<1>(x);
  exchange<2>(x);
  if constexpr (LANES > 4) exchange<4>(x);
  if constexpr (LANES > 8) exchange<8>(x);
}

// LANES rows at most, [i, i + width) of a panel, contiguous along the depth: through registers.
template <int64_t WIDTH>
KILN_INLINE void pack_across(const Stored* from, int64_t along, int64_t here, int64_t width,
                             int64_t begin, int64_t end, Value* panel) {
  int64_t p = begin;
  if (here == width)
    for (; p + LANES <= end; p += LANES) {
      Real x[LANES];
#pragma GCC unroll 16
      for (int l = 0; l < LANES; ++l)
        x[l] = l < width ? load(from + l * along + p, AllLanes{}) : Real{};
      transpose(x);
#pragma GCC unroll 16
      for (int l = 0; l < LANES; ++l)
        if (width == LANES)
          store(panel + (p + l) * WIDTH, x[l], AllLanes{});
        else
          store(panel + (p + l) * WIDTH, x[l], SomeLanes{width});
    }
  for (; p < end; ++p)
    for (int64_t l = 0; l < width; ++l)
      panel[p * WIDTH + l] = l < here ? load_splat(from + l * along + p)[0] : Value{};
}

// A packed operand: its panels' width, how many rows (or columns) there are, and the strides along
// them and along the depth.
struct OperandA {
  static constexpr int64_t width = Tiling::rows;
  static constexpr bool along_is_1 = Problem::a_row == 1, depth_is_1 = Problem::a_depth == 1;
  KILN_INLINE int64_t size(Sizes sizes) { return sizes.m; }
  KILN_INLINE int64_t along(Sizes sizes) { return sizes.a_row; }
  KILN_INLINE int64_t depth(Sizes sizes) { return sizes.a_depth; }
};
struct OperandB {
  static constexpr int64_t width = Tiling::columns;
  static constexpr bool along_is_1 = Problem::b_column == 1, depth_is_1 = Problem::b_depth == 1;
  KILN_INLINE int64_t size(Sizes sizes) { return sizes.n; }
  KILN_INLINE int64_t along(Sizes sizes) { return sizes.b_column; }
  KILN_INLINE int64_t depth(Sizes sizes) { return sizes.b_depth; }
};

// One panel's part of depth [begin, end): `live` of its rows (or columns) exist. Inlined once with
// `live` known, for whole panels.
template <class Operand>
KILN_INLINE void pack_live(Sizes sizes, const Stored* from, int64_t live, int64_t begin,
                           int64_t end, Value* panel) {
  constexpr int64_t WIDTH = Operand::width;
  const int64_t along = Operand::along(sizes), deep = Operand::depth(sizes);
  if constexpr (Operand::along_is_1) {
    for (int64_t p = begin; p < end; ++p)
#pragma GCC unroll 8
      for (int64_t i = 0; i < WIDTH; i += LANES) {
        const int64_t width = smaller(WIDTH - i, LANES), here = smaller(live - i, width);
        Real x{};
        if (here == LANES)
          x = load(from + p * deep + i, AllLanes{});
        else if (here > 0)
          x = load(from + p * deep + i, SomeLanes{here});
        if (width == LANES)
          store(panel + p * WIDTH + i, x, AllLanes{});
        else
          store(panel + p * WIDTH + i, x, SomeLanes{width});
      }
  } else if constexpr (Operand::depth_is_1) {
    // A transposition is long code. Panels of whole vectors have one, in a loop.
    if constexpr (WIDTH % LANES == 0) {
#pragma GCC unroll 1
      for (int64_t i = 0; i < WIDTH; i += LANES)
        pack_across<WIDTH>(from + i * along, along, smaller(live - i, LANES), LANES, begin, end,
                           panel + i);
    } else {
#pragma GCC unroll 8
      for (int64_t i = 0; i < WIDTH; i += LANES) {
        const int64_t width = smaller(WIDTH - i, LANES);
        pack_across<WIDTH>(from + i * along, along, smaller(live - i, width), width, begin, end,
                           panel + i);
      }
    }
  } else {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < WIDTH; ++i)
        panel[p * WIDTH + i] = i < live ? load_splat(from + i * along + p * deep)[0] : Value{};
  }
}

template <class Operand>
KILN_INLINE void pack_panel(Sizes sizes, const Stored* from, int64_t live, int64_t begin,
                            int64_t end, Value* panel) {
  if (live == Operand::width)
    pack_live<Operand>(sizes, from, Operand::width, begin, end, panel);
  else
    pack_live<Operand>(sizes, from, live, begin, end, panel);
}

// A piece of packing: kPanels panels, kDepth deep; sources are read in runs of that length.
constexpr int64_t kPanels = 4, kDepth = 256;

template <class Operand>
struct Packing {
  static constexpr int64_t WIDTH = Operand::width;
  KILN_INLINE int64_t slabs(Sizes sizes) { return ceil_div(sizes.k, kDepth); }
  KILN_INLINE int64_t panels(Sizes sizes) { return ceil_div(Operand::size(sizes), WIDTH); }
  KILN_INLINE int64_t pieces(Sizes sizes = {}) {  // a batch
    return ceil_div(panels(sizes), kPanels) * slabs(sizes);
  }

  static void run(const Stored* from, int64_t piece, Value* packed, Sizes sizes = {}) {
    const int64_t group = piece / slabs(sizes), slab = piece % slabs(sizes);
    const int64_t last = smaller((group + 1) * kPanels, panels(sizes));
    for (int64_t panel = group * kPanels; panel < last; ++panel)
      pack_panel<Operand>(sizes, from + panel * WIDTH * Operand::along(sizes),
                          smaller(Operand::size(sizes) - panel * WIDTH, WIDTH), slab * kDepth,
                          smaller((slab + 1) * kDepth, sizes.k), packed + panel * WIDTH * sizes.k);
  }
};

using PackA = Packing<OperandA>;
using PackB = Packing<OperandB>;

// ---- Multiplying ----

// How a tile walks A, in elements.
struct StepsOfA {
  static constexpr int64_t row = Tiling::a_packed ? 1 : Problem::a_row;
  static constexpr int64_t depth = Tiling::a_packed ? Tiling::rows : Problem::a_depth;
};

// The first of the MR rows that a tile at `row` computes. Past the last row there are zeros in a
// panel; where A lies, the tile moves up instead and finishes only the rows from `row` on.
KILN_INLINE int64_t first_row(Sizes sizes, int64_t row) {
  return Tiling::a_packed ? row : smaller(row, sizes.m - Tiling::rows);
}
KILN_INLINE const Value* rows_of_a(Sizes sizes, const Value* a, int64_t row, int64_t p) {
  return Tiling::a_packed ? a + row * sizes.k + p * Tiling::rows
                          : a + row * StepsOfA::row + p * StepsOfA::depth;
}

// sums[r][v] += a[p][r] * b[p][v] over `depth`: the loop that all time goes into. `live` of B's
// columns exist when they are read in place.
template <int VECTORS, class T, class Live>
KILN_INLINE void accumulate(const Value* a, const T* b, int64_t b_step, int64_t depth, Live live,
                            Real (&sums)[Tiling::rows][VECTORS]) {
  for (int64_t p = 0; p < depth; ++p, a += StepsOfA::depth, b += b_step) {
    Real y[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) y[v] = load(b + v * LANES, live);
#pragma GCC unroll 32
    for (int r = 0; r < Tiling::rows; ++r) {
      // A splat that keeps the sign of zero and costs no addition.
      const Real x = a[r * StepsOfA::row] - Real{};
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sums[r][v] += x * y[v];
    }
  }
}

// The longest run of products that is added up by itself, before it goes to the sum of the others:
// the rounding errors of a sum grow with its length, those of a sum of runs with a run's.
constexpr int64_t kRun = 128;

// MR rows of VECTORS vectors, kept in `tile` ([MR][NR]) from one piece of depth to the next.
template <int VECTORS, class T, class Live>
KILN_INLINE void multiply_tile(const Value* a, const T* b, int64_t b_step, int64_t depth, Live live,
                               bool first, Value* tile) {
  int64_t p = 0;
  do {  // once at least
    Real sums[Tiling::rows][VECTORS] = {};
    accumulate(a + p * StepsOfA::depth, b + p * b_step, b_step, smaller(depth - p, kRun), live,
               sums);
    const bool is_first = first && p == 0;
#pragma GCC unroll 32
    for (int r = 0; r < Tiling::rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) {
        Value* const to = tile + r * Tiling::columns + v * LANES;
        store(to, is_first ? sums[r][v] : load(to, AllLanes{}) + sums[r][v], AllLanes{});
      }
    p += kRun;
  } while (p < depth);
}

// `live` columns of B, read in place: whole panels like packed ones, a last one vector by vector.
KILN_INLINE void multiply_in_place(Sizes sizes, const Value* a, const Stored* b, int64_t depth,
                                   int64_t live, bool first, Value* tile) {
  const int64_t step = sizes.b_depth;
  if (live >= Tiling::columns) {
    multiply_tile<Tiling::columns / LANES>(a, b, step, depth, AllLanes{}, first, tile);
    return;
  }
  if (sizes.n % Tiling::columns != 0) {
    int64_t column = 0;
    for (; column + LANES <= live; column += LANES)
      multiply_tile<1>(a, b + column, step, depth, AllLanes{}, first, tile + column);
    if (column < live)
      multiply_tile<1>(a, b + column, step, depth, SomeLanes{live - column}, first, tile + column);
  }
}

// Hands the columns [0, columns) of one row of results to the epilogue.
template <class Epilogue>
KILN_INLINE void finish_row(Sizes sizes, const Value* results, int64_t columns, int64_t batch,
                            int64_t row, int64_t column, const Epilogue& epilogue) {
  int64_t done = 0;
  for (; done + LANES <= columns; done += LANES)
    epilogue(load(results + done, AllLanes{}), batch, row, column + done, AllLanes{});
  if (sizes.n % LANES != 0 && done < columns)
    epilogue(load(results + done, AllLanes{}), batch, row, column + done,
             SomeLanes{columns - done});
}

// The rows [done, live) of a tile, whose first row is `row`. Not inlined: the epilogue's constants
// would otherwise wait in registers throughout the loop above, and the sums be spilled.
template <class Epilogue>
__attribute__((noinline)) void finish_tile(Sizes sizes, const Value* tile, int64_t done,
                                           int64_t live, int64_t columns, int64_t batch,
                                           int64_t row, int64_t column, const Epilogue& epilogue) {
  for (int64_t r = done; r < live; ++r)
    finish_row(sizes, tile + r * Tiling::columns, columns, batch, row + r, column, epilogue);
}

struct Blocks {
  static constexpr int64_t tile_size = Tiling::rows * Tiling::columns;
  // Scratch holds a block's tiles, where the depth is cut; else one is used again and again.
  static constexpr int64_t tiles =
      Tiling::depth >= Problem::k
          ? 1
          : Tiling::block_rows / Tiling::rows * (Tiling::block_columns / Tiling::columns);
};

// Columns [column, column_end) and `depth` of B from `p` on, as panels of Tiling::depth.
KILN_INLINE void pack_slab(Sizes sizes, const Stored* b, int64_t column, int64_t column_end,
                           int64_t p, int64_t depth, Value* slab) {
  for (; column < column_end; column += Tiling::columns, slab += Tiling::columns * Tiling::depth)
    pack_panel<OperandB>(sizes, b + column * sizes.b_column + p * sizes.b_depth,
                         smaller(column_end - column, Tiling::columns), 0, depth, slab);
}

// One block of one batch. `a`: packed panels of the batch, or A itself; `packed_b`: those of B, when
// there are; `b`: the operand itself.
template <class Epilogue>
KILN_INLINE void multiply_block(const Value* a, const Value* packed_b, const Stored* b,
                                int64_t batch, int64_t row_block, int64_t column_block,
                                Value* scratch, const Epilogue& epilogue, Sizes sizes = {}) {
  constexpr int64_t MR = Tiling::rows, NR = Tiling::columns;
  const int64_t k = sizes.k;
  const int64_t row_begin = row_block * Tiling::block_rows;
  const int64_t row_end = smaller(row_begin + Tiling::block_rows, sizes.m);
  const int64_t column_begin = column_block * Tiling::block_columns;
  const int64_t column_end = smaller(column_begin + Tiling::block_columns, sizes.n);
  Value* const slab = scratch + Blocks::tiles * Blocks::tile_size;
  int64_t p = 0;
  do {  // once at least: without any depth the results are zeros
    const int64_t depth = smaller(k - p, Tiling::depth);
    if constexpr (Tiling::b_from == kSlab)
      pack_slab(sizes, b, column_begin, column_end, p, depth, slab);
    Value* tile = scratch;
    for (int64_t column = column_begin; column < column_end; column += NR)
      for (int64_t row = row_begin; row < row_end; row += MR) {
        const int64_t first = first_row(sizes, row);
        const Value* a_panel = rows_of_a(sizes, a, first, p);
        const int64_t columns = smaller(column_end - column, NR);
        if constexpr (Tiling::b_from == kPacked)
          multiply_tile<NR / LANES>(a_panel, packed_b + column * k + p * NR, NR, depth, AllLanes{},
                                    p == 0, tile);
        else if constexpr (Tiling::b_from == kSlab)
          multiply_tile<NR / LANES>(a_panel, slab + (column - column_begin) * Tiling::depth, NR,
                                    depth, AllLanes{}, p == 0, tile);
        else
          multiply_in_place(sizes, a_panel, b + p * sizes.b_depth + column, depth, columns, p == 0,
                            tile);
        if (p + Tiling::depth >= k)
          finish_tile(sizes, tile, row - first, smaller(row_end - first, MR), columns, batch, first,
                      column, epilogue);
        if (Blocks::tiles > 1) tile += Blocks::tile_size;
      }
    p += Tiling::depth;
  } while (p < k);
}

}  // namespace
