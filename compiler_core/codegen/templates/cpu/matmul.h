// Batched matrix product of strided operands with an elementwise epilogue. The generated source
// defines in front of this file
//
//   struct Problem   `stored` (memory type of the operands), `real` (register type of the result),
//                    sizes m, n, k, and strides in elements: a_row, a_depth, b_depth, b_column
//   struct Tiling    rows (MR), columns (NR, whole vectors), depth (kc), block_rows (mc),
//                    block_columns (nc), b_from: where the inner loop reads B
//
// and behind it the epilogue and the entries. Two phases: pack, then multiply. A panel of A holds
// MR rows, a panel of B NR columns, both as [k][width] in the result's type, so that the inner loop
// reads memory in order; missing rows and columns are zero. A is packed whole in the first phase. B
// is too (kPacked), or each block packs its part of it to scratch (kSlab: less memory traffic, but
// packed again for every block of rows), or it stays where it is (kInPlace).
namespace {

using Stored = Problem::stored;
using Real = Problem::real;
using Value = element<Real>::type;

constexpr int kInPlace = 0, kPacked = 1, kSlab = 2;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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
template <int64_t WIDTH, int64_t ALONG>
KILN_INLINE void pack_across(const Stored* from, int64_t here, int64_t width, int64_t begin,
                             int64_t end, Value* panel) {
  int64_t p = begin;
  if (here == width)
    for (; p + LANES <= end; p += LANES) {
      Real x[LANES];
#pragma GCC unroll 16
      for (int l = 0; l < LANES; ++l)
        x[l] = l < width ? load(from + l * ALONG + p, AllLanes{}) : Real{};
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
      panel[p * WIDTH + l] = l < here ? load_splat(from + l * ALONG + p)[0] : Value{};
}

// One panel's part of depth [begin, end): `live` of WIDTH rows (or columns) exist. Inlined once
// with `live` known, for whole panels.
template <int64_t WIDTH, int64_t ALONG, int64_t DEPTH>
KILN_INLINE void pack_live(const Stored* from, int64_t live, int64_t begin, int64_t end,
                           Value* panel) {
  if constexpr (ALONG == 1) {
    for (int64_t p = begin; p < end; ++p)
#pragma GCC unroll 8
      for (int64_t i = 0; i < WIDTH; i += LANES) {
        const int64_t width = smaller(WIDTH - i, LANES), here = smaller(live - i, width);
        Real x{};
        if (here == LANES)
          x = load(from + p * DEPTH + i, AllLanes{});
        else if (here > 0)
          x = load(from + p * DEPTH + i, SomeLanes{here});
        if (width == LANES)
          store(panel + p * WIDTH + i, x, AllLanes{});
        else
          store(panel + p * WIDTH + i, x, SomeLanes{width});
      }
  } else if constexpr (DEPTH == 1) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < WIDTH; i += LANES) {
      const int64_t width = smaller(WIDTH - i, LANES);
      pack_across<WIDTH, ALONG>(from + i * ALONG, smaller(live - i, width), width, begin, end,
                                panel + i);
    }
  } else {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < WIDTH; ++i)
        panel[p * WIDTH + i] = i < live ? load_splat(from + i * ALONG + p * DEPTH)[0] : Value{};
  }
}

template <int64_t WIDTH, int64_t ALONG, int64_t DEPTH>
KILN_INLINE void pack_panel(const Stored* from, int64_t live, int64_t begin, int64_t end,
                            Value* panel) {
  if (live == WIDTH)
    pack_live<WIDTH, ALONG, DEPTH>(from, WIDTH, begin, end, panel);
  else
    pack_live<WIDTH, ALONG, DEPTH>(from, live, begin, end, panel);
}

// A piece of packing: kPanels panels, kDepth deep; sources are read in runs of that length.
constexpr int64_t kPanels = 4, kDepth = 256;

template <int64_t WIDTH, int64_t SIZE, int64_t ALONG, int64_t DEPTH>
struct Packing {
  static constexpr int64_t panels = ceil_div(SIZE, WIDTH);
  static constexpr int64_t groups = ceil_div(panels, kPanels);
  static constexpr int64_t slabs = ceil_div(Problem::k, kDepth);
  static constexpr int64_t pieces = groups * slabs;  // a batch

  static void run(const Stored* from, int64_t piece, Value* packed) {
    const int64_t group = piece / slabs, slab = piece % slabs;
    const int64_t last = smaller((group + 1) * kPanels, panels);
    for (int64_t panel = group * kPanels; panel < last; ++panel)
      pack_panel<WIDTH, ALONG, DEPTH>(from + panel * WIDTH * ALONG,
                                      smaller(SIZE - panel * WIDTH, WIDTH), slab * kDepth,
                                      smaller((slab + 1) * kDepth, Problem::k),
                                      packed + panel * WIDTH * Problem::k);
  }
};

using PackA = Packing<Tiling::rows, Problem::m, Problem::a_row, Problem::a_depth>;
using PackB = Packing<Tiling::columns, Problem::n, Problem::b_column, Problem::b_depth>;

// ---- Multiplying ----

// sums[r][v] += a[p][r] * b[p][v] over `depth`: the loop that all time goes into. `live` of B's
// columns exist when they are read in place.
template <int VECTORS, class T, class Live>
KILN_INLINE void accumulate(const Value* a, const T* b, int64_t b_step, int64_t depth, Live live,
                            Real (&sums)[Tiling::rows][VECTORS]) {
  for (int64_t p = 0; p < depth; ++p, a += Tiling::rows, b += b_step) {
    Real y[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) y[v] = load(b + v * LANES, live);
#pragma GCC unroll 32
    for (int r = 0; r < Tiling::rows; ++r) {
      const Real x = a[r] - Real{};  // a splat that keeps the sign of zero and costs no addition
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sums[r][v] += x * y[v];
    }
  }
}

// MR rows of VECTORS vectors, kept in `tile` ([MR][NR]) from one piece of depth to the next.
template <int VECTORS, class T, class Live>
KILN_INLINE void multiply_tile(const Value* a, const T* b, int64_t b_step, int64_t depth, Live live,
                               bool first, Value* tile) {
  Real sums[Tiling::rows][VECTORS];
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = first ? Real{} : load(tile + r * Tiling::columns + v * LANES, AllLanes{});
  accumulate(a, b, b_step, depth, live, sums);
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      store(tile + r * Tiling::columns + v * LANES, sums[r][v], AllLanes{});
}

// `live` columns of B, read in place: whole panels like packed ones, a last one vector by vector.
KILN_INLINE void multiply_in_place(const Value* a, const Stored* b, int64_t depth, int64_t live,
                                   bool first, Value* tile) {
  constexpr int64_t step = Problem::b_depth;
  if (live >= Tiling::columns) {
    multiply_tile<Tiling::columns / LANES>(a, b, step, depth, AllLanes{}, first, tile);
    return;
  }
  if constexpr (Problem::n % Tiling::columns != 0) {
    int64_t column = 0;
    for (; column + LANES <= live; column += LANES)
      multiply_tile<1>(a, b + column, step, depth, AllLanes{}, first, tile + column);
    if (column < live)
      multiply_tile<1>(a, b + column, step, depth, SomeLanes{live - column}, first, tile + column);
  }
}

// Hands the columns [0, columns) of one row of results to the epilogue.
template <class Epilogue>
KILN_INLINE void finish_row(const Value* results, int64_t columns, int64_t batch, int64_t row,
                            int64_t column, const Epilogue& epilogue) {
  int64_t done = 0;
  for (; done + LANES <= columns; done += LANES)
    epilogue(load(results + done, AllLanes{}), batch, row, column + done, AllLanes{});
  if (Problem::n % LANES != 0 && done < columns)
    epilogue(load(results + done, AllLanes{}), batch, row, column + done,
             SomeLanes{columns - done});
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
KILN_INLINE void pack_slab(const Stored* b, int64_t column, int64_t column_end, int64_t p,
                           int64_t depth, Value* slab) {
  for (; column < column_end; column += Tiling::columns, slab += Tiling::columns * Tiling::depth)
    pack_panel<Tiling::columns, Problem::b_column, Problem::b_depth>(
        b + column * Problem::b_column + p * Problem::b_depth,
        smaller(column_end - column, Tiling::columns), 0, depth, slab);
}

// One block of one batch. `a`: packed panels of the batch; `packed_b`: those of B, when there are;
// `b`: the operand itself.
template <class Epilogue>
KILN_INLINE void multiply_block(const Value* a, const Value* packed_b, const Stored* b,
                                int64_t batch, int64_t row_block, int64_t column_block,
                                Value* scratch, const Epilogue& epilogue) {
  constexpr int64_t k = Problem::k, MR = Tiling::rows, NR = Tiling::columns;
  const int64_t row_begin = row_block * Tiling::block_rows;
  const int64_t row_end = smaller(row_begin + Tiling::block_rows, Problem::m);
  const int64_t column_begin = column_block * Tiling::block_columns;
  const int64_t column_end = smaller(column_begin + Tiling::block_columns, Problem::n);
  Value* const slab = scratch + Blocks::tiles * Blocks::tile_size;
  for (int64_t p = 0; p < k; p += Tiling::depth) {
    const int64_t depth = smaller(k - p, Tiling::depth);
    if constexpr (Tiling::b_from == kSlab)
      pack_slab(b, column_begin, column_end, p, depth, slab);
    Value* tile = scratch;
    for (int64_t column = column_begin; column < column_end; column += NR)
      for (int64_t row = row_begin; row < row_end; row += MR) {
        const Value* a_panel = a + row * k + p * MR;
        const int64_t columns = smaller(column_end - column, NR);
        if constexpr (Tiling::b_from == kPacked)
          multiply_tile<NR / LANES>(a_panel, packed_b + column * k + p * NR, NR, depth, AllLanes{},
                                    p == 0, tile);
        else if constexpr (Tiling::b_from == kSlab)
          multiply_tile<NR / LANES>(a_panel, slab + (column - column_begin) * Tiling::depth, NR,
                                    depth, AllLanes{}, p == 0, tile);
        else
          multiply_in_place(a_panel, b + p * Problem::b_depth + column, depth, columns, p == 0,
                            tile);
        if (p + Tiling::depth >= k)
          for (int64_t r = 0; r < smaller(row_end - row, MR); ++r)
            finish_row(tile + r * NR, columns, batch, row + r, column, epilogue);
        if (Blocks::tiles > 1) tile += Blocks::tile_size;
      }
  }
}

}  // namespace
