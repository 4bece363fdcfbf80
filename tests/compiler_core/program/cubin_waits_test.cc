#include "compiler_core/program/cubin_waits.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler_core/base/file.h"

namespace kiln {
namespace {

// Of cubins/waits.cu.
std::string waiting_cubin() {
  return read_file(Path(KILN_SOURCE_DIR "/tests/compiler_core/program/cubins/waits.sm_90a.cubin"))
      .value();
}

Phase early_phase(const char* entry) {
  Phase phase{entry, 1, 32};
  phase.dependent_launch = DependentLaunch::kAtOnce;
  return phase;
}

TEST(CubinWaits, AreFoundInMachineCode) {
  const std::string cubin = waiting_cubin();
  EXPECT_EQ(waits_before_it_reads(cubin, "waits"), true);
  EXPECT_EQ(waits_before_it_reads(cubin, "only_writes"), true);
  EXPECT_EQ(waits_before_it_reads(cubin, "reads"), false);
  EXPECT_EQ(waits_before_it_reads(cubin, "never_waits"), false);
}

TEST(CubinWaits, OfAnotherBinaryOrEntryAreNotKnown) {
  EXPECT_EQ(waits_before_it_reads("", "waits"), std::nullopt);
  EXPECT_EQ(waits_before_it_reads("// text", "waits"), std::nullopt);
  EXPECT_EQ(waits_before_it_reads(waiting_cubin(), "wait"), std::nullopt);
}

TEST(CubinWaits, AKernelThatReadsFirstIsLaunchedBehindAll) {
  Recipe recipe;
  recipe.phases = {early_phase("waits"), early_phase("reads"), early_phase("reads")};
  recipe.phases[2].arguments = {{KernelArgument::Kind::kReady, 0}};  // it may read that
  const Recipe safe = with_safe_launches(recipe, waiting_cubin());
  EXPECT_EQ(safe.phases[0], recipe.phases[0]);
  EXPECT_EQ(safe.phases[1].dependent_launch, DependentLaunch::kNo);
  EXPECT_EQ(safe.phases[2], recipe.phases[2]);
  EXPECT_EQ(with_safe_launches(recipe, "// text"), recipe);
}

TEST(CubinWaits, OfDamagedBytesAreHarmless) {
  const std::string whole = waiting_cubin();
  for (size_t size = 0; size < whole.size(); size += 5)
    waits_before_it_reads(whole.substr(0, size), "waits");
  std::mt19937 random(1);
  int known = 0;
  for (int n = 0; n < 20'000; ++n) {
    std::string damaged = whole;
    for (int i = 0; i < 8; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    known += waits_before_it_reads(damaged, "waits").has_value();
  }
  EXPECT_GT(known, 0);
  EXPECT_LT(known, 20'000);
}

}  // namespace
}  // namespace kiln
