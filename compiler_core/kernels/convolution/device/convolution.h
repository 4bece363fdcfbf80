// Convolution with an elementwise epilogue, as one matrix product for each image and group of
// channels (implicit GEMM): weights [m, k] times windows [k, n]. It stands behind matmul.h, which
// packs the weights and keeps the tiles; b there is not read. In front of both the generated source
// defines
//
//   struct Problem   as for a matmul
//   struct Tiling    as for a matmul, and a_packed: weights are read from panels, else in place;
//                    weight: their type; tiles: how many of a block wait for more depth
//   struct Geometry  channels, positions (of the result), and with one entry for each of three
//                    spatial axes: in, out, window, stride, dilation, low (zeros before x), field
//                    (x with the zeros that windows reach); x_channel, x_at, w_channel, w_at:
//                    strides of x and of the weight
//   struct Source    where windows are read from: type stored, strides channel and at[3]
//
// Values known at the call only are members of theirs, all others static constants.
//
// Windows are read from x itself when none of them reaches beyond it; otherwise from a copy of x
// with its zeros, converted. Two ways to multiply: multiply_windows() gathers a block's windows
// into panels first, which suits every shape; slide_block() reads vectors of x as they lie, which
// suits long rows and few results a position.
namespace {

using Field = Source::stored;

template <class T, class Live>
KILN_INLINE Real load_along(int64_t step, const T* p, Live live) {
  return step == 1 ? load(p, live) : load_strided(p, step, live);
}

// ---- Packing ----

// One panel of weights that are no matrix: its axes are walked one by one.
KILN_INLINE void pack_weight_panel(const Stored* from, int64_t live, Value* panel) {
  for (int64_t c = 0; c < Geometry::channels; ++c)
    for (int64_t d = 0; d < Geometry::window[0]; ++d)
      for (int64_t h = 0; h < Geometry::window[1]; ++h)
        for (int64_t w = 0; w < Geometry::window[2]; ++w, panel += Tiling::rows) {
          const Stored* at = from + c * Geometry::w_channel + d * Geometry::w_at[0] +
                             h * Geometry::w_at[1] + w * Geometry::w_at[2];
          for (int64_t r = 0; r < Tiling::rows; ++r)
            panel[r] = r < live ? load_splat(at + r * Problem::a_row)[0] : Value{};
        }
}

KILN_INLINE void fill_zeros(Value* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = Value{};
}

// ---- Multiplying ----

// How weights are walked: from row to row of a tile, and along the depth.
struct Weights {
  using stored = Tiling::weight;
  static constexpr int64_t row = Tiling::a_packed ? 1 : Problem::a_row;
  static constexpr int64_t depth = Tiling::a_packed ? Tiling::rows : Problem::a_depth;
  // The tile that begins at `row`.
  KILN_INLINE const stored* at(const stored* weights, int64_t from_row) {
    return weights + from_row * (Tiling::a_packed ? Problem::k : Problem::a_row);
  }
};

template <int VECTORS>
KILN_INLINE void add_products(const Weights::stored* a, const Real (&y)[VECTORS],
                              Real (&sums)[Tiling::rows][VECTORS]) {
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::rows; ++r) {
    const Real x = a[r * Weights::row] - Real{};  // a splat, as in matmul.h
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) sums[r][v] += x * y[v];
  }
}

// The sums of one run of products (matmul.h), to those of the runs before it.
template <int VECTORS>
KILN_INLINE void store_tile(const Real (&sums)[Tiling::rows][VECTORS], bool first, Value* tile) {
#pragma GCC unroll 32
  for (int r = 0; r < Tiling::rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      Value* const to = tile + r * Tiling::columns + v * LANES;
      store(to, first ? sums[r][v] : load(to, AllLanes{}) + sums[r][v], AllLanes{});
    }
}

// Walks the depth: channels and the places of the window.
struct DepthWalk {
  int64_t c, d, h, w;
  KILN_INLINE DepthWalk from(int64_t depth) {
    constexpr int64_t width = Geometry::window[2], plane = Geometry::window[1] * width,
                      all = Geometry::window[0] * plane;
    return {depth / all, depth / plane % Geometry::window[0], depth / width % Geometry::window[1],
            depth % width};
  }
  __attribute__((always_inline)) void advance() {
    if (++w < Geometry::window[2]) return;
    w = 0;
    if (++h < Geometry::window[1]) return;
    h = 0;
    if (++d < Geometry::window[0]) return;
    d = 0;
    ++c;
  }
};

KILN_INLINE void multiply_panel(const Weights::stored* a, const Value* b, int64_t depth, bool first,
                                Value* tile) {
  constexpr int VECTORS = Tiling::columns / LANES;
  int64_t p = 0;
  do {  // once at least
    Real sums[Tiling::rows][VECTORS] = {};
    const int64_t end = smaller(p + kRun, depth);
    const bool is_first = first && p == 0;
    for (; p < end; ++p, a += Weights::depth, b += Tiling::columns) {
      Real y[VECTORS];
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) y[v] = load(b + v * LANES, AllLanes{});
      add_products(a, y, sums);
    }
    store_tile(sums, is_first, tile);
  } while (p < depth);
}

// A block's part: results [row_begin, row_end) at positions [column_begin, column_end).
struct Block {
  int64_t batch, row_begin, row_end, column_begin, column_end;
};

template <class Epilogue>
KILN_INLINE void finish_tile(const Value* tile, const Block& block, int64_t row, int64_t column,
                             int64_t columns, const Epilogue& epilogue) {
  for (int64_t r = 0; r < smaller(block.row_end - row, Tiling::rows); ++r) {
    const Value* results = tile + r * Tiling::columns;
    int64_t done = 0;
    for (; done + LANES <= columns; done += LANES)
      epilogue(load(results + done, AllLanes{}), block.batch, row + r, column + done, AllLanes{});
    if (done < columns)
      epilogue(load(results + done, AllLanes{}), block.batch, row + r, column + done,
               SomeLanes{columns - done});
  }
}

// Images of one geometry, and what is computed from them.
struct Images : Geometry, Source {
  // One row of x, from its place 0, to a row of the field.
  __attribute__((always_inline)) void copy_row(const Stored* from, Value* to) const {
    const int64_t low = smaller(Geometry::low[2], Geometry::field[2]);
    const int64_t end = smaller(Geometry::low[2] + Geometry::in[2], Geometry::field[2]);
    fill_zeros(to, low);
    int64_t i = low;
    for (; i + LANES <= end; i += LANES)
      store(to + i, load_along(Geometry::x_at[2], from + (i - low) * Geometry::x_at[2], AllLanes{}),
            AllLanes{});
    if (i < end) {
      const SomeLanes live{end - i};
      store(to + i, load_along(Geometry::x_at[2], from + (i - low) * Geometry::x_at[2], live),
            live);
    }
    fill_zeros(to + end, Geometry::field[2] - end);
  }

  // One channel of x with its zeros.
  __attribute__((always_inline)) void copy_field(const Stored* from, Value* to) const {
    for (int64_t d = 0; d < Geometry::field[0]; ++d)
      for (int64_t h = 0; h < Geometry::field[1]; ++h, to += Geometry::field[2]) {
        const int64_t x_d = d - Geometry::low[0], x_h = h - Geometry::low[1];
        if (x_d < 0 || x_d >= Geometry::in[0] || x_h < 0 || x_h >= Geometry::in[1])
          fill_zeros(to, Geometry::field[2]);
        else
          copy_row(from + x_d * Geometry::x_at[0] + x_h * Geometry::x_at[1], to);
      }
  }

  // Where position `position` of the result reads its window from.
  __attribute__((always_inline)) int64_t window_at(int64_t position) const {
    const int64_t w = position % Geometry::out[2],
                  h = position / Geometry::out[2] % Geometry::out[1],
                  d = position / (Geometry::out[2] * Geometry::out[1]);
    return d * Geometry::stride[0] * Source::at[0] + h * Geometry::stride[1] * Source::at[1] +
           w * Geometry::stride[2] * Source::at[2];
  }

  // From the window's place 0 of channel 0 on.
  __attribute__((always_inline)) int64_t offset(const DepthWalk& walk) const {
    return walk.c * Source::channel + walk.d * Geometry::dilation[0] * Source::at[0] +
           walk.h * Geometry::dilation[1] * Source::at[1] +
           walk.w * Geometry::dilation[2] * Source::at[2];
  }

  // The windows of Tiling::columns positions, `depth` deep from `p` on, as a panel. Positions that
  // do not exist repeat the last one.
  __attribute__((always_inline)) void pack_windows(const Field* x, int64_t column, int64_t p,
                                                   int64_t depth, Value* panel) const {
    constexpr int64_t vectors = Tiling::columns / LANES;
    int64_t place[Tiling::columns];
    bool together[vectors];
    for (int64_t i = 0; i < Tiling::columns; ++i)
      place[i] = window_at(smaller(column + i, Geometry::positions - 1));
    // Each step is looked at: a broken row and a repeated end can add up to LANES - 1.
    for (int64_t v = 0; v < vectors; ++v) {
      together[v] = true;
      for (int64_t i = v * LANES + 1; i < v * LANES + LANES; ++i)
        together[v] = together[v] && place[i] == place[i - 1] + 1;
    }
    DepthWalk walk = DepthWalk::from(p);
    for (int64_t i = 0; i < depth; ++i, panel += Tiling::columns, walk.advance()) {
      const Field* from = x + offset(walk);
#pragma GCC unroll 8
      for (int64_t v = 0; v < vectors; ++v) {
        const int64_t* at = place + v * LANES;
        const Real y = together[v]
                           ? load(from + at[0], AllLanes{})
                           : load_each(
                                 from, [at](int l) KILN_LAMBDA { return at[l]; }, AllLanes{});
        store(panel + v * LANES, y, AllLanes{});
      }
    }
  }

  template <class Epilogue>
  __attribute__((always_inline)) void multiply_windows(const Weights::stored* weights,
                                                       const Field* x, const Block& block,
                                                       Value* scratch,
                                                       const Epilogue& epilogue) const {
    constexpr int64_t MR = Tiling::rows, NR = Tiling::columns;
    Value* const slab = scratch + Tiling::tiles * Tiling::rows * Tiling::columns;
    for (int64_t p = 0; p < Problem::k; p += Tiling::depth) {
      const int64_t depth = smaller(Problem::k - p, Tiling::depth);
      Value* panel = slab;
      for (int64_t column = block.column_begin; column < block.column_end; column += NR) {
        pack_windows(x, column, p, depth, panel);
        panel += NR * Tiling::depth;
      }
      Value* tile = scratch;
      panel = slab;
      for (int64_t column = block.column_begin; column < block.column_end; column += NR) {
        for (int64_t row = block.row_begin; row < block.row_end; row += MR) {
          multiply_panel(Weights::at(weights, row) + p * Weights::depth, panel, depth, p == 0,
                         tile);
          if (p + Tiling::depth >= Problem::k)
            finish_tile(tile, block, row, column, smaller(block.column_end - column, NR), epilogue);
          if (Tiling::tiles > 1) tile += MR * NR;
        }
        panel += NR * Tiling::depth;
      }
    }
  }

  // The sums of a tile whose positions lie in one row of the result, the first of which reads at x.
  template <int VECTORS, class Live>
  __attribute__((always_inline)) void slide(const Weights::stored* a, const Field* x, Live live,
                                            Value* tile) const {
    const int64_t step = Geometry::stride[2] * Source::at[2];
    constexpr int64_t window = Geometry::window[0] * Geometry::window[1] * Geometry::window[2],
                      run = window < kRun ? kRun / window : 1;  // of channels
    int64_t c = 0;
    do {
      Real sums[Tiling::rows][VECTORS] = {};
      const bool first = c == 0;
      for (const int64_t end = smaller(c + run, Geometry::channels); c < end; ++c)
        for (int64_t d = 0; d < Geometry::window[0]; ++d)
          for (int64_t h = 0; h < Geometry::window[1]; ++h) {
            const Field* from = x + c * Source::channel +
                                d * Geometry::dilation[0] * Source::at[0] +
                                h * Geometry::dilation[1] * Source::at[1];
#pragma GCC unroll 4
            for (int64_t w = 0; w < Geometry::window[2]; ++w, a += Weights::depth) {
              Real y[VECTORS];
#pragma GCC unroll 8
              for (int v = 0; v < VECTORS; ++v)
                y[v] = load_along(
                    step, from + w * Geometry::dilation[2] * Source::at[2] + v * LANES * step,
                    live);
              add_products(a, y, sums);
            }
          }
      store_tile(sums, first, tile);
    } while (c < Geometry::channels);
  }

  // Whole rows of positions only. The field may be read in vectors past its end; x may not.
  template <class Epilogue>
  __attribute__((always_inline)) void slide_block(const Weights::stored* weights, const Field* x,
                                                  const Block& block, Value* tile,
                                                  const Epilogue& epilogue) const {
    constexpr int64_t NR = Tiling::columns;
    const int64_t step = Geometry::stride[2] * Source::at[2];
    for (int64_t row = block.row_begin; row < block.row_end; row += Tiling::rows)
      for (int64_t line = block.column_begin; line < block.column_end; line += Geometry::out[2]) {
        const Weights::stored* a = Weights::at(weights, row);
        const Field* from = x + window_at(line);
        int64_t w = 0;
        for (; w + NR <= Geometry::out[2]; w += NR) {
          slide<NR / LANES>(a, from + w * step, AllLanes{}, tile);
          finish_tile(tile, block, row, line + w, NR, epilogue);
        }
        if (Geometry::out[2] % NR != 0) {
          const int64_t end = w + (Geometry::out[2] - w) / LANES * LANES;
          for (; w < end; w += LANES) {
            slide<1>(a, from + w * step, AllLanes{}, tile);
            finish_tile(tile, block, row, line + w, LANES, epilogue);
          }
        }
        if (Geometry::out[2] % LANES != 0) {
          const SomeLanes live{Geometry::out[2] % LANES};
          if constexpr (Source::padded)
            slide<1>(a, from + w * step, AllLanes{}, tile);
          else
            slide<1>(a, from + w * step, live, tile);
          finish_tile(tile, block, row, line + w, live.count, epilogue);
        }
      }
  }
};

}  // namespace
