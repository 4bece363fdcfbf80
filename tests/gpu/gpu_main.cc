// gpu_test: the tests that need a GPU, or what passes for one. Runs from anywhere.
//
//   gpu_test [--runner=FILE] [--libcuda=FILE] [--libnvrtc=FILE] [GoogleTest's options]
//
// Without them: kiln-runner beside this program or in ../bin, $KILN_LIBCUDA and $KILN_LIBNVRTC or
// the libraries' usual places. Every test is skipped where there is no GPU.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "tests/gpu/gpu_lab.h"

namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string usual_runner() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path beside = here / "kiln-runner";
  return fs::exists(beside) ? beside : here / "../bin/kiln-runner";
}

// "--NAME=VALUE" into `value`.
bool take(std::string_view word, std::string_view name, std::string& value) {
  if (!word.starts_with(name) || word.substr(name.size(), 1) != "=") return false;
  value = word.substr(name.size() + 1);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  kiln::test::GpuFlags flags;
  flags.libcuda = environment("KILN_LIBCUDA");
  flags.libnvrtc = environment("KILN_LIBNVRTC");
  flags.runner = usual_runner();
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (take(word, "--runner", flags.runner) || take(word, "--libcuda", flags.libcuda) ||
        take(word, "--libnvrtc", flags.libnvrtc))
      continue;
    std::cerr << "gpu_test: unknown option " << word << "\n";
    return 2;
  }
  kiln::test::GpuLab::set_flags(std::move(flags));
  return RUN_ALL_TESTS();
}
