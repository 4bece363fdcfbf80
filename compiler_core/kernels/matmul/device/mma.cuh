// The inner part of a matmul: tiles of the operands in shared memory, and the sums of a block's
// tile of the product, held in the registers of its threads. A Tiling says how a block is cut:
// rows, columns, depth of its tile; warp_rows x warp_columns warps. A is [rows, depth], B is
// [depth, columns]; "lines" are rows of A and columns of B, so that both are [lines, depth].
namespace {

// A tile of rows that are contiguous, in chunks of 16 bytes. Chunks change places within groups of
// 8, differently in neighbouring rows, so that a warp that goes down a column of chunks meets all
// banks. `step` 2: for warps that read 4 rows of 2 chunks at a time.
template <class Stored, int rows_, int columns_, int step>
struct SharedTile {
  static constexpr int rows = rows_, in_chunk = 16 / sizeof(Stored), chunks = columns_ / in_chunk;
  static constexpr int bytes = rows_ * columns_ * sizeof(Stored);
  static constexpr int group = chunks < 8 ? chunks : 8;
  static_assert(chunks >= 1 && (group & (group - 1)) == 0 && chunks % group == 0);
  // Byte offsets.
  KILN_INLINE int chunk_at(int row, int chunk) {
    return (row * chunks + (chunk ^ row / (8 / group) * step % group)) * 16;
  }
  KILN_INLINE int element_at(int row, int column) {
    return chunk_at(row, column / in_chunk) + column % in_chunk * static_cast<int>(sizeof(Stored));
  }
};

// Stores words to shared memory at once. Their size divides the address.
template <int words>
struct alignas(words * 4) AlignedWords { unsigned word[words]; };
template <int words>
KILN_INLINE void store_words(void* to, const unsigned (&x)[words]) {
  AlignedWords<words> all;
  _Pragma("unroll") for (int w = 0; w < words; ++w) all.word[w] = x[w];
  *static_cast<AlignedWords<words>*>(to) = all;
}

// How an operand's tile lies in shared memory: along the axis that it is contiguous along.
template <class Operand, int lines, int depth>
using TileOf = SharedTile<typename Operand::stored, Operand::depth_inner ? lines : depth,
                          Operand::depth_inner ? depth : lines,
                          sizeof(typename Operand::stored) == 4 && !Operand::depth_inner ? 2 : 1>;

// A fragment of 16 lines and two chunks' depth: four matrices of 8 lines and a chunk. Their order
// is A's (lines first: the lower lines, the upper lines, then deeper) or that of two of B's.
template <class Operand, class Tile, bool lines_first>
KILN_INLINE void load_fragment(unsigned (&x)[4], const char* tile, int line, int depth) {
  const int lane = thread_index() % 32;
  const int line_half = lines_first ? lane / 8 % 2 : lane / 16;
  const int depth_half = lines_first ? lane / 16 : lane / 8 % 2;
  if constexpr (Operand::depth_inner) {
    ldmatrix_x4(x, tile + Tile::chunk_at(line + line_half * 8 + lane % 8,
                                         depth / Tile::in_chunk + depth_half));
  } else if constexpr (sizeof(typename Operand::stored) == 2) {
    ldmatrix_x4_trans(x, tile + Tile::chunk_at(depth + depth_half * 8 + lane % 8,
                                               line / Tile::in_chunk + line_half));
  } else {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      const int upper = lines_first ? i % 2 : i / 2, deeper = lines_first ? i / 2 : i % 2;
      x[i] = *reinterpret_cast<const unsigned*>(
          tile + Tile::element_at(depth + deeper * 4 + lane % 4, line + upper * 8 + lane / 4));
    }
  }
}

// ---- What the tensor cores multiply, `depth` at a time; `unroll` times that fits the registers.
template <int words>
struct Halves {
  unsigned word[words];
  KILN_MEMBER void set(int i, unsigned x) { word[i] = x; }
};
struct MmaBf16 {
  static constexpr int depth = 16, unroll = 2;
  static constexpr bool has_last = false;
  using A = Halves<4>;
  using B = Halves<2>;
  KILN_INLINE void multiply(float (&d)[4], const A& a, const B& b) { mma_bf16(d, a.word, b.word); }
};
struct MmaF16 {
  static constexpr int depth = 16, unroll = 2;
  static constexpr bool has_last = false;
  using A = Halves<4>;
  using B = Halves<2>;
  KILN_INLINE void multiply(float (&d)[4], const A& a, const B& b) { mma_f16(d, a.word, b.word); }
};
// f32 as the sum of two tf32 numbers, 11 bits each. The high one is rounded, so that what the low one
// and the product of both low ones lose is at most 2^-22 of a product and has any sign; cut off, they
// would lose 2^-20, always towards zero. The tensor core truncates what it adds up, which over 512
// steps alone would be more than verification allows; so a sum over few products leaves it for an
// addition that rounds (Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores, 2022).
// Sums are nearer to exact ones than those of fused multiply-adds one after the other.
// Each part is still truncated: by half of its last place on average, so that all of a sum is too
// small by half of the sum's last place, whatever its depth, and a model of fifty layers by fifty
// times that. The last addition of a sum rounds away from zero, which adds half of the last place
// on average. A sum that needs no rounding stays exact.
// An infinity, and what rounds to one, gives NaN: see plain_sum() in matmul.cuh.
template <int words>
struct SplitFloats {
  unsigned high[words], low[words];
  KILN_MEMBER void set(int i, unsigned x) {
    high[i] = (x + 0x1000u) & 0xffffe000u;
    low[i] = as_bits(as_float(x) - as_float(high[i]));
  }
};
struct MmaF32 {
  static constexpr int depth = 8, unroll = 1;
  static constexpr bool has_last = true;
  using A = SplitFloats<4>;
  using B = SplitFloats<2>;
  template <bool is_last = false>
  KILN_INLINE void multiply(float (&d)[4], const A& a, const B& b) {
    float part[4] = {0, 0, 0, 0};
    mma_tf32(part, a.low, b.high);
    mma_tf32(part, a.high, b.low);
    mma_tf32(part, a.high, b.high);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) d[i] = is_last ? add_away(d[i], part[i]) : d[i] + part[i];
  }
};

// ---- The sums of one thread, on tensor cores: each warp has an equal part of the block's tile.
template <class Core, class A, class B, class Tiling>
struct WarpSums {
  using value = float;
  using TileA = TileOf<A, Tiling::rows, Tiling::depth>;
  using TileB = TileOf<B, Tiling::columns, Tiling::depth>;
  static constexpr int rows = Tiling::rows / Tiling::warp_rows;
  static constexpr int columns = Tiling::columns / Tiling::warp_columns;
  static_assert(rows % 16 == 0 && columns % 16 == 0 && Tiling::depth % Core::depth == 0);
  float sum[rows / 16][columns / 8][4];

  KILN_INLINE int first_row() { return thread_index() / 32 / Tiling::warp_columns * rows; }
  KILN_INLINE int first_column() { return thread_index() / 32 % Tiling::warp_columns * columns; }
  KILN_MEMBER void clear() {
    _Pragma("unroll") for (auto& row : sum)
      _Pragma("unroll") for (auto& matrix : row)
        _Pragma("unroll") for (float& x : matrix) x = 0;
  }
  // Adds the products at `depth` of the tiles.
  template <bool is_last>
  KILN_MEMBER void multiply_at(const char* tile_a, const char* tile_b, int depth) {
    typename Core::B b[columns / 8];
    unsigned x[4];
    _Pragma("unroll") for (int j = 0; j < columns / 8; j += 2) {
      load_fragment<B, TileB, false>(x, tile_b, first_column() + j * 8, depth);
      b[j].set(0, x[0]);
      b[j].set(1, x[1]);
      b[j + 1].set(0, x[2]);
      b[j + 1].set(1, x[3]);
    }
    _Pragma("unroll") for (int i = 0; i < rows / 16; ++i) {
      typename Core::A a;  // one at a time: registers
      load_fragment<A, TileA, true>(x, tile_a, first_row() + i * 16, depth);
      a.set(0, x[0]);
      a.set(1, x[1]);
      a.set(2, x[2]);
      a.set(3, x[3]);
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j) {
        if constexpr (is_last) {
          Core::template multiply<true>(sum[i][j], a, b[j]);
        } else {
          Core::multiply(sum[i][j], a, b[j]);
        }
      }
    }
  }
  // The last products of all are those at `last` of the tiles, if that lies in them. Other tiles have
  // a loop of their own, which asks nothing.
  KILN_MEMBER void multiply(const char* tile_a, const char* tile_b, int last) {
    if (!Core::has_last || last >= Tiling::depth) {
      _Pragma("unroll Core::unroll") for (int depth = 0; depth < Tiling::depth; depth += Core::depth)
          multiply_at<false>(tile_a, tile_b, depth);
      return;
    }
    if constexpr (Core::has_last) {
      _Pragma("unroll 1") for (int depth = 0; depth <= last; depth += Core::depth) {
        if (last - depth < Core::depth)
          multiply_at<true>(tile_a, tile_b, depth);
        else
          multiply_at<false>(tile_a, tile_b, depth);
      }
    }
  }
  // To `staged`, [rows, columns] of the block with rows `pitch` apart.
  KILN_MEMBER void stage(float* staged, int pitch) const {
    const int lane = thread_index() % 32;
    float* at = staged + (first_row() + lane / 4) * pitch + first_column() + lane % 4 * 2;
    _Pragma("unroll") for (int i = 0; i < rows / 16; ++i)
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
        _Pragma("unroll") for (int half = 0; half < 2; ++half) {
          const unsigned pair[2] = {as_bits(sum[i][j][half * 2]), as_bits(sum[i][j][half * 2 + 1])};
          store_words(at + (i * 16 + half * 8) * pitch + j * 8, pair);
        }
  }
};

// ---- The same without tensor cores, for f64 and integers. Threads stand in a grid over the tile.
template <class T>
struct arithmetic { using type = T; };
template <>
struct arithmetic<int> { using type = unsigned; };  // wraps around
template <>
struct arithmetic<int64_t> { using type = uint64_t; };

template <class Value, class A, class B, class Tiling>
struct ThreadSums {
  using value = Value;
  using Number = typename arithmetic<Value>::type;
  using TileA = TileOf<A, Tiling::rows, Tiling::depth>;
  using TileB = TileOf<B, Tiling::columns, Tiling::depth>;
  static constexpr int across = 8 * Tiling::warp_columns, down = 4 * Tiling::warp_rows;
  static constexpr int rows = Tiling::rows / down, columns = Tiling::columns / across;
  static_assert(rows * down == Tiling::rows && columns * across == Tiling::columns);
  Number sum[rows][columns];

  KILN_MEMBER void clear() {
    _Pragma("unroll") for (auto& row : sum)
      _Pragma("unroll") for (Number& x : row) x = 0;
  }
  template <class Operand, class Tile>
  KILN_INLINE Number element(const char* tile, int line, int depth) {
    using Stored = typename Operand::stored;
    const int at = Operand::depth_inner ? Tile::element_at(line, depth)
                                        : Tile::element_at(depth, line);
    return static_cast<Number>(*reinterpret_cast<const Stored*>(tile + at));
  }
  KILN_MEMBER void multiply(const char* tile_a, const char* tile_b, int) {
    const int row = thread_index() / across, column = thread_index() % across;
    _Pragma("unroll 2") for (int depth = 0; depth < Tiling::depth; ++depth) {
      Number a[rows], b[columns];
      _Pragma("unroll") for (int i = 0; i < rows; ++i) a[i] =
          element<A, TileA>(tile_a, row + i * down, depth);
      _Pragma("unroll") for (int j = 0; j < columns; ++j) b[j] =
          element<B, TileB>(tile_b, column + j * across, depth);
      _Pragma("unroll") for (int i = 0; i < rows; ++i)
        _Pragma("unroll") for (int j = 0; j < columns; ++j) sum[i][j] += a[i] * b[j];
    }
  }
  KILN_MEMBER void stage(Value* staged, int pitch) const {
    const int row = thread_index() / across, column = thread_index() % across;
    _Pragma("unroll") for (int i = 0; i < rows; ++i)
      _Pragma("unroll") for (int j = 0; j < columns; ++j)
        staged[(row + i * down) * pitch + column + j * across] = static_cast<Value>(sum[i][j]);
  }
};

}  // namespace
