// The cubins are of cubins/two_kernels.cu, by NVRTC 13.0; `ptxas -v` of the same PTX said, of sm_80:
//   spilling: 1328 bytes stack frame, 32 registers, 1024 bytes smem; plain: 0 bytes, 8 registers
// and of sm_90a:
//   spilling: 1456 bytes stack frame, 32 registers, 1024 bytes smem; plain: 0 bytes, 8 registers
#include "compiler_core/program/cubin_resources.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "compiler_core/base/file.h"

namespace kiln {
namespace {

std::string cubin(const char* architecture) {
  return read_file(Path(KILN_SOURCE_DIR "/tests/compiler_core/program/cubins") /
                   fmt::format("two_kernels.{}.cubin", architecture))
      .value();
}

TEST(CubinResources, AreThoseOfPtxas) {
  Recipe recipe;
  recipe.phases.emplace_back();
  recipe.phases.back().shared_bytes = 512;
  EXPECT_EQ(resources_of(cubin("sm_80"), {}), (CubinResources{32, 1328, 1024}));
  EXPECT_EQ(resources_of(cubin("sm_80"), recipe), (CubinResources{32, 1328, 1024 + 512}));
  EXPECT_EQ(resources_of(cubin("sm_90a"), {}), (CubinResources{32, 1456, 1024 + 1024}));
}

TEST(CubinResources, AreNotKnownOfAnotherBinary) {
  EXPECT_EQ(resources_of("", {}), std::nullopt);
  EXPECT_EQ(resources_of("// text", {}), std::nullopt);
  std::string shared_object = cubin("sm_80");
  shared_object[18] = 62;  // x86-64
  EXPECT_EQ(resources_of(shared_object, {}), std::nullopt);
}

TEST(CubinResources, OfDamagedBytesAreHarmless) {
  const std::string whole = cubin("sm_90a");
  const size_t table = 19'768;  // of sections; program headers follow, which nothing needs
  for (size_t size = 0; size < table; size += 7)
    EXPECT_EQ(resources_of(whole.substr(0, size), {}), std::nullopt) << size;
  std::mt19937 random(1);
  for (int n = 0; n < 20'000; ++n) {
    std::string damaged = whole;
    for (int i = 0; i < 8; ++i) {
      // The header, and the end, with the table of sections.
      const size_t at = random() % 2 == 0 ? random() % 64 : damaged.size() - 1 - random() % 4096;
      damaged[at] = static_cast<char>(random());
    }
    const auto read = resources_of(damaged, {});
    EXPECT_TRUE(!read || read->registers > 0);
  }
}

TEST(CubinResources, AreReadBackFromTheirText) {
  const CubinResources resources{255, 1456, 233'472};
  EXPECT_EQ(to_string(resources),
            "255 registers, 1456 bytes of local memory, 233472 bytes of shared memory");
  EXPECT_EQ(parse_cubin_resources(to_string(resources)), resources);
  for (const char* text : {"", "32 registers", "ptxas error: out of registers",
                           "-1 registers, 0 bytes of local memory, 0 bytes of shared memory",
                           "1 registers, 0 bytes of local memory, 0 bytes of shared memory!",
                           "9999999999999999999 registers, 0 bytes of local memory, 0 bytes of "
                           "shared memory"})
    EXPECT_EQ(parse_cubin_resources(text), std::nullopt) << text;
}

}  // namespace
}  // namespace kiln
