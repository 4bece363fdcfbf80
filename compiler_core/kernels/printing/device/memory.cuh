// Loads and stores. The memory types are told apart by their names; registers hold halves as f32,
// small integers as i32 and bool as a mask. `live` says how many lanes exist: nothing is read or
// written beyond them. Packed<T> is a vector as it lies in memory: what a row that is read once
// waits in.
namespace {

struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct f8e4m3 { unsigned char bits; };
struct f8e5m2 { unsigned char bits; };
struct boolean { unsigned char bits; };

// Two halves as they lie in memory, of the type pointed at.
KILN_INLINE unsigned pack_pair(const f16*, float low, float high) { return pack_f16(low, high); }
KILN_INLINE unsigned pack_pair(const bf16*, float low, float high) { return pack_bf16(low, high); }

struct AllLanes {};
struct SomeLanes { index_t count; };  // less than LANES
// Lanes first .. last - 1, first below 0 and last past LANES where the vector lies in the middle.
// Dead lanes may be read where they lie in the buffer too: see bounded().
struct LanesWithin {
  index_t first, last, readable;
};
// `left`: what the buffer holds from this vector's (aligned) begin on.
template <class Live>
KILN_INLINE Live bounded(Live live, index_t) { return live; }
KILN_INLINE LanesWithin bounded(LanesWithin live, index_t left) {
  return {live.first, live.last, left};
}

template <class T>
struct alignas(LANES * sizeof(T) <= 4 ? 4 : LANES * sizeof(T) < 16 ? LANES * sizeof(T) : 16) Packed {
  static constexpr int bytes = LANES * sizeof(T);
  unsigned word[bytes < 4 ? 1 : bytes / 4];
  // Element l's bits, in the low end.
  KILN_MEMBER unsigned bits(int l) const {
    if constexpr (sizeof(T) == 1) return word[l / 4] >> (l % 4 * 8) & 0xff;
    if constexpr (sizeof(T) == 2) return word[l / 2] >> (l % 2 * 16) & 0xffff;
    return word[l * (sizeof(T) / 4)];
  }
  KILN_MEMBER unsigned high_bits(int l) const { return word[l * 2 + 1]; }  // of 8-byte types
  KILN_MEMBER void set(int l, unsigned x) {  // on zeros
    if constexpr (sizeof(T) == 1) word[l / 4] |= (x & 0xff) << (l % 4 * 8);
    if constexpr (sizeof(T) == 2) word[l / 2] |= (x & 0xffff) << (l % 2 * 16);
    if constexpr (sizeof(T) >= 4) word[l * (sizeof(T) / 4)] = x;
  }
  KILN_MEMBER void clear() {
    constexpr int words = bytes < 4 ? 1 : bytes / 4;
    static_assert(words <= 2 * LANES);
    KILN_LANES(if constexpr (l < words) word[l] = 0;
               if constexpr (l + LANES < words) word[l + LANES] = 0)
  }
};

// ---- 8-bit floats, as compiler_core/base/half.h converts them.
// The exponent's bias is less than an f16's by 8. There are no infinities; all ones are NaN.
KILN_INLINE float f8e4m3_to_f32(unsigned x) {
#ifdef KILN_F8_PAIRS
  return f16_to_f32(static_cast<unsigned short>(f8e4m3x2_to_f16x2(x & 0xffu)));
#else
  const unsigned half = (x & 0x80u) << 8 | (x & 0x7fu) << 7;
  return (x & 0x7fu) == 0x7fu ? nan_f32()
                              : f16_to_f32(static_cast<unsigned short>(half)) * 256.0f;
#endif
}
KILN_INLINE unsigned f32_to_f8e4m3(float x) {
  const unsigned bits = as_bits(x), size = bits & 0x7fffffffu;
  // The last place of 2^14 is that of subnormals.
  const unsigned code = size >= 0x43f00000u ? 0x7fu
                        : size < 0x3c800000u
                            ? as_bits(as_float(size) + 0x1p14f) - 0x46800000u
                            : (size + 0x7ffffu + (size >> 20 & 1u) - 0x3c000000u) >> 20;
  return code | (bits >> 24 & 0x80u);
}
// The upper half of an f16.
KILN_INLINE float f8e5m2_to_f32(unsigned x) {
  return f16_to_f32(static_cast<unsigned short>(x << 8));
}
KILN_INLINE unsigned f32_to_f8e5m2(float x) {
  const unsigned bits = as_bits(x), size = bits & 0x7fffffffu;
  // The last place of 2^7 is that of subnormals.
  const unsigned code = size > 0x7f800000u    ? 0x7fu
                        : size >= 0x47800000u ? 0x7cu
                        : size < 0x38800000u
                            ? as_bits(as_float(size) + 0x1p7f) - 0x43000000u
                            : (size + 0xfffffu + (size >> 21 & 1u) - 0x38000000u) >> 21;
  return code | (bits >> 24 & 0x80u);
}

// ---- Between memory and registers.
KILN_CONSTANT int after(int l) { return l + 1 < LANES ? l + 1 : l; }
template <class T>
struct memory;
// One element, where it is read alone: lane 0 of a Packed.
template <class T>
struct PackedOne {
  Bits<sizeof(T)> bits_of;
  KILN_MEMBER unsigned bits(int) const { return bits_of.word[0]; }
  KILN_MEMBER unsigned high_bits(int) const { return bits_of.word[1]; }
};
#define KILN_MEMORY(TYPE, VECTOR, FROM, TO)                     \
  template <>                                                   \
  struct memory<TYPE> {                                         \
    using vector = VECTOR;                                      \
    KILN_INLINE element<VECTOR>::type first(const PackedOne<TYPE>& p) { \
      constexpr int l = 0;                                      \
      return FROM;                                              \
    }                                                           \
    KILN_INLINE vector unpack(const Packed<TYPE>& p) {          \
      vector x;                                                 \
      KILN_LANES(x.lane[l] = FROM)                              \
      return x;                                                 \
    }                                                           \
    KILN_INLINE Packed<TYPE> pack(const vector& x) {            \
      Packed<TYPE> p;                                           \
      p.clear();                                                \
      KILN_LANES(p.set(l, TO))                                  \
      return p;                                                 \
    }                                                           \
  };
KILN_MEMORY(float, vf32, as_float(p.bits(l)), as_bits(x.lane[l]))
KILN_MEMORY(int, vi32, static_cast<int>(p.bits(l)), static_cast<unsigned>(x.lane[l]))
KILN_MEMORY(short, vi32, static_cast<short>(p.bits(l)), static_cast<unsigned>(x.lane[l]))
KILN_MEMORY(signed char, vi32, static_cast<signed char>(p.bits(l)), static_cast<unsigned>(x.lane[l]))
KILN_MEMORY(unsigned char, vi32, static_cast<int>(p.bits(l)), static_cast<unsigned>(x.lane[l]))
KILN_MEMORY(f8e5m2, vf32, f8e5m2_to_f32(p.bits(l)), f32_to_f8e5m2(x.lane[l]))
KILN_MEMORY(boolean, vi32, p.bits(l) != 0 ? -1 : 0, x.lane[l] != 0 ? 1 : 0)
#undef KILN_MEMORY
template <>
struct memory<f8e4m3> {
  using vector = vf32;
  KILN_INLINE float first(const PackedOne<f8e4m3>& p) { return f8e4m3_to_f32(p.bits(0)); }
  KILN_INLINE vector unpack(const Packed<f8e4m3>& p) {
    vector x;
#ifdef KILN_F8_PAIRS
    KILN_LANES(if constexpr (l % 2 == 0) {
      const unsigned both = f8e4m3x2_to_f16x2(p.word[l / 4] >> (l % 4 * 8));
      x.lane[after(l)] = f16_to_f32(static_cast<unsigned short>(both >> 16));
      x.lane[l] = f16_to_f32(static_cast<unsigned short>(both));
    })
#else
    KILN_LANES(x.lane[l] = f8e4m3_to_f32(p.bits(l)))
#endif
    return x;
  }
  KILN_INLINE Packed<f8e4m3> pack(const vector& x) {
    Packed<f8e4m3> p;
    p.clear();
    KILN_LANES(p.set(l, f32_to_f8e4m3(x.lane[l])))
    return p;
  }
};
template <>
struct memory<double> {
  using vector = vf64;
  KILN_INLINE double first(const PackedOne<double>& p) {
    return as_double(p.bits(0), p.high_bits(0));
  }
  KILN_INLINE vector unpack(const Packed<double>& p) {
    vector x;
    KILN_LANES(x.lane[l] = as_double(p.bits(l), p.high_bits(l)))
    return x;
  }
  KILN_INLINE Packed<double> pack(const vector& x) {
    Packed<double> p;
    KILN_EACH_LANE {
      p.word[l * 2] = low_bits(x[l]);
      p.word[l * 2 + 1] = high_bits(x[l]);
    }
    return p;
  }
};
template <>
struct memory<int64_t> {
  using vector = vi64;
  KILN_INLINE int64_t first(const PackedOne<int64_t>& p) {
    return static_cast<int64_t>(static_cast<uint64_t>(p.high_bits(0)) << 32 | p.bits(0));
  }
  KILN_INLINE vector unpack(const Packed<int64_t>& p) {
    vector x;
    KILN_EACH_LANE x[l] =
        static_cast<int64_t>(static_cast<uint64_t>(p.high_bits(l)) << 32 | p.bits(l));
    return x;
  }
  KILN_INLINE Packed<int64_t> pack(const vector& x) {
    Packed<int64_t> p;
    KILN_EACH_LANE {
      p.word[l * 2] = static_cast<unsigned>(x[l]);
      p.word[l * 2 + 1] = static_cast<unsigned>(static_cast<uint64_t>(x[l]) >> 32);
    }
    return p;
  }
};
template <>
struct memory<bf16> {
  using vector = vf32;
  KILN_INLINE float first(const PackedOne<bf16>& p) { return as_float(p.bits(0) << 16); }
  KILN_INLINE vector unpack(const Packed<bf16>& p) {
    vector x;
    // The high half is the upper end of an f32 where it stands.
    KILN_LANES(x.lane[l] =
                   as_float(l % 2 != 0 ? p.word[l / 2] & 0xffff0000u : p.word[l / 2] << 16))
    return x;
  }
  KILN_INLINE Packed<bf16> pack(const vector& x) {
    Packed<bf16> p;
    if constexpr (LANES == 1) {
      p.word[0] = pack_bf16(x[0], 0.0f);
    } else {
      KILN_LANES(if constexpr (l % 2 == 0) p.word[l / 2] =
                     pack_bf16(x.lane[l], x.lane[after(l)]))
    }
    return p;
  }
};
template <>
struct memory<f16> {
  using vector = vf32;
  KILN_INLINE float first(const PackedOne<f16>& p) {
    return f16_to_f32(static_cast<unsigned short>(p.bits(0)));
  }
  KILN_INLINE vector unpack(const Packed<f16>& p) {
    vector x;
    KILN_LANES(x.lane[l] = f16_to_f32(static_cast<unsigned short>(p.bits(l))))
    return x;
  }
  KILN_INLINE Packed<f16> pack(const vector& x) {
    Packed<f16> p;
    if constexpr (LANES == 1) {
      p.word[0] = pack_f16(x[0], 0.0f);
    } else {
      KILN_LANES(if constexpr (l % 2 == 0) p.word[l / 2] = pack_f16(x.lane[l], x.lane[after(l)]))
    }
    return p;
  }
};
template <class T>
KILN_INLINE typename memory<T>::vector unpack(const Packed<T>& p) { return memory<T>::unpack(p); }
template <class T>
KILN_INLINE Packed<T> pack(const typename memory<T>::vector& x) { return memory<T>::pack(x); }

KILN_INLINE vf32 round_bf16(const vf32& x) {
  vf32 y;
  if constexpr (LANES == 1) {
    y.lane[0] = as_float(pack_bf16(x.lane[0], 0.0f) << 16);
  } else {
    KILN_LANES(if constexpr (l % 2 == 0) {
      const unsigned both = pack_bf16(x.lane[l], x.lane[after(l)]);
      y.lane[l] = as_float(both << 16);
      y.lane[after(l)] = as_float(both & 0xffff0000u);
    })
  }
  return y;
}
KILN_INLINE vf32 round_bf16_plain(const vf32& x) { return round_bf16(x); }
KILN_INLINE vf32 round_f16(const vf32& x) { return unpack(pack<f16>(x)); }
KILN_INLINE vf32 round_f8e4m3(const vf32& x) { return unpack(pack<f8e4m3>(x)); }
KILN_INLINE vf32 round_f8e5m2(const vf32& x) { return unpack(pack<f8e5m2>(x)); }

// ---- Whole vectors from global memory. `aligned`: the address is a multiple of so many elements
// (1, 2, 4, ...), which decides how wide the accesses are.
KILN_CONSTANT int access_bytes(int vector_bytes, int aligned_bytes) {
  const int most = vector_bytes < 16 ? vector_bytes : 16;
  return aligned_bytes < most ? aligned_bytes : most;
}
// The words of a vector that one access moves, from `first` on.
template <int bytes>
KILN_INLINE Bits<bytes>& bits_of(unsigned& first) { return reinterpret_cast<Bits<bytes>&>(first); }
template <int bytes>
KILN_INLINE const Bits<bytes>& bits_of(const unsigned& first) {
  return reinterpret_cast<const Bits<bytes>&>(first);
}
template <int aligned, class T>
KILN_INLINE Packed<T> load_packed(const T* p, AllLanes) {
  constexpr int bytes = access_bytes(Packed<T>::bytes, aligned * sizeof(T));
  Packed<T> x;
  if constexpr (bytes >= 4) {
    if constexpr (bytes == Packed<T>::bytes) {
      load_input(p, bits_of<bytes>(x.word[0]));
    } else {
      _Pragma("unroll") for (int i = 0; i < Packed<T>::bytes / bytes; ++i)
          load_input(reinterpret_cast<const char*>(p) + i * bytes,
                     bits_of<bytes>(x.word[i * (bytes / 4)]));
    }
  } else {
    x.clear();
    KILN_EACH_LANE {
      Bits<sizeof(T)> part;
      load_input(p + l, part);
      x.set(l, part.word[0]);
    }
  }
  return x;
}
// One element.
template <class T>
KILN_INLINE void load_element(const T* p, Packed<T>& x, int l) {
  Bits<sizeof(T)> part;
  load_input(p, part);
  x.set(l, part.word[0]);
  if constexpr (sizeof(T) == 8) x.word[l * 2 + 1] = part.word[1];
}
template <int aligned, class T>
KILN_INLINE Packed<T> load_packed(const T* p, SomeLanes live) {
  Packed<T> x;
  x.clear();
  KILN_EACH_LANE if (l < live.count) load_element(p + l, x, l);
  return x;
}
template <int aligned, class T>
KILN_INLINE Packed<T> load_packed(const T* p, LanesWithin live) {
  if (aligned >= LANES && live.readable >= LANES) return load_packed<aligned>(p, AllLanes{});
  Packed<T> x;
  x.clear();
  KILN_EACH_LANE if (l >= live.first && l < live.last) load_element(p + l, x, l);
  return x;
}
template <int aligned, class T, class Live>
KILN_INLINE typename memory<T>::vector load(const T* p, Live live) {
  return unpack(load_packed<aligned>(p, live));
}
template <class T>
KILN_INLINE typename memory<T>::vector load_splat(const T* p) {
  PackedOne<T> x;
  load_input(p, x.bits_of);
  return splat<typename memory<T>::vector>(memory<T>::first(x));
}

KILN_INLINE bool is_live(AllLanes, int) { return true; }
KILN_INLINE bool is_live(SomeLanes live, int l) { return l < live.count; }
KILN_INLINE bool is_live(LanesWithin live, int l) { return l >= live.first && l < live.last; }

// The vector that begins `phase` (below LANES) elements before `second` does, where `first` ends;
// where phase is 0 they are the same.
template <class T>
KILN_INLINE Packed<T> shifted(const Packed<T>& first, const Packed<T>& second, int phase) {
  constexpr int words = Packed<T>::bytes / 4;
  unsigned both[2 * words];
  _Pragma("unroll") for (int i = 0; i < words; ++i) {
    both[i] = first.word[i];
    both[words + i] = second.word[i];
  }
  const int bytes = (LANES - phase) * static_cast<int>(sizeof(T));
  _Pragma("unroll") for (int step = words / 2; step > 0; step /= 2) {
    const bool moves = (bytes / 4 & step) != 0;
    _Pragma("unroll") for (int i = 0; i + step < 2 * words; ++i) both[i] =
        moves ? both[i + step] : both[i];
  }
  Packed<T> x;
  _Pragma("unroll") for (int i = 0; i < words; ++i) {
    if constexpr (sizeof(T) >= 4)
      x.word[i] = both[i];
    else
      x.word[i] = static_cast<unsigned>(
          (static_cast<uint64_t>(both[i + 1]) << 32 | both[i]) >> bytes % 4 * 8);
  }
  return x;
}
// A vector `phase` elements before an aligned place, from the two whole ones that it lies in; where
// it is whole and its row begins `phase` elements past such a place they lie in the buffer.
template <class T>
KILN_INLINE Packed<T> load_shifted_packed(const T* p, int phase, AllLanes live) {
  if constexpr (Packed<T>::bytes < 4) {
    return load_packed<1>(p, live);
  } else {
    const T* const place = p + phase;
    return shifted(load_packed<LANES>(place - (phase != 0 ? LANES : 0), live),
                   load_packed<LANES>(place, live), phase);
  }
}
template <class T>
KILN_INLINE Packed<T> load_shifted_packed(const T* p, int phase, LanesWithin live) {
  if constexpr (Packed<T>::bytes >= 4)
    if (live.readable >= phase + LANES) {
      // Nothing of a row lies before the aligned place that follows its begin.
      const T* const place = p + phase;
      return shifted(load_packed<LANES>(place - (live.first <= 0 && phase != 0 ? LANES : 0),
                                        AllLanes{}),
                     load_packed<LANES>(place, AllLanes{}), phase);
    }
  return load_packed<1>(p, live);
}
template <class T, class Live>
KILN_INLINE typename memory<T>::vector load_shifted(const T* p, int phase, Live live) {
  return unpack(load_shifted_packed(p, phase, live));
}

template <class T, class Live>
KILN_INLINE Packed<T> load_strided_packed(const T* p, index_t stride, Live live) {
  Packed<T> x;
  x.clear();
  KILN_EACH_LANE if (is_live(live, l)) load_element(p + l * stride, x, l);
  return x;
}
template <class T, class Live>
KILN_INLINE typename memory<T>::vector load_strided(const T* p, index_t stride, Live live) {
  return unpack(load_strided_packed(p, stride, live));
}
template <class T, class Live>
KILN_INLINE Packed<T> load_lanes_packed(const T* p, const vindex& at, Live live) {
  Packed<T> x;
  x.clear();
  KILN_EACH_LANE if (is_live(live, l)) load_element(p + at[l], x, l);
  return x;
}
template <class T, class Live>
KILN_INLINE typename memory<T>::vector load_lanes(const T* p, const vindex& at, Live live) {
  return unpack(load_lanes_packed(p, at, live));
}

// A vector from global to shared memory without a stop in registers: there after copies_arrived().
template <int aligned, class T>
KILN_INLINE void copy_packed(const T* p, AllLanes live, Packed<T>& to) {
  constexpr int bytes = access_bytes(Packed<T>::bytes, aligned * sizeof(T));
  if constexpr (bytes >= 4) {
    _Pragma("unroll") for (int i = 0; i < Packed<T>::bytes / bytes; ++i)
        copy_input<bytes>(reinterpret_cast<const char*>(p) + i * bytes,
                          reinterpret_cast<char*>(&to) + i * bytes);
  } else {
    to = load_packed<aligned>(p, live);
  }
}
template <int aligned, class T>
KILN_INLINE void copy_packed(const T* p, SomeLanes live, Packed<T>& to) {
  to = load_packed<aligned>(p, live);
}
template <int aligned, class T>
KILN_INLINE void copy_packed(const T* p, LanesWithin live, Packed<T>& to) {
  if (aligned >= LANES && live.readable >= LANES)
    copy_packed<aligned>(p, AllLanes{}, to);
  else
    to = load_packed<1>(p, live);
}

// Waits until all groups of copies (cp_async_commit()) but the last so many, at most 7, are there.
KILN_INLINE void copies_arrived_but(int groups) {
  switch (groups) {
    case 7: return cp_async_wait<7>();
    case 6: return cp_async_wait<6>();
    case 5: return cp_async_wait<5>();
    case 4: return cp_async_wait<4>();
    case 3: return cp_async_wait<3>();
    case 2: return cp_async_wait<2>();
    case 1: return cp_async_wait<1>();
    default: return cp_async_wait<0>();
  }
}

// ---- And back. `Streamed` goes to memory that nobody reads soon.
template <bool streamed, int bytes>
KILN_INLINE void store_access(void* p, const Bits<bytes>& x) {
  if constexpr (streamed)
    stream_output(p, x);
  else
    store_output(p, x);
}
template <int aligned, bool streamed, class T>
KILN_INLINE void store_packed(T* p, const Packed<T>& x, AllLanes) {
  constexpr int bytes = access_bytes(Packed<T>::bytes, aligned * sizeof(T));
  if constexpr (bytes >= 4) {
    if constexpr (bytes == Packed<T>::bytes) {
      store_access<streamed>(p, bits_of<bytes>(x.word[0]));
    } else {
      _Pragma("unroll") for (int i = 0; i < Packed<T>::bytes / bytes; ++i)
          store_access<streamed>(reinterpret_cast<char*>(p) + i * bytes,
                                bits_of<bytes>(x.word[i * (bytes / 4)]));
    }
  } else {
    KILN_LANES(store_output(p + l, Bits<sizeof(T)>{{x.bits(l)}}))
  }
}
template <class T>
KILN_INLINE void store_element(T* p, const Packed<T>& x, int l) {
  Bits<sizeof(T)> part;
  part.word[0] = x.bits(l);
  if constexpr (sizeof(T) == 8) part.word[1] = x.high_bits(l);
  store_output(p, part);
}
template <int aligned, bool streamed, class T>
KILN_INLINE void store_packed(T* p, const Packed<T>& x, SomeLanes live) {
  KILN_EACH_LANE if (l < live.count) store_element(p + l, x, l);
}
template <int aligned, bool streamed, class T>
KILN_INLINE void store_packed(T* p, const Packed<T>& x, LanesWithin live) {
  if (live.first <= 0 && live.last >= LANES)
    store_packed<aligned, streamed>(p, x, AllLanes{});
  else
    KILN_EACH_LANE if (l >= live.first && l < live.last) store_element(p + l, x, l);
}
template <int aligned, class T, class Live>
KILN_INLINE void store(T* p, const typename memory<T>::vector& x, Live live) {
  store_packed<aligned, false>(p, pack<T>(x), live);
}
template <int aligned, class T, class Live>
KILN_INLINE void stream(T* p, const typename memory<T>::vector& x, Live live) {
  store_packed<aligned, true>(p, pack<T>(x), live);
}
template <class T>
KILN_INLINE void store_one(T* p, const typename memory<T>::vector& x) {
  store_element(p, pack<T>(x), 0);
}

}  // namespace
