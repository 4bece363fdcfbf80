// Op philox: Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
namespace {

struct PhiloxBlock {
  unsigned word[4];
};
KILN_INLINE PhiloxBlock philox_block(uint64_t key, uint64_t stream, uint64_t block) {
  unsigned c0 = block & 0xffffffff, c1 = block >> 32, c2 = stream & 0xffffffff, c3 = stream >> 32;
  unsigned k0 = key & 0xffffffff, k1 = key >> 32;
  _Pragma("unroll") for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<unsigned>(b >> 32) ^ c1 ^ k0;
    c1 = b & 0xffffffff;
    c2 = static_cast<unsigned>(a >> 32) ^ c3 ^ k1;
    c3 = a & 0xffffffff;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}
// One word, without an index into registers.
KILN_INLINE int64_t philox_word(const PhiloxBlock& block, int word) {
  return word < 2 ? (word == 0 ? block.word[0] : block.word[1])
                  : (word == 2 ? block.word[2] : block.word[3]);
}

// The words at the positions `at` of the stream: each lane computes its block of four and keeps one.
KILN_INLINE vi64 philox(const vi64& seed, uint64_t stream, const vindex& at) {
  vi64 x;
  KILN_EACH_LANE x[l] = philox_word(
      philox_block(static_cast<uint64_t>(seed[l]), stream, static_cast<uint64_t>(at[l]) / 4),
      static_cast<int>(at[l] & 3));
  return x;
}
// At `first` and the lanes after it, `first` a multiple of four or of LANES: a block serves four.
KILN_INLINE vi64 philox_run(const vi64& seed, uint64_t stream, index_t first) {
  vi64 x;
  _Pragma("unroll") for (int l = 0; l < LANES; l += 4) {
    const PhiloxBlock block = philox_block(static_cast<uint64_t>(seed[0]), stream,
                                           static_cast<uint64_t>(first + l) / 4);
    const int from = LANES >= 4 ? 0 : static_cast<int>(first & 3);
    _Pragma("unroll") for (int w = 0; w < (LANES < 4 ? LANES : 4); ++w) x[l + w] =
        philox_word(block, from + w);
  }
  return x;
}

}  // namespace
