// Op philox: Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
namespace {

// The products of the low halves. GCC 12 multiplies whole 64-bit lanes where it is asked to, which
// takes three times as long.
KILN_INLINE vu64 low_product(vu64 a, vu64 b) {
  vu64 y;
#if LANES >= 8 && defined(__AVX512F__)
  typedef int words16 __attribute__((vector_size(64)));
  typedef long long products8 __attribute__((vector_size(64)));
  for (int part = 0; part < LANES / 8; ++part) {
    words16 p, q;
    __builtin_memcpy(&p, reinterpret_cast<const char*>(&a) + part * 64, 64);
    __builtin_memcpy(&q, reinterpret_cast<const char*>(&b) + part * 64, 64);
    const products8 product = __builtin_ia32_pmuludq512_mask(p, q, products8{}, -1);
    __builtin_memcpy(reinterpret_cast<char*>(&y) + part * 64, &product, 64);
  }
#else
  typedef int words8 __attribute__((vector_size(32)));
  typedef long long products4 __attribute__((vector_size(32)));
  for (int part = 0; part < LANES / 4; ++part) {
    words8 p, q;
    __builtin_memcpy(&p, reinterpret_cast<const char*>(&a) + part * 32, 32);
    __builtin_memcpy(&q, reinterpret_cast<const char*>(&b) + part * 32, 32);
    const products4 product = __builtin_ia32_pmuludq256(p, q);
    __builtin_memcpy(reinterpret_cast<char*>(&y) + part * 32, &product, 32);
  }
#endif
  return y;
}

// The words at the positions `at` of the stream: each lane computes its block of four and keeps one.
KILN_INLINE vi64 philox(vi64 seed, uint64_t stream, vi64 at) {
  const vu64 low = vu64{} + 0xffffffff;
  const vu64 p = bits_as<vu64>(at), key = bits_as<vu64>(seed);
  vu64 c0 = (p >> 2) & low, c1 = p >> 34, c2 = vu64{} + (stream & 0xffffffff);
  vu64 c3 = vu64{} + (stream >> 32), k0 = key & low, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const vu64 a = low_product(c0, vu64{} + 0xD2511F53), b = low_product(c2, vu64{} + 0xCD9E8D57);
    c0 = (b >> 32) ^ c1 ^ k0;
    c1 = b & low;
    c2 = (a >> 32) ^ c3 ^ k1;
    c3 = a & low;
    k0 = (k0 + 0x9E3779B9) & low;
    k1 = (k1 + 0xBB67AE85) & low;
  }
  const vi64 word = at & 3;
  return bits_as<vi64>(word < 2 ? (word == 0 ? c0 : c1) : (word == 2 ? c2 : c3));
}

}  // namespace
