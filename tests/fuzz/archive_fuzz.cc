// Files as torch.export.save might not have written them: a whole archive, read and lowered.
#include <sys/mman.h>
#include <unistd.h>

#include "compiler_core/base/check.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  return files_of(".pt2", 60'000);
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = ::memfd_create("archive", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  CHECK(
      ::ftruncate(memory, 0) == 0 && ::pwrite(memory, data, size, 0) == static_cast<ssize_t>(size),
      "memory takes the archive");
  const auto program = kiln::read_exported_program(path);
  if (program) CHECK(kiln::verify(program->graph), "a graph that was read is valid");
  return 0;
}
