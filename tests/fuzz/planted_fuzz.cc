// No parser: it dies in the way its input names, so that keeps_input.sh sees whether the driver
// keeps what killed it.
#include <csignal>
#include <cstdlib>

#include "compiler_core/base/check.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

// Not to be seen through by the optimiser.
volatile int zero = 0;

// Deeper than any stack.
int recurse(int depth) {
  volatile char frame[4096] = {};
  frame[0] = 1;
  return depth == 0 ? 0 : recurse(depth - frame[0]) + frame[1];
}

}  // namespace

std::vector<std::string> seeds() {
  return {"harmless"};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kiln::fuzz::zero;
  const std::string_view text = kiln::fuzz::text_of(data, size);
  CHECK(text != "check", "planted");
  if (text == "null") return *reinterpret_cast<volatile int*>(static_cast<intptr_t>(zero));
  if (text == "divide") return static_cast<int>(size) / zero;
  if (text == "stack") return kiln::fuzz::recurse(1 << 30);
  if (text == "heap") {  // seen by a sanitizer alone
    const std::vector<char> copy(8);
    const volatile char* bytes = copy.data();
    return bytes[64 + zero];
  }
  if (text == "bus") std::raise(SIGBUS);
  return 0;
}
