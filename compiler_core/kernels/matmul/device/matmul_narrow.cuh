// A block's tile of a product of halves (A) with weights (B) that lie in memory in 8 bits, or two in a
// byte, along the depth. They stay so in shared memory: a warp widens what it multiplies in registers,
// which loses nothing. A weight stands for (q - zero) * scale + addend: zero is subtracted there, and
// the sums of a group of the depth are multiplied by its scale before they join the others, with the
// addend times the sum of A's elements. Stages and barriers are matmul.cuh's.
//
// The generated source defines behind it, where weights stand for other numbers,
//   struct Weights  group: the elements of the depth, a multiple of 32, that one scale and one zero are
//                   for; 0: all of them; scaled, zeroed, shifted: whether there are any, or addends;
//                   whole_zeros: they are integers; is_signed; packed: of 4 bits, high_first: the first
//                   one in the upper half of a byte; word_depth: that of ATen's words (plan/four_bits.h),
//                   0: bytes of neighbours
namespace {

// The functions (line, depth) that give a scale, a zero and an addend.
template <class Scale, class Zero, class Addend>
struct Factors {
  const Scale& scale;
  const Zero& zero;
  const Addend& addend;
};

// The tile of weights as one of bytes; in words, 8 columns are one line.
template <class Tiling, class Weights>
struct InBytes : Tiling {
  static constexpr bool in_words = Weights::word_depth > 0;
  static constexpr int columns = in_words ? Tiling::columns / 8 : Tiling::columns;
  static constexpr int depth = in_words ? Tiling::depth * 4 : Tiling::depth / (Weights::packed ? 2 : 1);
};

// Bytes 0 and 1 of x, or 2 and 3, each below a byte of `high`, of which all four are alike.
template <int upper>
KILN_INLINE unsigned below_bytes(unsigned x, unsigned high) {
#ifndef KILN_ON_HOST
  return __byte_perm(x, high, upper ? 0x4342 : 0x4140);
#else
  const unsigned pair = upper ? x >> 16 : x;
  return (pair & 0xffu) | (pair & 0xff00u) << 8 | (high & 0xff00ff00u);
#endif
}

// Bytes 0 and 1 of x and of y, or 2 and 3, in turns.
template <int upper>
KILN_INLINE unsigned in_turns(unsigned x, unsigned y) {
#ifndef KILN_ON_HOST
  return __byte_perm(x, y, upper ? 0x7362 : 0x5140);
#else
  const unsigned a = upper ? x >> 16 : x, b = upper ? y >> 16 : y;
  return (a & 0xffu) | (b & 0xffu) << 8 | (a & 0xff00u) << 8 | (b & 0xff00u) << 16;
#endif
}
// The values of bytes 0 and 1 of x, which has two in each byte, or those of bytes 2 and 3.
template <int upper, bool high_first>
KILN_INLINE unsigned taken_apart(unsigned x) {
  const unsigned low = x & 0x0f0f0f0fu, high = x >> 4 & 0x0f0f0f0fu;
  return high_first ? in_turns<upper>(high, low) : in_turns<upper>(low, high);
}

// The same number, of which the compiler knows nothing: what is computed from it is not kept in registers
// from one use to the next.
KILN_INLINE int computed_anew(int x) {
#ifndef KILN_ON_HOST
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// ---- Two halves a word. Sums are exact here: numbers below 256 of which the difference is a half.
struct WideBf16 {
  using Core = MmaBf16;
#ifndef KILN_ON_HOST
  KILN_INLINE unsigned sum(unsigned x, unsigned y) {
    unsigned z;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(0x3f803f80u), "r"(y));
    return z;
  }
#else
  KILN_INLINE unsigned sum(unsigned x, unsigned y) {
    return pack_bf16(as_float(x << 16) + as_float(y << 16),
                     as_float(x & 0xffff0000u) + as_float(y & 0xffff0000u));
  }
#endif
  KILN_INLINE unsigned both(float x) { return pack_bf16(x, x); }
  // The lowest 4 bits of both halves of x.
  KILN_INLINE unsigned lowest(unsigned x) { return sum((x & 0x000f000fu) | 0x43004300u, 0xc300c300u); }
  // Four signed bytes. The low 7 bits behind those of 128, and -128 or, of negative ones, -256.
  KILN_INLINE void widen(unsigned (&wide)[2], unsigned x) {
    const unsigned low = x & 0x7f7f7f7fu, sign = x & 0x80808080u;
    wide[0] = sum(below_bytes<0>(low, 0x43434343u), below_bytes<0>(sign, 0xc3c3c3c3u));
    wide[1] = sum(below_bytes<1>(low, 0x43434343u), below_bytes<1>(sign, 0xc3c3c3c3u));
  }
};
struct WideF16 {
  using Core = MmaF16;
#ifndef KILN_ON_HOST
  KILN_INLINE unsigned sum(unsigned x, unsigned y) {
    unsigned z;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(0x3c003c00u), "r"(y));
    return z;
  }
#else
  KILN_INLINE unsigned sum(unsigned x, unsigned y) {
    const auto low = [](unsigned word) { return f16_to_f32(static_cast<unsigned short>(word)); };
    return pack_f16(low(x) + low(y), low(x >> 16) + low(y >> 16));
  }
#endif
  KILN_INLINE unsigned both(float x) { return pack_f16(x, x); }
  KILN_INLINE unsigned lowest(unsigned x) { return sum((x & 0x000f000fu) | 0x64006400u, 0xe400e400u); }
  // Four signed bytes. All 8 bits, the sign turned, behind those of 1024, and -1152.
  KILN_INLINE void widen(unsigned (&wide)[2], unsigned x) {
    const unsigned turned = x ^ 0x80808080u;
    wide[0] = sum(below_bytes<0>(turned, 0x64646464u), 0xe480e480u);
    wide[1] = sum(below_bytes<1>(turned, 0x64646464u), 0xe480e480u);
  }
};

// The sums of one thread.
//
// The depth is walked in an order of its own, the same for both operands: of 16, a lane multiplies the
// four that follow each other, as one word of B has them; of 32, the eight that a packed one has. ATen's
// words have them as the instruction does.
template <class Wide, class A, class B, class Tiling, class Weights, class Given>
struct NarrowSums {
  using value = float;
  using TileA = TileOf<A, Tiling::rows, Tiling::depth>;
  using TilingB = InBytes<Tiling, Weights>;
  using TileB = TileOf<B, TilingB::columns, TilingB::depth>;
  static constexpr bool in_words = TilingB::in_words;
  static constexpr int rows = Tiling::rows / Tiling::warp_rows;
  static constexpr int columns = Tiling::columns / Tiling::warp_columns;
  static constexpr int group = Weights::group;
  static constexpr bool groups = group > 0 && (Weights::scaled || Weights::shifted);
  static constexpr bool offset = Weights::zeroed || !Weights::is_signed;
  // Unsigned ones are read as signed, and 128 is added with the zero; before it, where the sum of both
  // would have to be rounded.
  static constexpr bool moves_first = !Weights::is_signed && !Weights::whole_zeros;
  // So much of the depth is unrolled as leaves registers: the factors of one group at most, and little
  // where there are many sums.
  static constexpr int held = rows / 16 * (columns / 8) * 4 * (groups ? 2 : 1);
  static constexpr int most = held >= 128 ? 32 : held >= 64 ? 64 : Tiling::depth;
  static constexpr int part_of_group = group > 0 && group < most ? group : most;
  static constexpr int unrolled = part_of_group < Tiling::depth ? part_of_group : Tiling::depth;
  static_assert(rows % 16 == 0 && columns % 16 == 0 && Tiling::depth % 32 == 0 && A::depth_inner &&
                B::depth_inner && (group == 0 || Tiling::depth % group == 0 || group % Tiling::depth == 0));
  const Given& factors;
  const int first_line;  // of B, of this warp
  float sum[rows / 16][columns / 8][4];
  float part[groups ? rows / 16 : 1][groups ? columns / 8 : 1][4];  // of the group
  float of_a[Weights::shifted ? rows / 16 : 1][4];  // sums of A's elements alone, of the group
  float scale[columns / 8][2], addend[Weights::shifted ? columns / 8 : 1][2];
  unsigned negated_zero[columns / 8];
  bool has_part = false;

  KILN_INLINE int first_row() { return thread_index() / 32 / Tiling::warp_columns * rows; }
  KILN_INLINE int first_column() { return thread_index() / 32 % Tiling::warp_columns * columns; }
  KILN_MEMBER NarrowSums(const Given& f, int column) : factors(f), first_line(column + first_column()) {
    clear(sum);
    clear(part);
    clear_sums_of_a();
  }
  KILN_MEMBER void clear_sums_of_a() {
    _Pragma("unroll") for (auto& row : of_a)
      _Pragma("unroll") for (float& x : row) x = 0;
  }
  template <int m, int n>
  KILN_INLINE void clear(float (&x)[m][n][4]) {
    _Pragma("unroll") for (auto& row : x)
      _Pragma("unroll") for (auto& matrix : row)
        _Pragma("unroll") for (float& y : matrix) y = 0;
  }

  // Loads the scales and zeros of the group that begins at `depth`, or lies around it. One scale for all
  // of the depth is loaded when the sums are there.
  KILN_MEMBER void load_factors(int depth) {
    if constexpr (groups) load_scales(depth);
    if constexpr (offset) {
      const int line = computed_anew(first_line + thread_index() % 32 / 4);
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j) {
        float zero = Weights::is_signed || moves_first ? 0.0f : -128.0f;
        if constexpr (Weights::zeroed) zero += factors.zero(line + j * 8, depth);
        negated_zero[j] = Wide::both(-zero);
      }
    }
  }
  KILN_MEMBER void load_scales(int depth) {
    const int line = computed_anew(first_line + thread_index() % 4 * 2);
    _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
      _Pragma("unroll") for (int i = 0; i < 2; ++i) {
        scale[j][i] = factors.scale(line + j * 8 + i, depth);
        if constexpr (Weights::shifted) addend[j][i] = factors.addend(line + j * 8 + i, depth);
      }
  }
  // What sum `x` of matrix (i, j) is to have instead of `product`, where scales and addends are those of
  // what was multiplied.
  KILN_MEMBER float finished(float product, int i, int j, int x) {
    if constexpr (Weights::scaled) product *= scale[j][x % 2];
    if constexpr (Weights::shifted) product += of_a[i][x] * addend[j][x % 2];
    return product;
  }
  KILN_MEMBER void end_group() {
    if constexpr (groups) {
      _Pragma("unroll") for (int i = 0; i < rows / 16; ++i)
        _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
          _Pragma("unroll") for (int x = 0; x < 4; ++x) sum[i][j][x] += finished(part[i][j][x], i, j, x);
      clear(part);
      clear_sums_of_a();
      has_part = false;
    }
  }
  // The step of the depth that begins at `from`.
  KILN_MEMBER void multiply(const char* tile_a, const char* tile_b, int from, bool is_first) {
    constexpr bool in_step = group > 0 && group <= Tiling::depth;
    constexpr int divisor = group > 0 ? group : 1;
    if (is_first || (group > Tiling::depth && from % divisor == 0)) load_factors(from);
    _Pragma("unroll 1") for (int first = 0; first < Tiling::depth; first += unrolled) {
      if (in_step && first % divisor == 0 && !(is_first && first == 0)) load_factors(from + first);
      _Pragma("unroll") for (int depth = 0; depth < unrolled; depth += 32)
          multiply_32(tile_a, tile_b, first + depth);
      has_part = true;
      if (in_step && (first + unrolled) % divisor == 0) end_group();
    }
    if (group > Tiling::depth && (from + Tiling::depth) % divisor == 0) end_group();
  }
  // 32 of the depth, from `depth` of the step on.
  KILN_MEMBER void multiply_32(const char* tile_a, const char* tile_b, int depth) {
    if constexpr (in_words) {
      multiply_words(tile_a, tile_b, depth);
    } else if constexpr (Weights::packed) {
      const int lane = thread_index() % 32;
      unsigned x[columns / 8], b[columns / 8][2];
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j) x[j] = *reinterpret_cast<const unsigned*>(
          tile_b + TileB::element_at(first_column() + j * 8 + lane / 4, depth / 2 + lane % 4 * 4));
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
          widen(b[j], taken_apart<0, Weights::high_first>(x[j]), j);
      multiply_16(tile_a, depth + lane % 4 * 8, b);
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
          widen(b[j], taken_apart<1, Weights::high_first>(x[j]), j);
      multiply_16(tile_a, depth + lane % 4 * 8 + 4, b);
    } else {
      unsigned b[2][columns / 8][2];
      _Pragma("unroll") for (int j = 0; j < columns / 8; j += 2) {
        unsigned x[4];
        load_fragment<B, TileB, false>(x, tile_b, first_column() + j * 8, depth);
        _Pragma("unroll") for (int w = 0; w < 4; ++w)
            widen(b[w % 2][j + w / 2], Weights::is_signed ? x[w] : x[w] ^ 0x80808080u, j + w / 2);
      }
      _Pragma("unroll") for (int half = 0; half < 2; ++half)
          multiply_16(tile_a, depth + half * 16 + thread_index() % 4 * 4, b[half]);
    }
  }
  KILN_MEMBER void multiply_words(const char* tile_a, const char* tile_b, int depth) {
    constexpr int of_lane = Weights::word_depth / 32;
    const int word = (depth / 32 / of_lane * 32 + thread_index() % 32) * of_lane + depth / 32 % of_lane;
    unsigned x[columns / 8];
    _Pragma("unroll") for (int j = 0; j < columns / 8; ++j) x[j] = *reinterpret_cast<const unsigned*>(
        tile_b + TileB::element_at(first_column() / 8 + j, word * 4));
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      unsigned b[columns / 8][2];
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
        _Pragma("unroll") for (int w = 0; w < 2; ++w) {
          b[j][w] = Wide::lowest(x[j] >> (half * 8 + w * 4));
          if constexpr (offset) b[j][w] = Wide::sum(b[j][w], negated_zero[j]);
        }
      multiply_16(tile_a, depth + half * 16, b);
    }
  }
  // Four signed bytes of a column of the j-th eight, less its zero.
  KILN_MEMBER void widen(unsigned (&wide)[2], unsigned bytes, int j) {
    Wide::widen(wide, bytes);
    _Pragma("unroll") for (unsigned& y : wide) {
      if constexpr (moves_first) y = Wide::sum(y, Wide::both(128));
      if constexpr (offset) y = Wide::sum(y, negated_zero[j]);
    }
  }
  // 16 of the depth, of which this lane has the four from `depth` on; of words, those from there on as the
  // instruction has them.
  KILN_MEMBER void multiply_16(const char* tile_a, int depth, const unsigned (&b)[columns / 8][2]) {
    _Pragma("unroll") for (int i = 0; i < rows / 16; ++i) {
      unsigned a[4];
      if constexpr (in_words)
        load_fragment<A, TileA, true>(a, tile_a, first_row() + i * 16, depth);
      else
        load_rows(a, tile_a, first_row() + i * 16, depth);
      const auto rows_of_a = word_of<typename Wide::Core::A>(a);
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
        Wide::Core::multiply(groups ? part[groups ? i : 0][groups ? j : 0] : sum[i][j], rows_of_a,
                             word_of<typename Wide::Core::B>(b[j]));
      if constexpr (Weights::shifted) {
        const unsigned ones[2] = {Wide::both(1), Wide::both(1)};
        Wide::Core::multiply(of_a[i], rows_of_a, word_of<typename Wide::Core::B>(ones));
      }
    }
  }
  template <class Fragment, int words>
  KILN_INLINE Fragment word_of(const unsigned (&x)[words]) {
    Fragment y;
    _Pragma("unroll") for (int w = 0; w < words; ++w) y.set(w, x[w]);
    return y;
  }
  // 16 rows of A from `row` on: of each of two that are this lane's, four of the depth from `depth` on.
  KILN_INLINE void load_rows(unsigned (&x)[4], const char* tile, int row, int depth) {
    const int lane = thread_index() % 32;
    // One by one: two that come together would have to be moved apart.
    _Pragma("unroll") for (int half = 0; half < 2; ++half)
      _Pragma("unroll") for (int word = 0; word < 2; ++word) x[half + word * 2] =
          *reinterpret_cast<const volatile unsigned*>(
              tile + TileA::element_at(row + lane / 4 + half * 8, depth) + word * 4);
  }
  KILN_MEMBER void stage(float* staged, int pitch) {
    if (has_part) end_group();
    if constexpr ((Weights::scaled || Weights::shifted) && !groups) load_scales(0);
    const int lane = thread_index() % 32;
    float* at = staged + (first_row() + lane / 4) * pitch + first_column() + lane % 4 * 2;
    _Pragma("unroll") for (int i = 0; i < rows / 16; ++i)
      _Pragma("unroll") for (int j = 0; j < columns / 8; ++j)
        _Pragma("unroll") for (int half = 0; half < 2; ++half) {
          float pair[2] = {sum[i][j][half * 2], sum[i][j][half * 2 + 1]};
          if constexpr (!groups) {
            pair[0] = finished(pair[0], i, j, half * 2);
            pair[1] = finished(pair[1], i, j, half * 2 + 1);
          }
          const unsigned bits[2] = {as_bits(pair[0]), as_bits(pair[1])};
          store_words(at + (i * 16 + half * 8) * pitch + j * 8, bits);
        }
  }
};

// As multiply_tile().
template <class Wide, class A, class B, class Tiling, class Weights, class Given>
KILN_INLINE void multiply_narrow_tile(const typename A::stored* a, const typename B::stored* b, int row,
                                      int column, int begin, int end, char* shared,
                                      const Given& factors) {
  using Sums = NarrowSums<Wide, A, B, Tiling, Weights, Given>;
  constexpr int stages = Tiling::stages, depth = Tiling::depth;
  constexpr int a_bytes = Sums::TileA::bytes, stage_bytes = a_bytes + Sums::TileB::bytes;
  Loader<A, Tiling, Tiling::rows> of_a;
  using TilingB = typename Sums::TilingB;
  Loader<B, TilingB, TilingB::columns> of_b;
  const auto fetch = [&](int step, char* tile) {
    of_a.fetch(a, row, step * depth, tile);
    of_b.fetch(b, column / (Tiling::columns / TilingB::columns), step * TilingB::depth, tile + a_bytes);
  };
  Sums sums(factors, column);
  _Pragma("unroll 1") for (int step = 0; step < stages - 1; ++step) {
    if (begin + step < end) {
      fetch(begin + step, shared + step * stage_bytes);
      of_a.keep(shared + step * stage_bytes);
    }
    cp_async_commit();
  }
  int stage = 0;
  char* next_tile = shared + (stages - 1) * stage_bytes;
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    cp_async_wait<stages - 2>();
    block_barrier();
    const int next = step + stages - 1;
    if (next < end) fetch(next, next_tile);
    cp_async_commit();
    char* tile = shared + stage * stage_bytes;
    sums.multiply(tile, tile + a_bytes, step * depth, step == begin);
    if (next < end) of_a.keep(next_tile);
    next_tile = tile;
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  cp_async_wait<0>();
  block_barrier();  // nobody reads the operands any more
  sums.stage(reinterpret_cast<float*>(shared), Staging<Tiling>::pitch);
  block_barrier();
}

}  // namespace
