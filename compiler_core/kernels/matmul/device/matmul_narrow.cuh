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
//                   0: bytes of neighbours; common_zero: of weights of 4 bits, a zero of all, which is
//                   not among `zeroed`
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

// The same number, in a register: a byte permutation has room for one constant, its selector, and the
// assembler would move another into a register each time. No GPU has 2^24 multiprocessors, which it
// does not know.
KILN_INLINE unsigned in_register(unsigned x) {
#ifndef KILN_ON_HOST
  unsigned multiprocessors;
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(multiprocessors));
  x += multiprocessors >> 24;
#endif
  return x;
}

// The same number, of which the compiler knows that it is not negative: it divides by shifts.
KILN_INLINE int not_negative(int x) {
#ifndef KILN_ON_HOST
  __builtin_assume(x >= 0);
#endif
  return x;
}

// ---- Two halves a word. Sums are exact here: numbers below 256 of which the difference is a half.
struct WideBf16 {
  using Core = MmaBf16;
  const unsigned of_128 = in_register(0x43434343u), of_minus_128 = in_register(0xc3c3c3c3u);
  const unsigned of_words = in_register(0x43004300u), minus_128;
  // `zero`: what the smallest number of small ones stands for, below 128 in size.
  KILN_MEMBER explicit WideBf16(int zero) : minus_128(in_register(both(-128.0f - static_cast<float>(zero)))) {}
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
  // The lowest 4 bits of both halves of x, less the zero.
  KILN_MEMBER unsigned lowest(unsigned x) const { return sum((x & 0x000f000fu) | of_words, minus_128); }
  // Four signed bytes. The low 7 bits behind those of 128, and -128 or, of negative ones, -256.
  KILN_MEMBER void widen(unsigned (&wide)[2], unsigned x) const {
    const unsigned low = x & 0x7f7f7f7fu, sign = x & 0x80808080u;
    wide[0] = sum(below_bytes<0>(low, of_128), below_bytes<0>(sign, of_minus_128));
    wide[1] = sum(below_bytes<1>(low, of_128), below_bytes<1>(sign, of_minus_128));
  }
  // Four bytes below 128, less the zero.
  KILN_MEMBER void widen_small(unsigned (&wide)[2], unsigned x) const {
    wide[0] = sum(below_bytes<0>(x, of_128), minus_128);
    wide[1] = sum(below_bytes<1>(x, of_128), minus_128);
  }
};
struct WideF16 {
  using Core = MmaF16;
  const unsigned of_1024 = in_register(0x64646464u), minus_1152 = in_register(0xe480e480u);
  const unsigned of_words = in_register(0x64006400u), minus_1024;
  KILN_MEMBER explicit WideF16(int zero) : minus_1024(in_register(both(-1024.0f - static_cast<float>(zero)))) {}
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
  KILN_MEMBER unsigned lowest(unsigned x) const { return sum((x & 0x000f000fu) | of_words, minus_1024); }
  // Four signed bytes. All 8 bits, the sign turned, behind those of 1024, and -1152.
  KILN_MEMBER void widen(unsigned (&wide)[2], unsigned x) const {
    const unsigned turned = x ^ 0x80808080u;
    wide[0] = sum(below_bytes<0>(turned, of_1024), minus_1152);
    wide[1] = sum(below_bytes<1>(turned, of_1024), minus_1152);
  }
  KILN_MEMBER void widen_small(unsigned (&wide)[2], unsigned x) const {
    wide[0] = sum(below_bytes<0>(x, of_1024), minus_1024);
    wide[1] = sum(below_bytes<1>(x, of_1024), minus_1024);
  }
};

// The sums of one thread. Weights are the first operand of the tensor cores here, 16 columns of the
// product at a time, and rows of A the second, 8 at a time, so that what is widened need not be moved and
// few rows leave little of a fragment empty: sum[i][j][x] belongs to row i * 8 + row_of(...) and to column
// j * 16 + lane / 4 + x / 2 * 8.
//
// The depth is walked in an order of its own, the same for both operands: of 16, a lane multiplies the
// four that follow each other, as one word of B has them; of 32, the eight that a packed one has. ATen's
// words have them as the instruction does.
template <class Wide, class A, class B, class Tiling, class Weights, class Given>
struct NarrowSums {
  using Core = typename Wide::Core;
  using value = float;
  using TileA = TileOf<A, Tiling::rows, Tiling::depth>;
  using TilingB = InBytes<Tiling, Weights>;
  using TileB = TileOf<B, TilingB::columns, TilingB::depth>;
  static constexpr bool in_words = TilingB::in_words;
  static constexpr int rows = Tiling::rows / Tiling::warp_rows;
  static constexpr int columns = Tiling::columns / Tiling::warp_columns;
  static constexpr int eights = rows / 8, sixteens = columns / 16;
  static constexpr int group = Weights::group;
  static constexpr bool groups = group > 0 && (Weights::scaled || Weights::shifted);
  static constexpr bool offset = Weights::zeroed || !Weights::is_signed;
  // Unsigned ones are read as signed, and 128 is added with the zero; before it, where the sum of both
  // would have to be rounded.
  static constexpr bool moves_first = !Weights::is_signed && !Weights::whole_zeros;
  // So much of the depth is unrolled as leaves registers: the factors of one group at most, and little
  // where there are many sums.
  static constexpr int held = eights * sixteens * 4 * (groups ? 2 : 1);
  static constexpr int most = held >= 128 ? 32 : held >= 64 ? 64 : Tiling::depth;
  static constexpr int part_of_group = group > 0 && group < most ? group : most;
  static constexpr int unrolled = part_of_group < Tiling::depth ? part_of_group : Tiling::depth;
  static_assert(rows % 8 == 0 && columns % 16 == 0 && Tiling::depth % 32 == 0 && A::depth_inner &&
                B::depth_inner && (group == 0 || Tiling::depth % group == 0 || group % Tiling::depth == 0));
  // The factors of this lane's two columns of 16.
  struct ColumnFactors { float scale[2], zero[2], addend[2]; };
  const Wide halves{Weights::common_zero};
  const Given& factors;
  const int first_line;  // of B, of this warp
  float sum[eights][sixteens][4];
  float part[groups ? eights : 1][groups ? sixteens : 1][4];  // of the group
  float of_a[Weights::shifted ? eights : 1][4];  // sums of A's elements alone, of the group
  ColumnFactors current[sixteens], next[group > 0 ? sixteens : 1];
  unsigned negated_zero[sixteens][2];
  bool has_part = false;

  KILN_INLINE int first_row() { return thread_index() / 32 / Tiling::warp_columns * rows; }
  KILN_INLINE int first_column() { return thread_index() / 32 % Tiling::warp_columns * columns; }
  // The row of eight that column `i` of a fragment stands for: their bits in reverse, so that lanes which
  // load at once meet all banks.
  KILN_INLINE int row_of(int i) { return i % 2 * 4 + i / 2 % 2 * 2 + i / 4; }
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

  // Reads what the group that begins at `depth`, or lies around it, has.
  template <bool scales, bool zeros>
  KILN_MEMBER void read_factors(ColumnFactors* to, int from) {
    const int depth = not_negative(from);
    const int line = computed_anew(first_line + thread_index() % 32 / 4);
    _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
      _Pragma("unroll") for (int i = 0; i < 2; ++i) {
        const int at = not_negative(line + j * 16 + i * 8);
        if constexpr (scales && Weights::scaled) to[j].scale[i] = factors.scale(at, depth);
        if constexpr (scales && Weights::shifted) to[j].addend[i] = factors.addend(at, depth);
        if constexpr (zeros && Weights::zeroed) to[j].zero[i] = factors.zero(at, depth);
      }
  }
  // Reads the factors of the group around `depth`, the first of this block. One scale for all of the
  // depth is read when the sums are there.
  KILN_MEMBER void begin(int depth) {
    if constexpr (group > 0) {
      read_factors<groups, true>(next, depth);
    } else {
      read_factors<false, true>(current, depth);
      negate_zeros();
    }
  }
  // Takes the factors of the group around `depth`, and reads the next group's while this one is multiplied:
  // those of the last again, since a branch would wait for what it has read.
  KILN_MEMBER void take_factors(int depth) {
    if constexpr (group > 0) {
      _Pragma("unroll") for (int j = 0; j < sixteens; ++j) current[j] = next[j];
      read_factors<groups, true>(next, (not_negative(depth) / group + 1) * group);
      negate_zeros();
    }
  }
  KILN_MEMBER void negate_zeros() {
    if constexpr (offset) {
      _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
        _Pragma("unroll") for (int i = 0; i < 2; ++i) {
          float zero = Weights::is_signed || moves_first ? 0.0f : -128.0f;
          if constexpr (Weights::zeroed) zero += current[j].zero[i];
          negated_zero[j][i] = Wide::both(-zero);
        }
    }
  }
  // What sum `x` of matrix (i, j) is to have instead of `product`, where scales and addends are those of
  // what was multiplied.
  KILN_MEMBER float finished(float product, int i, int j, int x) {
    if constexpr (Weights::scaled) product *= current[j].scale[x / 2];
    if constexpr (Weights::shifted) product += of_a[i][x] * current[j].addend[x / 2];
    return product;
  }
  KILN_MEMBER void end_group() {
    if constexpr (groups) {
      _Pragma("unroll") for (int i = 0; i < eights; ++i)
        _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
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
    if (group > Tiling::depth && (is_first || from % divisor == 0)) take_factors(from);
    _Pragma("unroll 1") for (int first = 0; first < Tiling::depth; first += unrolled) {
      if (in_step && first % divisor == 0) take_factors(from + first);
      _Pragma("unroll") for (int depth = 0; depth < unrolled; depth += 32)
          multiply_32(tile_a, tile_b, first + depth);
      has_part = true;
      if (in_step && (first + unrolled) % divisor == 0) end_group();
    }
    if (group > Tiling::depth && (from + Tiling::depth) % divisor == 0) end_group();
  }
  // 32 of the depth, from `depth` of the step on.
  KILN_MEMBER void multiply_32(const char* tile_a, const char* tile_b, int depth) {
    typename Core::A weights[2][sixteens];
    _Pragma("unroll") for (int j = 0; j < sixteens; ++j) load_weights(weights, tile_b, depth, j);
    _Pragma("unroll") for (int i = 0; i < eights; ++i) {
      typename Core::B x[2];
      load_rows(x, tile_a, first_row() + i * 8, depth);
      _Pragma("unroll") for (int half = 0; half < 2; ++half) {
        _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
            Core::multiply(groups ? part[groups ? i : 0][groups ? j : 0] : sum[i][j], weights[half][j], x[half]);
        if constexpr (Weights::shifted) {
          typename Core::A ones;
          _Pragma("unroll") for (int w = 0; w < 4; ++w) ones.set(w, Wide::both(1));
          Core::multiply(of_a[i], ones, x[half]);
        }
      }
    }
  }
  // Loads the weights of the j-th 16 columns and widens them.
  KILN_MEMBER void load_weights(typename Core::A (&weights)[2][sixteens], const char* tile, int depth, int j) {
    const int lane = thread_index() % 32, line = first_column() + j * 16;
    if constexpr (in_words) {
      constexpr int of_lane = Weights::word_depth / 32;
      const int word = (depth / 32 / of_lane * 32 + lane) * of_lane + depth / 32 % of_lane;
      _Pragma("unroll") for (int upper = 0; upper < 2; ++upper) {
        const unsigned x =
            *reinterpret_cast<const unsigned*>(tile + TileB::element_at(line / 8 + upper, word * 4));
        _Pragma("unroll") for (int half = 0; half < 2; ++half) {
          const unsigned wide[2] = {halves.lowest(x >> half * 8), halves.lowest(x >> (half * 8 + 4))};
          place(weights[half][j], wide, j, upper);
        }
      }
    } else if constexpr (Weights::packed) {
      _Pragma("unroll") for (int upper = 0; upper < 2; ++upper) {
        const unsigned x = *reinterpret_cast<const unsigned*>(
            tile + TileB::element_at(line + upper * 8 + lane / 4, depth / 2 + lane % 4 * 4));
        unsigned wide[2];
        halves.widen_small(wide, taken_apart<0, Weights::high_first>(x));
        place(weights[0][j], wide, j, upper);
        halves.widen_small(wide, taken_apart<1, Weights::high_first>(x));
        place(weights[1][j], wide, j, upper);
      }
    } else {
      unsigned x[4];
      load_fragment<B, TileB, false>(x, tile, line, depth);
      _Pragma("unroll") for (int w = 0; w < 4; ++w) {
        unsigned wide[2];
        halves.widen(wide, Weights::is_signed ? x[w] : x[w] ^ 0x80808080u);
        place(weights[w % 2][j], wide, j, w / 2);
      }
    }
  }
  // Four of a column of the lower or the upper eight, less its zero.
  KILN_MEMBER void place(typename Core::A& to, const unsigned (&wide)[2], int j, int upper) {
    _Pragma("unroll") for (int w = 0; w < 2; ++w) {
      unsigned y = wide[w];
      if constexpr (moves_first) y = Wide::sum(y, Wide::both(128));
      if constexpr (offset) y = Wide::sum(y, negated_zero[j][upper]);
      to.set(upper + w * 2, y);
    }
  }
  // Loads this lane's part of eight rows from `row` on, 32 of the depth from `depth` on.
  KILN_MEMBER void load_rows(typename Core::B (&x)[2], const char* tile, int row, int depth) {
    const int lane = thread_index() % 32, line = row + row_of(lane / 4);
    if constexpr (in_words) {
      unsigned all[4];
      ldmatrix_x4(all, tile + TileA::chunk_at(row + row_of(lane % 8), depth / TileA::in_chunk + lane / 8));
      _Pragma("unroll") for (int w = 0; w < 4; ++w) x[w / 2].set(w % 2, all[w]);
    } else if constexpr (Weights::packed) {
      const auto all = *reinterpret_cast<const AlignedWords<4>*>(
          tile + TileA::element_at(line, depth + lane % 4 * 8));
      _Pragma("unroll") for (int w = 0; w < 4; ++w) x[w / 2].set(w % 2, all.word[w]);
    } else {
      _Pragma("unroll") for (int half = 0; half < 2; ++half) {
        const auto both = *reinterpret_cast<const AlignedWords<2>*>(
            tile + TileA::element_at(line, depth + half * 16 + lane % 4 * 4));
        _Pragma("unroll") for (int w = 0; w < 2; ++w) x[half].set(w, both.word[w]);
      }
    }
  }
  KILN_MEMBER void stage(float* staged, int pitch) {
    if (has_part) end_group();
    if constexpr (!groups) read_factors<true, false>(current, 0);
    const int lane = thread_index() % 32;
    _Pragma("unroll") for (int i = 0; i < eights; ++i)
      _Pragma("unroll") for (int j = 0; j < sixteens; ++j)
        _Pragma("unroll") for (int x = 0; x < 4; ++x) {
          const int row = first_row() + i * 8 + row_of(lane % 4 * 2 + x % 2);
          const int column = first_column() + j * 16 + lane / 4 + x / 2 * 8;
          staged[row * pitch + column] = groups ? sum[i][j][x] : finished(sum[i][j][x], i, j, x);
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
  sums.begin(begin * depth);
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
