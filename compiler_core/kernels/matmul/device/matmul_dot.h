// The product for few rows: every element is a dot product over the contiguous depth of both
// operands, so that B, the weights, streams through once as it lies in memory. Defined in front of
// this file, as for matmul.h: Problem, and Tiling with rows, columns (the dot products taken
// together) and block_columns. A is one row-major [m][depth] in the result's type, whose rows end
// in zeros; see DotOperand.
namespace {

using Stored = Problem::stored;
using Real = Problem::real;
using Value = element<Real>::type;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct DotOperand {
  static constexpr int64_t depth = ceil_div(Problem::k, LANES) * LANES;

  // Row `row` of A, converted; zeros up to a whole vector.
  static void pack(const Stored* a, int64_t row, Value* packed) {
    const Stored* from = a + row * Problem::a_row;
    Value* to = packed + row * depth;
    for (int64_t p = 0; p < depth; p += LANES) {
      const int64_t here = smaller(Problem::k - p, LANES);
      const Stored* at = from + p * Problem::a_depth;
      Real x;
      if constexpr (Problem::a_depth == 1)
        x = here == LANES ? load(at, AllLanes{}) : load(at, SomeLanes{here});
      else
        x = load_strided(at, Problem::a_depth, SomeLanes{here});
      store(to + p, x, AllLanes{});
    }
  }
};

// Lane l of the result: the sum of vector l's lanes. A step for each bit of the lanes' numbers adds
// what two vectors have in the lanes that differ in it, and leaves one vector of two.
template <int HALF>
KILN_INLINE Real fold(Real x, Real y) {
  typedef decltype(Real{} == Real{}) Mask;
  Mask own, across;
  for (int l = 0; l < LANES; ++l) {
    const int from = (l & HALF) != 0 ? LANES : 0;
    own[l] = from + l;
    across[l] = from + (l ^ HALF);
  }
  return __builtin_shuffle(x, y, own) + __builtin_shuffle(x, y, across);
}
template <int HALF>
KILN_INLINE void fold_all(Real (&x)[LANES]) {
#pragma GCC unroll 16
  for (int i = 0; i < HALF; ++i) x[i] = fold<HALF>(x[i], x[i + HALF]);
  if constexpr (HALF > 1) fold_all<HALF / 2>(x);
}
KILN_INLINE Real sums_of_lanes(Real (&x)[LANES]) {
  fold_all<LANES / 2>(x);
  return x[0];
}

// MR x NR dot products at once. Rows and columns past the end repeat the last one: computed, never
// stored, so that no other shape of this loop is needed.
// The result of row r and column c is results[r * NR + c].
constexpr int kResults = ceil_div(Tiling::rows * Tiling::columns, LANES) * LANES;
KILN_INLINE void dot_tile(const Value* (&a)[Tiling::rows], const Stored* (&b)[Tiling::columns],
                          Value (&results)[kResults]) {
  Real sums[Tiling::rows][Tiling::columns] = {};
  const auto step = [&](int64_t p, auto live) __attribute__((always_inline)) {
    Real x[Tiling::rows];
#pragma GCC unroll 16
    for (int r = 0; r < Tiling::rows; ++r) x[r] = load(a[r] + p, AllLanes{});
#pragma GCC unroll 16
    for (int c = 0; c < Tiling::columns; ++c) {
      const Real y = load(b[c] + p, live);
#pragma GCC unroll 16
      for (int r = 0; r < Tiling::rows; ++r) sums[r][c] += x[r] * y;
    }
  };
  constexpr int64_t whole = Problem::k / LANES * LANES;
  for (int64_t p = 0; p < whole; p += LANES) step(p, AllLanes{});
  if constexpr (whole < Problem::k) step(whole, SomeLanes{Problem::k - whole});
#pragma GCC unroll 8
  for (int first = 0; first < Tiling::rows * Tiling::columns; first += LANES) {
    Real some[LANES];
#pragma GCC unroll 16
    for (int l = 0; l < LANES; ++l) {
      const int at = first + l;
      const bool live = at < Tiling::rows * Tiling::columns;
      some[l] = live ? sums[at / Tiling::columns][at % Tiling::columns] : Real{};
    }
    store(results + first, sums_of_lanes(some), AllLanes{});
  }
}

// All rows of the columns [column, column_end) of one batch; `results`: scratch, [m][nc].
template <class Epilogue>
KILN_INLINE void dot_block(const Value* a, const Stored* b, int64_t batch, int64_t column_begin,
                           Value* results, const Epilogue& epilogue) {
  constexpr int64_t MR = Tiling::rows, NR = Tiling::columns, width = Tiling::block_columns;
  const int64_t columns = smaller(Problem::n - column_begin, width);
  for (int64_t column = 0; column < columns; column += NR) {
    const Stored* b_columns[NR];
    for (int64_t c = 0; c < NR; ++c)
      b_columns[c] = b + smaller(column_begin + column + c, Problem::n - 1) * Problem::b_column;
    for (int64_t row = 0; row < Problem::m; row += MR) {
      const Value* a_rows[MR];
      for (int64_t r = 0; r < MR; ++r)
        a_rows[r] = a + smaller(row + r, Problem::m - 1) * DotOperand::depth;
      Value tile[kResults];
      dot_tile(a_rows, b_columns, tile);
      for (int64_t r = 0; r < smaller(Problem::m - row, MR); ++r)
        for (int64_t c = 0; c < smaller(width - column, NR); ++c)
          results[(row + r) * width + column + c] = tile[r * NR + c];
    }
  }
  for (int64_t row = 0; row < Problem::m; ++row) {
    const Value* from = results + row * width;
    int64_t done = 0;
    for (; done + LANES <= columns; done += LANES)
      epilogue(load(from + done, AllLanes{}), batch, row, column_begin + done, AllLanes{});
    // A block's width need not be whole vectors, even where n is.
    if ((Problem::n % LANES != 0 || width % LANES != 0) && done < columns)
      epilogue(load(from + done, AllLanes{}), batch, row, column_begin + done,
               SomeLanes{columns - done});
  }
}

}  // namespace
