// What ptxas says of a kernel, from logs as NVRTC 13.0 gives them.
#include <gtest/gtest.h>

#include "compiler_core/compile/nvrtc.h"

namespace kiln {
namespace {

TEST(NvrtcLog, TheGreatestOfEachOverTheEntriesCounts) {
  const KernelResources found = parse_resources(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'spill' for 'sm_90a'\n"
      "ptxas info    : Function properties for spill\n"
      "ptxas         .     928 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers, 928 bytes cumulative stack size\n"
      "ptxas info    : Compile time = 88.362 ms\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 140 registers, used 1 barriers, 1024 bytes smem\n"
      "ptxas info    : Compile time = 3.439 ms\n");
  EXPECT_EQ(found, (KernelResources{140, 0, 928, 1024}));
}

TEST(NvrtcLog, SpillsAreStoresAndLoads) {
  const KernelResources found = parse_resources(
      "ptxas         .     88 bytes stack frame, 120 bytes spill stores, 136 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 0 barriers, 88 bytes cumulative stack size");
  EXPECT_EQ(found, (KernelResources{32, 256, 88, 0}));
}

TEST(NvrtcLog, ALogOfNothingIsNothing) {
  EXPECT_EQ(parse_resources(""), KernelResources{});
  EXPECT_EQ(parse_resources("no registers, 99999999999999999999 registers\n\n bytes smem"),
            KernelResources{});
}

}  // namespace
}  // namespace kiln
