// Sine, cosine and tangent. CUDA's own keep the digits of a large argument's remainder in an array
// that does not fit registers; here whatever is not large takes three multiplications, and the rest
// goes through a function of its own. 1.6 units in the last place (tan 3).
namespace {

// x = quadrant * pi/2 + r: each part of pi/2 has the bits that the one before lacks, and none is
// negative, so that a negative zero stays one.
template <class T>
struct Trig;
template <>
struct Trig<float> {
  static constexpr float reach = 100000, round = 0x1.8p23f, two_over_pi = 0x1.45f306p-1f;
  static constexpr float part0 = 0x1.921fb4p+0f, part1 = 0x1.4442dp-24f;
  static constexpr float part2 = 0x1.846988p-48f;
};
template <>
struct Trig<double> {
  static constexpr double reach = 100000, round = 0x1.8p52, two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr double part0 = 0x1.921fb54442d18p+0, part1 = 0x1.1a62633145c06p-54;
  static constexpr double part2 = 0x1.c1cd129024e08p-107;
};
template <class T>
struct Remainder {
  T r;  // |r| is a little over pi/4 at most
  unsigned quadrant;
};
KILN_INLINE unsigned integer_bits(float rounded) { return as_bits(rounded); }
KILN_INLINE unsigned integer_bits(double rounded) { return low_bits(rounded); }
KILN_INLINE float fused(float a, float b, float c) { return fmaf(a, b, c); }
KILN_INLINE double fused(double a, double b, double c) { return fma(a, b, c); }
template <class T>
KILN_INLINE Remainder<T> quick_remainder(T x) {
  const T rounded = fused(x, Trig<T>::two_over_pi, Trig<T>::round), n = rounded - Trig<T>::round;
  T r = fused(n, -Trig<T>::part0, x);
  r = fused(n, -Trig<T>::part1, r);
  return {fused(n, -Trig<T>::part2, r), integer_bits(rounded)};
}

// For any finite x of at least 1: its product with the bits of 1 / (2 pi) that decide its place in
// a turn, all other turns being whole (M. Payne, R. Hanek, "Radian reduction for trigonometric
// functions", SIGNUM Newsletter 18, 1983). Two words of zeros stand in front.
KILN_CONSTANT unsigned kTurn[] = {
    0x00000000, 0x00000000, 0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770, 0x36d8a566,
    0x4f10e410, 0x7f9458ea, 0xf7aef158, 0x6dc91b8e, 0x909374b8, 0x01924bba, 0x82746487,
    0x3f877ac7, 0x2c4a69cf, 0xba208d7d, 0x4baed121, 0x3a671c09, 0xad17df90, 0x4e64758e,
    0x60d4ce7d, 0x272117e2, 0xef7e4a0e, 0xc7fe25ff, 0xf7816603, 0xfbcbc462, 0xd6829b47,
    0xdb4d9fb3, 0xc9f2c26d, 0xd3d18fd9, 0xa797fa8b, 0x5d49eeb1, 0xfaf97c5e, 0xcf41ce7d,
    0xe294a4ba, 0x9afed7ec, 0x47e35742, 0x1580cc11};
KILN_INLINE uint64_t turn_bits(int from) {
  const int word = from / 32, shift = from % 32;
  const uint64_t high = static_cast<uint64_t>(kTurn[word]) << 32 | kTurn[word + 1];
  return shift == 0 ? high : high << shift | kTurn[word + 2] >> (32 - shift);
}
KILN_INLINE Remainder<double> long_remainder(double x) {
  const unsigned high = high_bits(x);
  const int exponent = static_cast<int>(high >> 20 & 0x7ff) - 1022;
  const uint64_t mantissa =
      static_cast<uint64_t>((high & 0xfffff) | 0x100000) << 43 | static_cast<uint64_t>(low_bits(x)) << 11;
  // A 128-bit fraction of a turn.
  const uint64_t middle = turn_bits(exponent + 64);
  const uint64_t carried = high_product(mantissa, turn_bits(exponent + 128));
  const uint64_t low = mantissa * middle + carried;
  uint64_t top = mantissa * turn_bits(exponent) + high_product(mantissa, middle) + (low < carried);
  unsigned quadrant = static_cast<unsigned>(top >> 62);
  top = top << 2 | low >> 62;
  if (top >> 63) ++quadrant;  // and the rest of it is negative
  const double r = (static_cast<double>(static_cast<int64_t>(top)) * 0x1p-64 +
                    static_cast<double>(low << 2) * 0x1p-128) *
                   Trig<double>::part0;
  return high >> 31 ? Remainder<double>{-r, 0u - quadrant} : Remainder<double>{r, quadrant};
}

// sin(r), or cos(r) where `odd`; of a zero, its sign too.
KILN_INLINE float near_zero(float r, bool odd) {
  const float z = r * r, first = odd ? 1.0f : r;
  float p = odd ? 2.44155198e-05f : 2.71594681e-06f;
  p = fmaf(p, z, odd ? -0.00138871688f : -0.00019839082f);
  p = fmaf(p, z, odd ? 0.0416666429f : 0.00833332859f);
  p = fmaf(p, z, odd ? -0.5f : -0.166666666f);
  return fmaf(p, fmaf(z, first, 0.0f), first);
}
KILN_INLINE double near_zero(double r, bool odd) {
  const double z = r * r, first = odd ? 1.0 : r;
  double p = odd ? -1.13596475577881948265e-11 : 1.58969099521155010221e-10;
  p = fma(p, z, odd ? 2.08757232129817482790e-09 : -2.50507602534068634195e-08);
  p = fma(p, z, odd ? -2.75573143513906633035e-07 : 2.75573137070700676789e-06);
  p = fma(p, z, odd ? 2.48015872894767294178e-05 : -1.98412698298579493134e-04);
  p = fma(p, z, odd ? -1.38888888888741095749e-03 : 8.33333333332248946124e-03);
  p = fma(p, z, odd ? 4.16666666666666019037e-02 : -1.66666666666666324348e-01);
  if (odd) p = fma(p, z, -0.5);
  return fma(p, fma(z, first, 0.0), first);
}
template <class T>
KILN_INLINE T sine_of(Remainder<T> at) {
  const T y = near_zero(at.r, at.quadrant & 1);
  return at.quadrant & 2 ? -y : y;
}
template <class T>
KILN_INLINE T tangent_of(Remainder<T> at) {
  const T s = near_zero(at.r, false), c = near_zero(at.r, true);
  return at.quadrant & 1 ? -c / s : s / c;
}

KILN_INLINE bool in_reach(float x) { return fabsf(x) <= Trig<float>::reach; }
KILN_INLINE bool in_reach(double x) { return fabs(x) <= Trig<double>::reach; }
KILN_OUTLINE double long_sine(double x, unsigned quadrants) {
  if (!(fabs(x) < infinity_f64())) return nan_f64();  // it has no place in a turn
  Remainder<double> at = in_reach(x) ? quick_remainder(x) : long_remainder(x);
  at.quadrant += quadrants;
  return sine_of(at);
}
KILN_OUTLINE double long_tangent(double x) {
  if (!(fabs(x) < infinity_f64())) return nan_f64();
  return tangent_of(in_reach(x) ? quick_remainder(x) : long_remainder(x));
}

template <class T>
KILN_INLINE bool all_in_reach(const Vec<T>& x) {
  bool all = true;
  KILN_EACH_LANE all = all & in_reach(x[l]);
  return all;
}
// sin(x + quadrants * pi/2)
template <class T>
KILN_INLINE Vec<T> sine(const Vec<T>& x, unsigned quadrants) {
  Vec<T> y;
  if (!all_in_reach(x)) {
    KILN_EACH_LANE y[l] = static_cast<T>(long_sine(x[l], quadrants));
    return y;
  }
  KILN_EACH_LANE {
    Remainder<T> at = quick_remainder(x[l]);
    at.quadrant += quadrants;
    y[l] = sine_of(at);
  }
  return y;
}
template <class T>
KILN_INLINE Vec<T> tangent(const Vec<T>& x) {
  Vec<T> y;
  if (!all_in_reach(x)) {
    KILN_EACH_LANE y[l] = static_cast<T>(long_tangent(x[l]));
    return y;
  }
  KILN_EACH_LANE y[l] = tangent_of(quick_remainder(x[l]));
  return y;
}
KILN_INLINE vf32 op_sin(const vf32& x) { return sine(x, 0); }
KILN_INLINE vf64 op_sin(const vf64& x) { return sine(x, 0); }
KILN_INLINE vf32 op_cos(const vf32& x) { return sine(x, 1); }
KILN_INLINE vf64 op_cos(const vf64& x) { return sine(x, 1); }
KILN_INLINE vf32 op_tan(const vf32& x) { return tangent(x); }
KILN_INLINE vf64 op_tan(const vf64& x) { return tangent(x); }

}  // namespace
