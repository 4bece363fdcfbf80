// A block's tile of a product of few rows of halves, which waits for the other operand's way from
// memory: its lines (the columns of b), contiguous by depth, go from there into registers. The warps
// of a block share its columns, and take the steps of the depth by turns.
//
// Columns are the tensor cores' first operand, 16 of them, rows the second, 8 of them. A lane has of
// each line 16 bytes as they lie in memory, which two instructions multiply: the depth comes in
// another order than it has, the same for both operands.
//
// Rows that a norm scales (plan/rms_norm.h) are multiplied without their scale, which is applied to
// the sums: a chunk of them is what A::times() makes of it and of the numbers of its columns, which
// the block has in shared memory. The tensor cores add up the squares: a row times itself.
//
// In front of it stand matmul.cuh and what that needs, A, B and Tiling, and tile_sums.cuh.
namespace {

// Pieces of 16 bytes as a vector of what lies in them.
template <class T, int pieces>
KILN_INLINE Packed<T> as_vector(const Bits<16> (&from)[pieces]) {
  static_assert(Packed<T>::bytes == pieces * 16);
  Packed<T> x;
  _Pragma("unroll") for (int i = 0; i < pieces * 4; ++i) x.word[i] = from[i / 4].word[i % 4];
  return x;
}

// Eight products of bf16, each rounded once.
KILN_INLINE Bits<16> times_bf16(const Bits<16>& x, const Bits<16>& y) {
  Bits<16> z;
  _Pragma("unroll") for (int i = 0; i < 4; ++i) {
#ifndef KILN_ON_HOST
    // Adds -0, which changes no product: 8.0 has no instruction that multiplies pairs and does nothing else.
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z.word[i]) : "r"(x.word[i]), "r"(y.word[i]), "r"(0x80008000u));
#else
    z.word[i] = pack_bf16(as_float(x.word[i] << 16) * as_float(y.word[i] << 16),
                          as_float(x.word[i] & 0xffff0000u) * as_float(y.word[i] & 0xffff0000u));
#endif
  }
  return z;
}

// Where each warp's sums of squares lie in `shared`, behind all sums of products.
template <class Tiling>
KILN_INLINE float* squares_of_warp(char* shared, int warp) {
  constexpr int of_all = Tiling::warp_columns * Tiling::rows * Staging<Tiling>::pitch;
  return reinterpret_cast<float*>(shared) + of_all + warp * Tiling::rows;
}
// The sum of the squares of a row of the tile, when multiply_few_rows() has ended.
template <class Tiling>
KILN_INLINE float squares_of_row(char* shared, int row) {
  float sum = squares_of_warp<Tiling>(shared, 0)[row];
  _Pragma("unroll") for (int warp = 1; warp < Tiling::warp_columns; ++warp)
    sum += squares_of_warp<Tiling>(shared, warp)[row];
  return sum;
}
// What columns of a are multiplied with, behind those.
template <class Tiling>
KILN_INLINE char* staged_norm(char* shared) {
  return reinterpret_cast<char*>(squares_of_warp<Tiling>(shared, Tiling::warp_columns));
}

// A tile has equally many columns of each of `parts` second operands, side by side.
template <class Core, class A, class B, class Tiling, int parts>
struct FewRows {
  using Stored = typename B::stored;
  static constexpr int width = Tiling::columns / parts;  // columns of a part
  static constexpr int warps = Tiling::warp_columns;
  static constexpr int sixteens = Tiling::columns / 16, eights = Tiling::rows / 8;
  static constexpr int turns = Tiling::depth / 32;
  static constexpr bool whole_depth = B::depth % Tiling::depth == 0;

  static constexpr bool is_normed = A::norm_pieces >= 0, has_norms_columns = A::norm_pieces > 0;
  static constexpr int norm_pieces = has_norms_columns ? A::norm_pieces : 1;

  // A lane's part of a step.
  struct Step {
    Bits<16> of_a[turns][eights], of_b[turns][sixteens][2];
  };

  float sum[sixteens][eights][4];
  float squares[is_normed ? eights : 1][4];
  const Stored* a;
  const Stored* const (&b)[parts];
  const char* norm;
  int row, column, columns;

  // The tile begins at (row, column) of matrices of so many columns. `norm`: in shared memory.
  KILN_MEMBER FewRows(const Stored* a, const Stored* const (&b)[parts], const char* norm, int row, int column,
                      int columns)
      : a(a),
        b(b),
        norm(norm),
        row(row + lane() / 4),
        column(column + lane() / 4),
        columns(columns) {
    _Pragma("unroll") for (auto& of_rows : squares)
      _Pragma("unroll") for (float& x : of_rows) x = 0;
    _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
      _Pragma("unroll") for (int i = 0; i < eights; ++i)
        _Pragma("unroll") for (float& x : sum[j][i]) x = 0;
  }
  KILN_INLINE int lane() { return thread_index() % 32; }

  // Lines that there are not are the last of `all`: nobody stores what becomes of them.
  template <class Operand, int lines>
  KILN_INLINE void load(const Stored* from, int line, int all, int depth, Bits<16>& x) {
    if constexpr (Operand::lines % lines != 0) line = smaller(line, all - 1);
    if (is_within(depth)) {
      load_input(from + static_cast<index_t>(line) * Operand::line_stride + depth, x);
    } else {
      _Pragma("unroll") for (unsigned& word : x.word) word = 0;
    }
  }
  // Whether an operand reaches so far; zeros stand behind it.
  KILN_INLINE bool is_within(int depth) { return whole_depth || depth < B::depth; }
  KILN_INLINE int depth_of(int number, int turn) {
    return number * Tiling::depth + turn * 32 + lane() % 4 * 8;
  }
  KILN_MEMBER void load_b(int number, Step& step) const {
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
      const int depth = depth_of(number, turn);
      _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
        _Pragma("unroll") for (int half = 0; half < 2; ++half)
            load<B, width>(b[j * 16 / width], column + j * 16 % width + half * 8, columns, depth,
                           step.of_b[turn][j][half]);
    }
  }
  KILN_MEMBER void load_a(int number, Step& step) const {
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn)
      _Pragma("unroll") for (int i = 0; i < eights; ++i)
          load<A, Tiling::rows>(a, row + i * 8, A::lines, depth_of(number, turn), step.of_a[turn][i]);
  }
  KILN_MEMBER void load(int number, Step& step) const {
    load_b(number, step);
    load_a(number, step);
  }
  // Makes of rows at this depth what is multiplied: x * w where a norm scales them, and adds up their squares.
  KILN_MEMBER void norm_rows(const Bits<16> (&rows)[eights], [[maybe_unused]] int depth,
                                 Bits<16> (&of_a)[eights]) {
    if constexpr (is_normed) {
      Bits<16> of_norm[norm_pieces] = {};
      if constexpr (has_norms_columns)
        if (is_within(depth))
          _Pragma("unroll") for (int i = 0; i < norm_pieces; ++i)
            of_norm[i] = *reinterpret_cast<const Bits<16>*>(norm + (depth / 8 * norm_pieces + i) * 16);
      _Pragma("unroll") for (int i = 0; i < eights; ++i) {
        const Bits<16>& x = rows[i];
        _Pragma("unroll") for (int word = 0; word < 4; word += 2)
          Core::multiply(squares[i], {{x.word[word], 0, x.word[word + 1], 0}}, {{x.word[word], x.word[word + 1]}});
        of_a[i] = A::times(x, of_norm);
      }
    } else {
      _Pragma("unroll") for (int i = 0; i < eights; ++i) of_a[i] = rows[i];
    }
  }
  KILN_MEMBER void multiply(int number, const Step& step) {
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
      Bits<16> of_a[eights];
      norm_rows(step.of_a[turn], depth_of(number, turn), of_a);
      _Pragma("unroll") for (int word = 0; word < 4; word += 2)
        _Pragma("unroll") for (int j = 0; j < sixteens; ++j) {
          const auto& [lower, upper] = step.of_b[turn][j];
          const typename Core::A columns = {
              {lower.word[word], upper.word[word], lower.word[word + 1], upper.word[word + 1]}};
          _Pragma("unroll") for (int i = 0; i < eights; ++i)
            Core::multiply(sum[j][i], columns, {{of_a[i].word[word], of_a[i].word[word + 1]}});
        }
    }
  }
  // Those of each row, of which one lane has the product with itself.
  KILN_MEMBER void stage_squares(float* staged) const {
    const int own = lane() / 4;
    if (lane() % 4 != own / 2) return;
    _Pragma("unroll") for (int i = 0; i < eights; ++i)
      staged[i * 8 + own] = own % 2 == 0 ? squares[i][0] : squares[i][1];
  }
  KILN_MEMBER void stage(float* staged) const {
    _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
      _Pragma("unroll") for (int i = 0; i < eights; ++i)
        _Pragma("unroll") for (int x = 0; x < 4; ++x) {
          const int at_row = i * 8 + lane() % 4 * 2 + x % 2, at_column = j * 16 + lane() / 4 + x / 2 * 8;
          staged[at_row * Staging<Tiling>::pitch + at_column] = sum[j][i][x];
        }
  }
};

// The sums of this block's vectors of the tile at (row, column), of second operands of so many
// columns each, whose depth `blocks` blocks divide. `norm`: what columns of a are multiplied with, if
// anything, ready when b is. `shared` has room for the staged sums of every warp and, behind them, for those
// that a cluster brings, or for sums of squares and what `norm` has. Waits for the kernel in front of this
// one, before which it reads of b what it needs first if that is ready, and lets the next one begin. What the
// epilogue reads is on its way during the product: read_early() begins to read it.
template <class Core, class A, class B, class Tiling, int blocks, int parts, class ReadEarly>
KILN_INLINE TileSums<Tiling, parts, blocks> multiply_few_rows(
    const typename B::stored* a, const typename B::stored* const (&b)[parts], const void* norm, int columns,
    int row, int column, int begin, int end, bool b_is_ready, const ReadEarly& read_early, char* shared) {
  using Rows = FewRows<Core, A, B, Tiling, parts>;
  static_assert(!Rows::is_normed || blocks == 1);
  constexpr int warps = Rows::warps, pitch = Staging<Tiling>::pitch;
  constexpr int of_warp = Tiling::rows * pitch;
  float* const staged = reinterpret_cast<float*>(shared);
  const TileSums<Tiling, parts, blocks> sums{staged + (blocks > 1 ? warps * of_warp : 0)};
  sums.begin();
  const int warp = thread_index() / 32;
  char* const own_norm = staged_norm<Tiling>(shared);
  Rows rows(a, b, own_norm, row, column, columns);
  // Two steps in registers, each of which is asked for anew when it has been multiplied.
  typename Rows::Step even, odd;
  int step = begin + warp;
  const auto begin_b = [&] {
    if (step < end) rows.load_b(step, even);
    if (step + warps < end) rows.load_b(step + warps, odd);
    if constexpr (Rows::has_norms_columns)
      for (int i = thread_index(); i < B::depth / 8 * Rows::norm_pieces; i += warps * 32)
        copy_input<16>(static_cast<const char*>(norm) + i * 16, own_norm + i * 16);
  };
  if (b_is_ready) begin_b();
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (!b_is_ready) begin_b();
  if (step < end) rows.load_a(step, even);
  if (step + warps < end) rows.load_a(step + warps, odd);
  read_early();
  if constexpr (Rows::has_norms_columns) {
    copies_arrived();
    block_barrier();
  }
  _Pragma("unroll 1") for (; step < end; step += 2 * warps) {
    rows.multiply(step, even);
    if (step + 2 * warps < end) rows.load(step + 2 * warps, even);
    if (step + warps >= end) break;
    rows.multiply(step + warps, odd);
    if (step + 3 * warps < end) rows.load(step + 3 * warps, odd);
  }
  rows.stage(staged + warp * of_warp);
  if constexpr (Rows::is_normed) rows.stage_squares(squares_of_warp<Tiling>(shared, warp));
  block_barrier();
  sums.wait_for_others();
  // Each thread adds up elements that nobody else does.
  for (int i = thread_index(); i < Tiling::rows * Tiling::columns; i += warps * 32) {
    const int at_row = i / Tiling::columns, at_column = i % Tiling::columns;
    float* at = staged + at_row * pitch + at_column;
    float sum = *at;
    _Pragma("unroll") for (int other = 1; other < warps; ++other) sum += at[other * of_warp];
    sums.bring(at, at_row, at_column, sum);
  }
  sums.finish();
  return sums;
}

}  // namespace
