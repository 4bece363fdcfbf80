// Op philox: Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
namespace {

// The words at the positions `at` of the stream: each lane computes its block of four and keeps one.
KILN_INLINE vi64 philox(vi64 seed, uint64_t stream, vi64 at) {
  const vu64 low = vu64{} + 0xffffffff;
  const vu64 p = bits_as<vu64>(at), key = bits_as<vu64>(seed);
  vu64 c0 = (p >> 2) & low, c1 = p >> 34, c2 = vu64{} + (stream & 0xffffffff);
  vu64 c3 = vu64{} + (stream >> 32), k0 = key & low, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const vu64 a = c0 * 0xD2511F53, b = c2 * 0xCD9E8D57;
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
