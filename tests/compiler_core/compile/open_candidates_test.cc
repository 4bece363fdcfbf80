// Kernels of every family whose sizes come at run time, through the real NVRTC: what no GPU is
// needed to notice. Skipped where there is no NVRTC.
#include <gtest/gtest.h>

#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/compile/in_registers.h"
#include "tests/compiler_core/kernels/open_workloads.h"

namespace kiln {
namespace {

class OpenCandidates : public ::testing::TestWithParam<const char*> {};

TEST_P(OpenCandidates, CompileAndStayInRegisters) {
  const auto nvrtc = Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  Target target = *Target::parse(GetParam());
  target.units = target.isa == "sm_80" ? 108 : 132;
  for (const testing::OpenWorkload& open : testing::open_workloads()) {
    if (open.family == Family::kProducts && target.isa != "sm_90a") continue;  // no plan has one
    const auto workload = testing::workload_of(open);
    ASSERT_TRUE(workload) << open.name << ": " << workload.error().message;
    const auto space = search_space(*workload, target);
    ASSERT_TRUE(space) << open.name << ": " << space.error().message;
    const size_t count = std::min<size_t>(space->size(), 2);
    for (size_t i = 0; i < count; ++i) {
      const Schedule& schedule = (*space)[i * space->size() / count];
      const std::string name = std::string(open.name) + ", " + schedule.to_string() + ": ";
      const auto source = lower_to_source(*workload, schedule, target);
      ASSERT_TRUE(source) << name << source.error().message;
      testing::expect_in_registers(*nvrtc, *source, target, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OpenCandidates, ::testing::Values("cuda:sm_80", "cuda:sm_90a"),
                         [](const auto& test) { return std::string(test.param).substr(5); });

}  // namespace
}  // namespace kiln
