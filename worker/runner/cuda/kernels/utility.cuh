// Kernels that the runner needs beside the candidates: inputs, guards, comparison. Stands
// behind kernels/printing/device/device.cuh, for its words for threads and bits alone, and behind
// generated `op_...` and `dtype_...` constants (utility_kernels_source.cc). Everything is a plain
// loop over elements without shared memory: thread `self` of `threads` takes elements self,
// self + threads, ... Parameters are pointers and 64-bit integers only.
typedef long long i64;
typedef unsigned long long u64;

namespace {

KILN_INLINE i64 self_index() { return static_cast<i64>(block_index()) * 256 + thread_index(); }

// ---- Elements of every dtype. Halves by their bits, as compiler_core/base/half.h does.
KILN_INLINE bool is_float(i64 dtype) {
  return dtype == dtype_f64 || dtype == dtype_f32 || dtype == dtype_f16 || dtype == dtype_bf16 ||
         dtype == dtype_f8e4m3 || dtype == dtype_f8e5m2 || dtype == dtype_f8e8m0;
}
KILN_INLINE u64 bits_of(double x) { return static_cast<u64>(high_bits(x)) << 32 | low_bits(x); }
KILN_INLINE double from_bits(u64 x) {
  return as_double(static_cast<unsigned>(x), static_cast<unsigned>(x >> 32));
}

KILN_INLINE unsigned short to_bf16(float value) {
  const unsigned bits = as_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // NaN
  return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
KILN_INLINE float from_bf16(unsigned short bits) {
  return as_float(static_cast<unsigned>(bits) << 16);
}
KILN_INLINE unsigned short to_f16(float value) {
  const unsigned bits = as_bits(value);
  const unsigned sign = bits >> 16 & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);  // infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 rounds at the right bit
    const float shifted = as_float(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (as_bits(shifted) - 0x3f000000u));
  }
  const unsigned rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<unsigned short>(sign | rounded >> 13);
}
KILN_INLINE float from_f16(unsigned short bits) {
  const unsigned sign = static_cast<unsigned>(bits & 0x8000u) << 16;
  const unsigned exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 31) return as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}
KILN_INLINE unsigned char to_f8e4m3(float value) {
  const unsigned bits = as_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x43f00000u) return static_cast<unsigned char>(sign | 0x7fu);  // NaN
  if (magnitude < 0x3c800000u) {  // subnormal: adding 2^14 rounds at the right bit
    const float shifted = as_float(magnitude) + 0x1p14f;
    return static_cast<unsigned char>(sign | (as_bits(shifted) - 0x46800000u));
  }
  const unsigned rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - 0x3c000000u;
  return static_cast<unsigned char>(sign | rounded >> 20);
}
KILN_INLINE float from_f8e4m3(unsigned char bits) {
  const unsigned size = bits & 0x7fu;
  if (size == 0x7fu) return as_float(0x7fc00000u);
  return from_f16(static_cast<unsigned short>((bits & 0x80u) << 8 | size << 7)) * 256.0f;
}
KILN_INLINE unsigned char to_f8e5m2(float value) {
  const unsigned bits = as_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned char>(sign | 0x7fu);   // NaN
  if (magnitude >= 0x47800000u) return static_cast<unsigned char>(sign | 0x7cu);  // infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 2^7 rounds at the right bit
    const float shifted = as_float(magnitude) + 0x1p7f;
    return static_cast<unsigned char>(sign | (as_bits(shifted) - 0x43000000u));
  }
  const unsigned rounded = magnitude + 0xfffffu + ((magnitude >> 21) & 1u) - 0x38000000u;
  return static_cast<unsigned char>(sign | rounded >> 21);
}
KILN_INLINE float from_f8e5m2(unsigned char bits) {
  return from_f16(static_cast<unsigned short>(bits << 8));
}
KILN_INLINE unsigned char to_f8e8m0(float value) {
  const unsigned magnitude = as_bits(value) & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return 0xff;  // infinity, NaN
  return static_cast<unsigned char>((magnitude + (magnitude == 0x400000u ? 0 : 0x400000u)) >> 23);
}
KILN_INLINE float from_f8e8m0(unsigned char bits) {
  if (bits == 0xff) return as_float(0x7fc00000u);
  return as_float(bits == 0 ? 0x400000u : static_cast<unsigned>(bits) << 23);
}

// An element of any dtype as its bits, in the low end.
KILN_INLINE u64 bits_at(const void* data, i64 dtype, i64 i) {
  switch (dtype) {
    case dtype_f64:
    case dtype_i64:
      return static_cast<const u64*>(data)[i];
    case dtype_f32:
    case dtype_i32:
      return static_cast<const unsigned*>(data)[i];
    case dtype_f16:
    case dtype_bf16:
    case dtype_i16:
      return static_cast<const unsigned short*>(data)[i];
    default:
      return static_cast<const unsigned char*>(data)[i];
  }
}
KILN_INLINE void put_bits(void* data, i64 dtype, i64 i, u64 bits) {
  switch (dtype) {
    case dtype_f64:
    case dtype_i64:
      static_cast<u64*>(data)[i] = bits;
      return;
    case dtype_f32:
    case dtype_i32:
      static_cast<unsigned*>(data)[i] = static_cast<unsigned>(bits);
      return;
    case dtype_f16:
    case dtype_bf16:
    case dtype_i16:
      static_cast<unsigned short*>(data)[i] = static_cast<unsigned short>(bits);
      return;
    default:
      static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(bits);
  }
}

KILN_INLINE double float_of(u64 bits, i64 dtype) {
  switch (dtype) {
    case dtype_f32:
      return as_float(static_cast<unsigned>(bits));
    case dtype_f16:
      return from_f16(static_cast<unsigned short>(bits));
    case dtype_bf16:
      return from_bf16(static_cast<unsigned short>(bits));
    case dtype_f8e4m3:
      return from_f8e4m3(static_cast<unsigned char>(bits));
    case dtype_f8e5m2:
      return from_f8e5m2(static_cast<unsigned char>(bits));
    case dtype_f8e8m0:
      return from_f8e8m0(static_cast<unsigned char>(bits));
    default:
      return from_bits(bits);
  }
}
KILN_INLINE u64 bits_of_float(double x, i64 dtype) {
  switch (dtype) {
    case dtype_f32:
      return as_bits(static_cast<float>(x));
    case dtype_f16:
      return to_f16(static_cast<float>(x));
    case dtype_bf16:
      return to_bf16(static_cast<float>(x));
    case dtype_f8e4m3:
      return to_f8e4m3(static_cast<float>(x));
    case dtype_f8e5m2:
      return to_f8e5m2(static_cast<float>(x));
    case dtype_f8e8m0:
      return to_f8e8m0(static_cast<float>(x));
    default:
      return bits_of(x);
  }
}
// Sign-extended, and wrapped to the dtype: also what an integer becomes when it is stored.
KILN_INLINE i64 integer_of(u64 bits, i64 dtype) {
  switch (dtype) {
    case dtype_i8:
      return static_cast<signed char>(bits);
    case dtype_i16:
      return static_cast<short>(bits);
    case dtype_i32:
      return static_cast<int>(bits);
    case dtype_u8:
      return static_cast<unsigned char>(bits);
    case dtype_bool:
      return bits != 0;
    default:
      return static_cast<i64>(bits);
  }
}

// ---- What a look over many elements found. Each thread has its own; kiln_fold makes one of them,
// in a fixed order.
struct Tally {
  i64 count;   // of what was looked for
  i64 first;   // where the first stands; the greatest integer when there is none
  double sum;
  u64 mix;
};
KILN_CONSTANT i64 kNowhere = 0x7fffffffffffffff;
KILN_INLINE void note(Tally& tally, i64 where) {
  ++tally.count;
  if (where < tally.first) tally.first = where;
}

// ---- Random inputs, as worker/runner/random_inputs.cc draws them: splitmix64 is counter-based.
KILN_INLINE u64 random_word(u64 seed, i64 i) {
  u64 z = seed + static_cast<u64>(i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// Element i. `floats`: 0 normal ones, 1 of [0.5, 1.5), 2 near 1 with either sign (enum Floats).
// Integers: min + [0, span); with `rises`, of `count`, none is less than the one before it.
KILN_INLINE u64 random_bits(i64 dtype, u64 seed, i64 floats, i64 min, u64 span, i64 rises, i64 count,
                            i64 i) {
  const u64 word = random_word(seed, i);
  const double uniform = static_cast<double>(word >> 11) * 0x1p-53;
  if (!is_float(dtype) && rises) {
    const double x = (static_cast<double>(i) + uniform) / static_cast<double>(count);
    const u64 above = static_cast<u64>(x * (x + 1) * 0.5 * static_cast<double>(span));
    return static_cast<u64>(min) + (above < span ? above : span - 1);
  }
  if (!is_float(dtype)) return static_cast<u64>(min) + word % span;
  if (floats == 1) return bits_of_float(0.5 + uniform, dtype);
  if (floats == 2) {
    const double size = 1 + (uniform - 0.5) * 0x1p-5;
    return bits_of_float((word & 1) != 0 ? -size : size, dtype);
  }
  const u64 sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
  const double normal = (static_cast<double>(sum) + 2.0 - 131072.0) / 65536.0 * 0x1.bb67ae8584caap+0;
  return bits_of_float(normal, dtype);
}

// Never twice the same over a vector's width; by the distance from the data, either way.
KILN_INLINE unsigned char guard_byte(i64 distance) {
  return static_cast<unsigned char>(0xA5 ^ (distance * 37));
}

KILN_INLINE bool is_finite(double x) { return x - x == 0; }
KILN_INLINE bool is_close(double got, double want, double slack) {
  if (got != got || want != want) return got != got && want != want;
  if (!is_finite(got) || !is_finite(want)) return got == want;
  return fabs(got - want) <= slack;
}

}  // namespace

KILN_KERNEL(256, 1) kiln_random(void* data, i64 count, i64 dtype, u64 seed, i64 floats, i64 min, u64 span,
                       i64 rises, i64 threads) {
  for (i64 i = self_index(); i < count; i += threads)
    put_bits(data, dtype, i, random_bits(dtype, seed, floats, min, span, rises, count, i));
}

// Finds the elements that are no longer what kiln_random made them.
KILN_KERNEL(256, 1) kiln_check_random(const void* data, i64 count, i64 dtype, u64 seed, i64 floats,
                             i64 min, u64 span, i64 rises, Tally* tallies, i64 threads) {
  Tally tally = {0, kNowhere, 0, 0};
  const u64 mask = dtype == dtype_f64 || dtype == dtype_i64   ? ~0ull
                   : dtype == dtype_f32 || dtype == dtype_i32 ? 0xffffffffull
                   : dtype == dtype_f16 || dtype == dtype_bf16 || dtype == dtype_i16 ? 0xffffull
                                                                                     : 0xffull;
  for (i64 i = self_index(); i < count; i += threads)
    if (bits_at(data, dtype, i) !=
        (random_bits(dtype, seed, floats, min, span, rises, count, i) & mask))
      note(tally, i);
  tallies[self_index()] = tally;
}

// The guards: `before` bytes in front of `bytes` of data, `behind` bytes after them.
KILN_KERNEL(256, 1) kiln_guard(unsigned char* data, i64 bytes, i64 before, i64 behind,
                               i64 threads) {
  for (i64 i = self_index(); i < before; i += threads) data[-1 - i] = guard_byte(-1 - i);
  for (i64 i = self_index(); i < behind; i += threads) data[bytes + i] = guard_byte(i);
}
// Damage d bytes before the data is noted at d - 1, at offset d behind it at before + d.
KILN_KERNEL(256, 1) kiln_check_guard(const unsigned char* data, i64 bytes, i64 before, i64 behind,
                                     Tally* tallies, i64 threads) {
  Tally tally = {0, kNowhere, 0, 0};
  for (i64 i = self_index(); i < before; i += threads)
    if (data[-1 - i] != guard_byte(-1 - i)) note(tally, i);
  for (i64 i = self_index(); i < behind; i += threads)
    if (data[bytes + i] != guard_byte(i)) note(tally, before + i);
  tallies[self_index()] = tally;
}

// Counts the finite elements of a float tensor and sums their squares; `first` is the first NaN;
// `mix` a checksum of all elements and their places.
KILN_KERNEL(256, 1) kiln_survey(const void* data, i64 count, i64 dtype, Tally* tallies, i64 threads) {
  Tally tally = {0, kNowhere, 0, 0};
  for (i64 i = self_index(); i < count; i += threads) {
    const u64 bits = bits_at(data, dtype, i);
    tally.mix ^= random_word(bits, i);
    if (!is_float(dtype)) continue;
    const double x = float_of(bits, dtype);
    if (x != x && i < tally.first) tally.first = i;
    if (!is_finite(x)) continue;
    tally.sum += x * x;
    ++tally.count;
  }
  tallies[self_index()] = tally;
}

// Notes what is not right by the rule of tolerance.h, and sums how many of that are neighbours. `scale`
// and `relative` are the bits of doubles; `declared` may be null.
KILN_KERNEL(256, 1) kiln_compare(const void* got, const void* want, const void* declared, i64 count,
                        i64 dtype, u64 relative, u64 scale, Tally* tallies, i64 threads) {
  Tally tally = {0, kNowhere, 0, 0};
  const double r = from_bits(relative), s = from_bits(scale);
  for (i64 i = self_index(); i < count; i += threads) {
    const u64 got_bits = bits_at(got, dtype, i), want_bits = bits_at(want, dtype, i);
    if (!is_float(dtype)) {
      const i64 g = integer_of(got_bits, dtype), w = integer_of(want_bits, dtype);
      if (g == w) continue;
      note(tally, i);
      if (fabs(static_cast<double>(g) - static_cast<double>(w)) <= s / 4) tally.sum += 1;
      continue;
    }
    const double g = float_of(got_bits, dtype), w = float_of(want_bits, dtype);
    const double slack = r * (fabs(w) + s);
    if (is_close(g, w, slack)) continue;
    if (declared != nullptr) {
      const double d = float_of(bits_at(declared, dtype, i), dtype);
      if (is_finite(d) && is_finite(w) ? is_close(g, w, slack + 8 * fabs(d - w))
                                       : is_close(g, d, slack))
        continue;
    }
    note(tally, i);
    if (fabs(g - w) <= s / 4) tally.sum += 1;
  }
  tallies[self_index()] = tally;
}

// Thread t folds tallies t, t + threads, ... of `count` into folded[t].
KILN_KERNEL(256, 1) kiln_fold(const Tally* tallies, i64 count, Tally* folded, i64 threads) {
  const i64 self = self_index();
  if (self >= threads) return;
  Tally total = {0, kNowhere, 0, 0};
#pragma unroll 4
  for (i64 i = self; i < count; i += threads) {
    total.count += tallies[i].count;
    if (tallies[i].first < total.first) total.first = tallies[i].first;
    total.sum += tallies[i].sum;
    total.mix ^= tallies[i].mix;
  }
  folded[self] = total;
}

// The calibration kernel: reads and writes `words` of 16 bytes.
struct alignas(16) Words {
  u64 low, high;
};
KILN_KERNEL(256, 1) kiln_copy(Words* to, const Words* from, i64 words, i64 threads) {
  for (i64 i = self_index(); i < words; i += threads) to[i] = from[i];
}
