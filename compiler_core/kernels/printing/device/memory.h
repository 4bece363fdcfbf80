// Loads and stores. The memory types are told apart by their names; registers hold halves as f32,
// small integers as i32 and bool as a mask. `live` says how many lanes exist: nothing is read or
// written beyond them.
namespace {

struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct boolean { unsigned char bits; };

struct AllLanes {};
struct SomeLanes { int64_t count; };  // less than LANES

// GCC 12 splits the widening of 16 lanes.
KILN_INLINE vu32 widen(vu16 x) {
#if LANES == 16 && defined(__AVX512F__)
  return bits_as<vu32>(__builtin_ia32_pmovzxwd512_mask(bits_as<vi16>(x), vi32{}, -1));
#else
  return convert<vu32>(x);
#endif
}
KILN_INLINE vf32 from_f16(vu16 x);
KILN_INLINE vu16 to_f16(vf32 x);

// One memory type: `element` and `raw` as it lies in memory, one and LANES of them; `vector` in a
// register.
template <class T>
struct memory;
#define KILN_MEMORY(TYPE, ELEMENT, RAW, VECTOR, TO_REGISTER, TO_MEMORY) \
  template <>                                                       \
  struct memory<TYPE> {                                             \
    using element = ELEMENT;                                        \
    using raw = RAW;                                                \
    using vector = VECTOR;                                          \
    KILN_INLINE vector to_register(raw x) { return TO_REGISTER; }   \
    KILN_INLINE raw to_memory(vector x) { return TO_MEMORY; }       \
  };
KILN_MEMORY(float, float, vf32, vf32, x, x)
KILN_MEMORY(double, double, vf64, vf64, x, x)
KILN_MEMORY(int, int, vi32, vi32, x, x)
KILN_MEMORY(int64_t, long, vi64, vi64, x, x)
KILN_MEMORY(short, short, vi16, vi32, convert<vi32>(x), convert<vi16>(x))
KILN_MEMORY(signed char, signed char, vi8, vi32, convert<vi32>(x), convert<vi8>(x))
KILN_MEMORY(unsigned char, unsigned char, vu8, vi32, convert<vi32>(x), convert<vu8>(x))
KILN_MEMORY(boolean, unsigned char, vu8, vi32, convert<vi32>(x) != 0, convert<vu8>(x & 1))
KILN_MEMORY(bf16, unsigned short, vu16, vf32, bits_as<vf32>(widen(x) << 16),
            convert<vu16>(bits_as<vu32>(x) >> 16))
KILN_MEMORY(f16, unsigned short, vu16, vf32, from_f16(x), to_f16(x))
#undef KILN_MEMORY

template <class V>
struct unaligned { V value; } __attribute__((packed, may_alias));

// The first `bytes` bytes of a vector, from 1 to all but one; zeros behind them when loaded.
typedef char char64 __attribute__((vector_size(64)));
typedef char char32 __attribute__((vector_size(32)));
typedef char char16 __attribute__((vector_size(16)));
template <class V>
KILN_INLINE V load_bytes(const void* p, int64_t bytes) {
#ifdef __AVX512BW__
  const uint64_t mask = ~uint64_t{0} >> (64 - bytes);
  if constexpr (sizeof(V) == 64)
    return bits_as<V>(
        __builtin_ia32_loaddquqi512_mask(static_cast<const char*>(p), char64{}, mask));
  if constexpr (sizeof(V) == 32)
    return bits_as<V>(
        __builtin_ia32_loaddquqi256_mask(static_cast<const char*>(p), char32{}, mask));
  if constexpr (sizeof(V) == 16)
    return bits_as<V>(
        __builtin_ia32_loaddquqi128_mask(static_cast<const char*>(p), char16{}, mask));
#endif
  V x{};
  __builtin_memcpy(&x, p, bytes);
  return x;
}
template <class V>
KILN_INLINE void store_bytes(void* p, V x, int64_t bytes) {
#ifdef __AVX512BW__
  const uint64_t mask = ~uint64_t{0} >> (64 - bytes);
  if constexpr (sizeof(V) == 64)
    return __builtin_ia32_storedquqi512_mask(static_cast<char*>(p), bits_as<char64>(x), mask);
  if constexpr (sizeof(V) == 32)
    return __builtin_ia32_storedquqi256_mask(static_cast<char*>(p), bits_as<char32>(x), mask);
  if constexpr (sizeof(V) == 16)
    return __builtin_ia32_storedquqi128_mask(static_cast<char*>(p), bits_as<char16>(x), mask);
#endif
  __builtin_memcpy(p, &x, bytes);
}

template <class T>
KILN_INLINE typename memory<T>::vector load(const T* p, AllLanes) {
  using raw = typename memory<T>::raw;
  return memory<T>::to_register(reinterpret_cast<const unaligned<raw>*>(p)->value);
}
template <class T>
KILN_INLINE typename memory<T>::vector load(const T* p, SomeLanes live) {
  using raw = typename memory<T>::raw;
  return memory<T>::to_register(load_bytes<raw>(p, live.count * sizeof(T)));
}
template <class T>
KILN_INLINE typename memory<T>::vector load_splat(const T* p) {
  typename memory<T>::raw x{};
  __builtin_memcpy(&x, p, sizeof(T));
  x = x[0] - typename memory<T>::raw{};
  return memory<T>::to_register(x);
}

// Lane by lane from p[index(l)]. Whole vectors are put together in a register: on the way through
// memory the load would wait for every store.
template <class T, class Place>
KILN_INLINE typename memory<T>::vector load_each(const T* p, Place index, AllLanes) {
  typename memory<T>::raw x{};
  const auto* elements = reinterpret_cast<const typename memory<T>::element*>(p);
  for (int l = 0; l < LANES; ++l) x[l] = elements[index(l)];
  return memory<T>::to_register(x);
}
template <class T, class Place>
KILN_INLINE typename memory<T>::vector load_each(const T* p, Place index, SomeLanes live) {
  T lanes[LANES] = {};
  for (int l = 0; l < live.count; ++l) lanes[l] = p[index(l)];
  return load(lanes, AllLanes{});
}
template <class T, class Live>
KILN_INLINE typename memory<T>::vector load_strided(const T* p, int64_t stride, Live live) {
  return load_each(p, [&](int l) KILN_LAMBDA { return l * stride; }, live);
}
// Rows shorter than a vector, as a pooling of small images reads: a gather, since what goes through
// memory lane by lane waits for every store.
template <class T>
KILN_INLINE typename memory<T>::vector load_strided(const T* p, int64_t stride, SomeLanes live) {
#if LANES == 16 && defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    if (stride > 0 && stride < 1 << 24) {
      vi32 at;
      for (int l = 0; l < LANES; ++l) at[l] = l * static_cast<int>(stride);
      return bits_as<typename memory<T>::vector>(__builtin_ia32_gathersiv16sf(
          vf32{}, p, at, static_cast<unsigned short>((1u << live.count) - 1), 4));
    }
  }
#endif
  return load_each(p, [&](int l) KILN_LAMBDA { return l * stride; }, live);
}
template <class T, class Live>
KILN_INLINE typename memory<T>::vector load_lanes(const T* p, vi64 at, Live live) {
  return load_each(p, [&](int l) KILN_LAMBDA { return at[l]; }, live);
}

template <class T>
KILN_INLINE void store(T* p, typename memory<T>::vector x, AllLanes) {
  using raw = typename memory<T>::raw;
  reinterpret_cast<unaligned<raw>*>(p)->value = memory<T>::to_memory(x);
}
template <class T>
KILN_INLINE void store(T* p, typename memory<T>::vector x, SomeLanes live) {
  store_bytes(p, memory<T>::to_memory(x), live.count * sizeof(T));
}
// Past the caches, for outputs that are larger than they are. REQUIRES: p is aligned to the vector.
// finish_streams() once before the kernel returns.
template <class T>
KILN_INLINE void stream(T* p, typename memory<T>::vector x, AllLanes) {
  const typename memory<T>::raw raw = memory<T>::to_memory(x);
  typedef long long pair __attribute__((vector_size(16)));
  typedef long long quad __attribute__((vector_size(32)));
  if constexpr (sizeof raw == 16) {
    __builtin_ia32_movntdq(reinterpret_cast<pair*>(p), bits_as<pair>(raw));
  } else if constexpr (sizeof raw == 32) {
    __builtin_ia32_movntdq256(reinterpret_cast<quad*>(p), bits_as<quad>(raw));
#ifdef __AVX512F__
  } else if constexpr (sizeof raw == 64) {
    typedef long long oct __attribute__((vector_size(64)));
    __builtin_ia32_movntdq512(reinterpret_cast<oct*>(p), bits_as<oct>(raw));
#endif
  } else {
    store(p, x, AllLanes{});
  }
}
template <class T>
KILN_INLINE void stream(T* p, typename memory<T>::vector x, SomeLanes live) {
  store(p, x, live);
}
KILN_INLINE void finish_streams() { __builtin_ia32_sfence(); }

template <class T>
KILN_INLINE void store_one(T* p, typename memory<T>::vector x) {
  const typename memory<T>::raw raw = memory<T>::to_memory(x);
  __builtin_memcpy(p, &raw, sizeof(T));
}

}  // namespace
