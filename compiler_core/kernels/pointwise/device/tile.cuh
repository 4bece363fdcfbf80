// Tiles: squares of shared memory through which a block turns what lies across its grain. A row of
// a tile has `pitch` elements, some of them padding, so that its columns lie in different banks.
namespace {

template <int bytes>
struct Unit;
template <> struct Unit<1> { using type = unsigned char; };
template <> struct Unit<2> { using type = unsigned short; };
template <> struct Unit<4> { using type = unsigned; };
template <> struct Unit<8> { using type = uint64_t; };

// Lane l to row l of the tile, at the column where `place` stands.
template <int pitch, class T>
KILN_INLINE void put_column(T* place, const Packed<T>& x) {
  using U = typename Unit<sizeof(T)>::type;
  KILN_EACH_LANE {
    U bits = static_cast<U>(x.bits(l));
    if constexpr (sizeof(T) == 8) bits |= static_cast<U>(x.high_bits(l)) << 32;
    reinterpret_cast<U*>(place)[l * pitch] = bits;
  }
}
// LANES neighbours of a row; `place` is a multiple of LANES elements from its begin.
template <class T>
KILN_INLINE typename memory<T>::vector take_row(const T* place) {
  Packed<T> x;
  if constexpr (sizeof(T) == 8) {
    KILN_EACH_LANE {
      const uint64_t bits = reinterpret_cast<const uint64_t*>(place)[l];
      x.word[l * 2] = static_cast<unsigned>(bits);
      x.word[l * 2 + 1] = static_cast<unsigned>(bits >> 32);
    }
  } else if constexpr (Packed<T>::bytes >= 4) {
    _Pragma("unroll") for (int w = 0; w < Packed<T>::bytes / 4; ++w) x.word[w] =
        reinterpret_cast<const unsigned*>(place)[w];
  } else {
    using U = typename Unit<sizeof(T)>::type;
    x.clear();
    KILN_EACH_LANE x.set(l, reinterpret_cast<const U*>(place)[l]);
  }
  return unpack(x);
}

}  // namespace
