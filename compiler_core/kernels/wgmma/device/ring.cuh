// Rings in shared memory that the copy engine fills and warpgroups empty.
namespace {

// A place in a ring of so many.
template <int count>
struct Slot {
  int number = 0, parity = 0;
  KILN_MEMBER void next() {
    if (++number < count) return;
    number = 0;
    parity ^= 1;
  }
};

}  // namespace
