// `fuzz_X --write-corpus DIR`, of a target that libFuzzer drives.
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "--write-corpus") return 0;
  kiln::fuzz::write_corpus((*argv)[2]);
  std::exit(0);
}
