// The reference's kernels for the ops that are more than a loop over elements, as ir/oracle_ops.cc has
// them on the host. Stands behind reference.cuh.
namespace {

// `shape`: channels of x, of a group of it, and of the result, the result's channels of a group;
// then three numbers each, for the spatial axes: x's sizes, the window's, the result's, stride,
// dilation, zeros before. A thread computes one element.
template <class T>
KILN_INLINE void convolution(const T* x, const T* w, T* out, const i64* shape, i64 count, i64 dtype,
                             i64 high, i64 threads) {
  const i64 channels = shape[0], group = shape[1], outputs = shape[2], group_outputs = shape[3];
  const i64 *in = shape + 4, *window = in + 3, *size = window + 3;
  const i64 *stride = size + 3, *dilation = stride + 3, *low = dilation + 3;
  const i64 taps = window[0] * window[1] * window[2];
  for (i64 i = self_index(); i < count; i += threads) {
    const i64 place[3] = {i / (size[1] * size[2]) % size[0], i / size[2] % size[1], i % size[2]};
    const i64 o = i / (size[0] * size[1] * size[2]) % outputs;
    const i64 n = i / (size[0] * size[1] * size[2]) / outputs;
    T sum = 0;
    for (i64 c = 0; c < group; ++c)
      for (i64 q = 0; q < taps; ++q) {
        const i64 tap[3] = {q / (window[1] * window[2]), q / window[2] % window[1], q % window[2]};
        i64 from = n * channels + o / group_outputs * group + c;
        bool inside = true;
        for (int k = 0; k < 3; ++k) {
          const i64 at = place[k] * stride[k] - low[k] + tap[k] * dilation[k];
          inside = inside && at >= 0 && at < in[k];
          from = from * in[k] + at;
        }
        if (inside)
          sum = binary(op_add, sum, binary(op_mul, x[from], w[(o * group + c) * taps + q]));
      }
    out[i] = finish(sum, dtype, high);
  }
}

// The updates of [rows, row] in their order: a thread has one column of the rows r that `index`
// names with r % shares == share.
template <class T>
KILN_INLINE void scatter(i64 op, T* out, i64 rows, i64 row, const i64* index, const T* updates,
                         i64 count, i64 shares, i64 threads) {
  for (i64 i = self_index(); i < shares * row; i += threads) {
    const i64 share = i / row, column = i % row;
    for (i64 k = 0; k < count; ++k) {
      const i64 at = index[k] < 0 ? index[k] + rows : index[k];
      if (at < 0 || at >= rows || at % shares != share) continue;
      T& to = out[at * row + column];
      const T update = updates[k * row + column];
      to = op < 0 ? update : combined(op, to, update);
    }
  }
}

KILN_INLINE bool sorts_before(double a, double b) { return a == a && (b != b || a < b); }
KILN_INLINE bool sorts_before(i64 a, i64 b) { return a < b; }

// Positions in runs of `run`, each in order, become runs of 2 * run. A position goes as far from
// its run's place as there are positions in the other run that go before it; of equals, those of
// the left run.
template <class T>
KILN_INLINE void merge_runs(const T* x, const i64* from, i64* to, i64 rows, i64 size, i64 run,
                            i64 descending, i64 threads) {
  for (i64 i = self_index(); i < rows * size; i += threads) {
    const i64 row = i / size * size, at = i % size, begin = at / run * run;
    const bool left = begin / run % 2 == 0;
    i64 low = left ? begin + run : begin - run;
    if (low > size) low = size;
    i64 high = left ? (low + run < size ? low + run : size) : begin;
    const i64 other = low;
    const T mine = x[row + from[i]];
    while (low < high) {
      const i64 middle = (low + high) / 2;
      const T its = x[row + from[row + middle]];
      const bool it_first = descending ? sorts_before(mine, its) : sorts_before(its, mine);
      const bool i_first = descending ? sorts_before(its, mine) : sorts_before(mine, its);
      if (left ? it_first : !i_first)
        low = middle + 1;
      else
        high = middle;
    }
    const i64 start = left ? begin : begin - run;
    to[row + start + (at - begin) + (low - other)] = from[i];
  }
}

}  // namespace

KILN_KERNEL(256, 1) kiln_convolution(const void* x, const void* w, void* out, const i64* shape, i64 count,
                            i64 dtype, i64 high, i64 threads) {
  if (is_float(dtype))
    convolution(static_cast<const double*>(x), static_cast<const double*>(w),
                static_cast<double*>(out), shape, count, dtype, high, threads);
  else
    convolution(static_cast<const i64*>(x), static_cast<const i64*>(w), static_cast<i64*>(out), shape,
                count, dtype, high, threads);
}

// `op` of an update and what is there; -1: the update replaces it.
KILN_KERNEL(256, 1) kiln_scatter(i64 op, i64 floats, void* out, i64 rows, i64 row, const i64* index,
                        const void* updates, i64 count, i64 shares, i64 threads) {
  if (floats)
    scatter(op, static_cast<double*>(out), rows, row, index, static_cast<const double*>(updates),
            count, shares, threads);
  else
    scatter(op, static_cast<i64*>(out), rows, row, index, static_cast<const i64*>(updates), count,
            shares, threads);
}

// 0, 1, 2, ... in every row; then the runs of each double.
KILN_KERNEL(256, 1) kiln_positions(i64* out, i64 size, i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) out[i] = i % size;
}
KILN_KERNEL(256, 1) kiln_merge_runs(const void* x, i64 floats, const i64* from, i64* to, i64 rows,
                           i64 size, i64 run, i64 descending, i64 threads) {
  if (floats)
    merge_runs(static_cast<const double*>(x), from, to, rows, size, run, descending, threads);
  else
    merge_runs(static_cast<const i64*>(x), from, to, rows, size, run, descending, threads);
}

// Philox4x32-10 (Salmon et al., 2011), four elements at a time.
KILN_KERNEL(256, 1) kiln_philox(const i64* seed, u64 stream, i64* out, i64 count, i64 threads) {
  for (i64 block = self_index(); block * 4 < count; block += threads) {
    unsigned c[4] = {static_cast<unsigned>(block), static_cast<unsigned>(block >> 32),
                     static_cast<unsigned>(stream), static_cast<unsigned>(stream >> 32)};
    unsigned k0 = static_cast<unsigned>(*seed), k1 = static_cast<unsigned>(*seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const u64 a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
      c[0] = static_cast<unsigned>(b >> 32) ^ c[1] ^ k0;
      c[1] = static_cast<unsigned>(b);
      c[2] = static_cast<unsigned>(a >> 32) ^ c[3] ^ k1;
      c[3] = static_cast<unsigned>(a);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < 4 && block * 4 + j < count; ++j) out[block * 4 + j] = c[j];
  }
}
