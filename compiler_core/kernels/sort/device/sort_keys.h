// The entries that are sorted, on both targets: a key, an unsigned number in the order of the
// elements, and the position that it stood at. All entries differ, so that every way of sorting
// them is stable.
namespace {

// NaN is the greatest of all; -0 equals 0.
template <class Bits>
KILN_INLINE Bits float_key(Bits x, Bits infinity) {
  const Bits sign = Bits(1) << (8 * sizeof(Bits) - 1), size = x & Bits(~sign);
  if (size > infinity) return Bits(~Bits(0));
  if (size == 0) return sign;
  return Bits(x & sign ? ~x : x | sign);
}
KILN_INLINE unsigned key_of(const float* p) {
  return float_key(*reinterpret_cast<const unsigned*>(p), 0x7f800000u);
}
KILN_INLINE uint64_t key_of(const double* p) {
  return float_key(*reinterpret_cast<const uint64_t*>(p), uint64_t{0x7ff0000000000000});
}
KILN_INLINE unsigned short key_of(const f16* p) {
  return float_key<unsigned short>(p->bits, 0x7c00);
}
KILN_INLINE unsigned short key_of(const bf16* p) {
  return float_key<unsigned short>(p->bits, 0x7f80);
}
KILN_INLINE uint64_t key_of(const int64_t* p) { return uint64_t(*p) ^ uint64_t{1} << 63; }
KILN_INLINE unsigned key_of(const int* p) { return unsigned(*p) ^ 1u << 31; }
KILN_INLINE unsigned short key_of(const short* p) { return *p ^ 0x8000; }
KILN_INLINE unsigned char key_of(const signed char* p) { return *p ^ 0x80; }
KILN_INLINE unsigned char key_of(const unsigned char* p) { return *p; }
KILN_INLINE unsigned char key_of(const boolean* p) { return p->bits != 0; }

// The key in the high half.
template <class Key>
struct narrow_entry {
  using key_type = Key;
  uint64_t both;
};
template <class Key>
struct wide_entry {
  using key_type = Key;
  Key key;
  uint64_t position;
};
template <class Key>
struct entry_for { using type = narrow_entry<Key>; };
template <>
struct entry_for<uint64_t> { using type = wide_entry<uint64_t>; };
template <class T>
using key_type = decltype(key_of(static_cast<const T*>(nullptr)));
template <class T>
using entry_of = typename entry_for<key_type<T>>::type;

template <class Key>
KILN_INLINE void set_entry(narrow_entry<Key>& e, Key key, uint64_t position) {
  e.both = uint64_t{key} << 32 | position;
}
template <class Key>
KILN_INLINE void set_entry(wide_entry<Key>& e, Key key, uint64_t position) {
  e.key = key;
  e.position = position;
}
template <class Key>
KILN_INLINE uint64_t key_in(const narrow_entry<Key>& e) { return e.both >> 32; }
template <class Key>
KILN_INLINE uint64_t key_in(const wide_entry<Key>& e) { return e.key; }
template <class Key>
KILN_INLINE int64_t position(const narrow_entry<Key>& e) { return e.both & 0xffffffff; }
template <class Key>
KILN_INLINE int64_t position(const wide_entry<Key>& e) { return e.position; }
template <class Key>
KILN_INLINE bool before(const narrow_entry<Key>& a, const narrow_entry<Key>& b) {
  return a.both < b.both;
}
template <class Key>
KILN_INLINE bool before(const wide_entry<Key>& a, const wide_entry<Key>& b) {
  return a.key < b.key || (a.key == b.key && a.position < b.position);
}

}  // namespace
