// The reference: one naive kernel a node of the graph. A node's elements are doubles (float dtypes)
// or 64-bit integers (integers and bool), whatever its dtype; `finish` rounds or wraps them as
// ir/interpreter.cc does. `high` keeps f32 nodes unrounded. Shapes are lists of integers in device
// memory: the rank, the sizes, the strides (worker/runner/cuda/device_reference.cc).
namespace {

KILN_INLINE double finish(double x, i64 dtype, i64 high) {
  switch (dtype) {
    case dtype_f32:
      return high ? x : static_cast<double>(static_cast<float>(x));
    case dtype_f16:
      return from_f16(to_f16(static_cast<float>(x)));
    case dtype_bf16:
      return from_bf16(to_bf16(static_cast<float>(x)));
    case dtype_f8e4m3:
      return from_f8e4m3(to_f8e4m3(static_cast<float>(x)));
    case dtype_f8e5m2:
      return from_f8e5m2(to_f8e5m2(static_cast<float>(x)));
    case dtype_f8e8m0:
      return from_f8e8m0(to_f8e8m0(static_cast<float>(x)));
    default:
      return x;
  }
}
KILN_INLINE i64 finish(i64 x, i64 dtype, i64) { return integer_of(static_cast<u64>(x), dtype); }

KILN_INLINE double unary(i64 op, double x, i64) {
  switch (op) {
    case op_neg:
      return -x;
    case op_abs:
      return fabs(x);
    case op_sign:
      return x != x ? x : static_cast<double>((x > 0) - (x < 0));
    case op_floor:
      return floor(x);
    case op_ceil:
      return ceil(x);
    case op_trunc:
      return trunc(x);
    case op_round:
      return rint(x);
    case op_sqrt:
      return sqrt(x);
    case op_rsqrt:
      return 1 / sqrt(x);
    case op_reciprocal:
      return 1 / x;
    case op_exp:
      return exp(x);
    case op_expm1:
      return expm1(x);
    case op_log:
      return log(x);
    case op_log1p:
      return log1p(x);
    case op_sin:
      return sin(x);
    case op_cos:
      return cos(x);
    case op_tan:
      return tan(x);
    case op_tanh:
      return tanh(x);
    default:
      return erf(x);
  }
}
KILN_INLINE i64 unary(i64 op, i64 x, i64 dtype) {
  switch (op) {
    case op_neg:
      return static_cast<i64>(0 - static_cast<u64>(x));
    case op_abs:
      return x < 0 ? static_cast<i64>(0 - static_cast<u64>(x)) : x;
    case op_sign:
      return (x > 0) - (x < 0);
    default:  // not
      return dtype == dtype_bool ? static_cast<i64>(x == 0) : ~x;
  }
}

KILN_INLINE double binary(i64 op, double a, double b) {
  switch (op) {
    case op_add:
      return a + b;
    case op_sub:
      return a - b;
    case op_mul:
      return a * b;
    case op_div:
      return a / b;
    case op_rem:
      return fmod(a, b);
    case op_pow:
      return pow(a, b);
    case op_atan2:
      return atan2(a, b);
    case op_max:
      return a != a || a > b ? a : b;
    default:
      return a != a || a < b ? a : b;
  }
}
KILN_INLINE i64 integer_power(i64 base, i64 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  u64 result = 1, factor = static_cast<u64>(base);
  for (; exponent != 0; exponent >>= 1, factor *= factor)
    if ((exponent & 1) != 0) result *= factor;
  return static_cast<i64>(result);
}
KILN_INLINE i64 binary(i64 op, i64 a, i64 b) {
  const u64 ua = static_cast<u64>(a), ub = static_cast<u64>(b);
  switch (op) {
    case op_add:
      return static_cast<i64>(ua + ub);
    case op_sub:
      return static_cast<i64>(ua - ub);
    case op_mul:
      return static_cast<i64>(ua * ub);
    case op_div:
      return b == 0 ? 0 : b == -1 ? static_cast<i64>(0 - ua) : a / b;
    case op_rem:
      return b == 0 || b == -1 ? 0 : a % b;
    case op_pow:
      return integer_power(a, b);
    case op_max:
      return a > b ? a : b;
    case op_min:
      return a < b ? a : b;
    case op_and:
      return a & b;
    case op_or:
      return a | b;
    default:
      return a ^ b;
  }
}
template <class T>
KILN_INLINE i64 compared(i64 op, T a, T b) {
  return op == op_eq ? a == b : op == op_ne ? a != b : op == op_lt ? a < b : a <= b;
}

template <class T>
KILN_INLINE T combined(i64 op, T a, T b) {
  if (op == op_add) return binary(op_add, a, b);
  if (op == op_mul) return binary(op_mul, a, b);
  return op == op_max ? binary(op_max, a, b) : binary(op_min, a, b);
}

// Offset of position i, in row-major order, of a shape.
KILN_INLINE i64 offset_at(const i64* shape, i64 i) {
  const i64 rank = shape[0];
  const i64* sizes = shape + 1;
  const i64* strides = sizes + rank;
  i64 offset = 0;
  for (i64 k = rank - 1; k > 0; --k) {
    offset += i % sizes[k] * strides[k];
    i /= sizes[k];
  }
  return rank == 0 ? 0 : offset + i * strides[0];
}

template <class T>
KILN_INLINE void reduce(const T* x, T* out, T identity, i64 combine, const i64* kept,
                        const i64* reduced, i64 first, i64 outputs, i64 length, i64 segments,
                        i64 by_segment, i64 dtype, i64 high, i64 threads) {
  for (i64 i = self_index(); i < outputs * segments; i += threads) {
    const i64 output = by_segment ? i / segments : i % outputs;
    const i64 segment = by_segment ? i % segments : i / outputs;
    const T* from = x + offset_at(kept, first + output);
    T total = identity;
    if (reduced[0] == 1) {
#pragma unroll 4
      for (i64 r = segment; r < length; r += segments)
        total = combined(combine, total, from[r * reduced[2]]);
    } else {
      for (i64 r = segment; r < length; r += segments)
        total = combined(combine, total, from[offset_at(reduced, r)]);
    }
    out[output * segments + segment] = finish(total, dtype, high);
  }
}

// The row that an index names: a negative index counts from the end, one out of range names the
// nearest row.
KILN_INLINE i64 named_row(i64 index, i64 rows) {
  const i64 at = index < 0 ? index + rows : index;
  return at < 0 ? 0 : at >= rows ? rows - 1 : at;
}

// A thread computes 8 rows of one column. `index`: names each batch's of `matrices`; or null.
template <class T>
KILN_INLINE void matmul(const T* a, const T* b, const i64* index, i64 matrices, T* out, i64 batches,
                        i64 m, i64 n, i64 k, i64 dtype, i64 high, i64 threads) {
  const i64 row_groups = (m + 7) / 8;
  for (i64 i = self_index(); i < batches * row_groups * n; i += threads) {
    const i64 column = i % n, row = i / n % row_groups * 8, batch = i / n / row_groups;
    const T* left[8];
    T sum[8];
    for (int j = 0; j < 8; ++j) {
      left[j] = a + (batch * m + (row + j < m ? row + j : row)) * k;
      sum[j] = 0;
    }
    const i64 matrix = index == nullptr ? batch : named_row(index[batch], matrices);
    const T* right = b + matrix * k * n + column;
    for (i64 p = 0; p < k; ++p) {
      const T y = right[p * n];
      for (int j = 0; j < 8; ++j) sum[j] = binary(op_add, sum[j], binary(op_mul, left[j][p], y));
    }
    for (int j = 0; j < 8 && row + j < m; ++j)
      out[(batch * m + row + j) * n + column] = finish(sum[j], dtype, high);
  }
}

// Line l of [outer, size, inner] begins here.
KILN_INLINE i64 line_begin(i64 line, i64 size, i64 inner) {
  return line / inner * size * inner + line % inner;
}
template <class T>
KILN_INLINE void chunk_sums(const T* x, T* sums, i64 lines, i64 size, i64 inner, i64 chunk,
                            i64 threads) {
  const i64 chunks = (size + chunk - 1) / chunk;
  for (i64 i = self_index(); i < lines * chunks; i += threads) {
    const i64 line = i / chunks, at = i % chunks;
    const T* from = x + line_begin(line, size, inner);
    T total = 0;
    for (i64 k = at * chunk; k < (at + 1) * chunk && k < size; ++k)
      total = binary(op_add, total, from[k * inner]);
    sums[line_begin(line, chunks, inner) + at * inner] = total;
  }
}
// `before`: the running sums of the chunks, null when there is one.
template <class T>
KILN_INLINE void running_sums(const T* x, const T* before, T* out, i64 lines, i64 size, i64 inner,
                              i64 chunk, i64 dtype, i64 high, i64 threads) {
  const i64 chunks = (size + chunk - 1) / chunk;
  for (i64 i = self_index(); i < lines * chunks; i += threads) {
    const i64 line = i / chunks, at = i % chunks, begin = line_begin(line, size, inner);
    T total = 0;
    if (at > 0) total = before[line_begin(line, chunks, inner) + (at - 1) * inner];
    for (i64 k = at * chunk; k < (at + 1) * chunk && k < size; ++k) {
      total = binary(op_add, total, x[begin + k * inner]);
      out[begin + k * inner] = finish(total, dtype, high);
    }
  }
}

}  // namespace

// Between memory as a kernel sees it and a node's elements.
KILN_KERNEL(256, 1) kiln_load(const void* from, i64 dtype, void* node, i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) {
    const u64 bits = bits_at(from, dtype, i);
    if (is_float(dtype))
      static_cast<double*>(node)[i] = float_of(bits, dtype);
    else
      static_cast<i64*>(node)[i] = integer_of(bits, dtype);
  }
}
KILN_KERNEL(256, 1) kiln_store(const void* node, void* to, i64 dtype, i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) {
    const u64 bits = is_float(dtype) ? bits_of_float(static_cast<const double*>(node)[i], dtype)
                                     : static_cast<const u64*>(node)[i];
    put_bits(to, dtype, i, bits);
  }
}

// The same 8 bytes everywhere; iota: 0, 1, 2, ...
KILN_KERNEL(256, 1) kiln_constant(u64* node, u64 bits, i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) node[i] = bits;
}
KILN_KERNEL(256, 1) kiln_iota(void* node, i64 dtype, i64 high, i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    if (is_float(dtype))
      static_cast<double*>(node)[i] = finish(static_cast<double>(i), dtype, high);
    else
      static_cast<i64*>(node)[i] = finish(i, dtype, high);
}

KILN_KERNEL(256, 1) kiln_unary(i64 op, const void* a, void* out, i64 dtype, i64 high, i64 count,
                      i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    if (is_float(dtype))
      static_cast<double*>(out)[i] =
          finish(unary(op, static_cast<const double*>(a)[i], dtype), dtype, high);
    else
      static_cast<i64*>(out)[i] =
          finish(unary(op, static_cast<const i64*>(a)[i], dtype), dtype, high);
}
KILN_KERNEL(256, 1) kiln_cast(const void* a, i64 from, void* out, i64 dtype, i64 high, i64 count,
                     i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) {
    if (is_float(dtype)) {
      const double x = is_float(from) ? static_cast<const double*>(a)[i]
                                      : static_cast<double>(static_cast<const i64*>(a)[i]);
      static_cast<double*>(out)[i] = finish(x, dtype, high);
      continue;
    }
    i64 x = 0;
    if (!is_float(from)) {
      x = static_cast<const i64*>(a)[i];
    } else {
      const double y = static_cast<const double*>(a)[i];
      if (dtype == dtype_bool)
        x = y != 0;
      else
        x = fabs(y) < 0x1p63 ? static_cast<i64>(y) : -kNowhere - 1;
    }
    static_cast<i64*>(out)[i] = finish(x, dtype, high);
  }
}
KILN_KERNEL(256, 1) kiln_binary(i64 op, const void* a, const void* b, void* out, i64 dtype, i64 high,
                       i64 count, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    if (is_float(dtype))
      static_cast<double*>(out)[i] = finish(
          binary(op, static_cast<const double*>(a)[i], static_cast<const double*>(b)[i]), dtype,
          high);
    else
      static_cast<i64*>(out)[i] = finish(
          binary(op, static_cast<const i64*>(a)[i], static_cast<const i64*>(b)[i]), dtype, high);
}
KILN_KERNEL(256, 1) kiln_relation(i64 op, const void* a, const void* b, i64 floats, i64* out, i64 count,
                         i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    out[i] = floats ? compared(op, static_cast<const double*>(a)[i],
                               static_cast<const double*>(b)[i])
                    : compared(op, static_cast<const i64*>(a)[i], static_cast<const i64*>(b)[i]);
}
KILN_KERNEL(256, 1) kiln_select(const i64* condition, const u64* a, const u64* b, u64* out, i64 count,
                       i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) out[i] = condition[i] != 0 ? a[i] : b[i];
}

// out[i] = x[offset + shape's offset of first + i], and (from the first) the other way round.
KILN_KERNEL(256, 1) kiln_view(const u64* x, i64 offset, const i64* shape, u64* out, i64 first, i64 count,
                     i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    out[i] = x[offset + offset_at(shape, first + i)];
}
KILN_KERNEL(256, 1) kiln_place(const u64* x, i64 offset, const i64* shape, u64* out, i64 count,
                      i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) out[offset + offset_at(shape, i)] = x[i];
}
KILN_KERNEL(256, 1) kiln_gather(const u64* x, i64 rows, i64 row, const i64* index, u64* out, i64 count,
                       i64 threads) {
  for (i64 i = self_index(); i < count; i += threads) {
    out[i] = x[named_row(index[i / row], rows) * row + i % row];
  }
}

// out[output, segment] of `outputs` from `first` on, over the elements segment, segment + segments,
// ... of `length`. `identity` as the bits of an element. `by_segment`: neighbouring threads take
// neighbouring segments.
KILN_KERNEL(256, 1) kiln_reduce(const void* x, void* out, i64 floats, u64 identity, i64 combine,
                       const i64* kept, const i64* reduced, i64 first, i64 outputs, i64 length,
                       i64 segments, i64 by_segment, i64 dtype, i64 high, i64 threads) {
  if (floats)
    reduce(static_cast<const double*>(x), static_cast<double*>(out), from_bits(identity), combine,
           kept, reduced, first, outputs, length, segments, by_segment, dtype, high, threads);
  else
    reduce(static_cast<const i64*>(x), static_cast<i64*>(out), static_cast<i64>(identity), combine,
           kept, reduced, first, outputs, length, segments, by_segment, dtype, high, threads);
}
KILN_KERNEL(256, 1) kiln_matmul(const void* a, const void* b, const i64* index, i64 matrices, void* out,
                       i64 batches, i64 m, i64 n, i64 k, i64 dtype, i64 high, i64 threads) {
  if (is_float(dtype))
    matmul(static_cast<const double*>(a), static_cast<const double*>(b), index, matrices,
           static_cast<double*>(out), batches, m, n, k, dtype, high, threads);
  else
    matmul(static_cast<const i64*>(a), static_cast<const i64*>(b), index, matrices,
           static_cast<i64*>(out), batches, m, n, k, dtype, high, threads);
}
KILN_KERNEL(256, 1) kiln_chunk_sums(const void* x, void* sums, i64 floats, i64 lines, i64 size, i64 inner,
                           i64 chunk, i64 threads) {
  if (floats)
    chunk_sums(static_cast<const double*>(x), static_cast<double*>(sums), lines, size, inner, chunk,
               threads);
  else
    chunk_sums(static_cast<const i64*>(x), static_cast<i64*>(sums), lines, size, inner, chunk,
               threads);
}
KILN_KERNEL(256, 1) kiln_running_sums(const void* x, const void* before, void* out, i64 floats, i64 lines,
                             i64 size, i64 inner, i64 chunk, i64 dtype, i64 high, i64 threads) {
  if (floats)
    running_sums(static_cast<const double*>(x), static_cast<const double*>(before),
                 static_cast<double*>(out), lines, size, inner, chunk, dtype, high, threads);
  else
    running_sums(static_cast<const i64*>(x), static_cast<const i64*>(before),
                 static_cast<i64*>(out), lines, size, inner, chunk, dtype, high, threads);
}
