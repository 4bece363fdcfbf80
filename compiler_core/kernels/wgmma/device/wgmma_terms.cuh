// The threads that multiply compute the epilogue's values of all columns before their first tile. Rows
// read them from shared memory. LANES is 2.
namespace {

template <int count>
struct alignas(count % 2 == 0 ? 16 : 8) ColumnTerms {
  vf32 term[count];
};

// `compute(column)` is the ColumnTerms of two columns; `terms` has place for those of all.
template <class Ending, class Compute, class Terms>
struct TermsEnding {
  Ending ending;
  const Compute& compute;
  Terms* terms;
  bool are_there = false;

  KILN_MEMBER void make_barriers() const { ending.make_barriers(); }
  KILN_MEMBER void begin(const Tile& tile, int group) {
    if (!are_there) {
      constexpr int threads = Tiling::groups * 128;
      _Pragma("unroll 1") for (int pair = thread_index() - 128; pair < Tiling::all_columns / 2; pair += threads)
        terms[pair] = compute(pair * 2);
      numbered_barrier_wait<threads>(1);
      are_there = true;
    }
    ending.begin(tile, group);
  }
  template <class AnyTile>
  KILN_MEMBER void finish(const AnyTile& tile, int group,
                          const Accumulator (&sums)[kParts][Tiling::columns / 2]) {
    ending.finish(tile, group, sums);
  }
  KILN_MEMBER void end() const { ending.end(); }
};

}  // namespace
