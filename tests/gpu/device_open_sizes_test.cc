// Kernels of every family whose sizes come at run time, on the device: compiled once, verified at
// the measured sizes and at the ends of their range.
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/open_workloads.h"
#include "tests/gpu/gpu_lab.h"
#include "worker/runner/verify.h"

namespace kiln::runner {
namespace {

class DeviceOpenSizes : public test::GpuTest {
 protected:
  // "" or what is wrong with the kernel of this schedule.
  Result<std::string> check(const Workload& workload, const Schedule& schedule) {
    TRY(const Source source, lower_to_source(workload, schedule, lab_->device()->facts().target()));
    TRY(const Artifact artifact, lab_->compile(source));
    TRY(const auto kernel, lab_->device()->load(artifact));
    TRY(PreparedWorkload sizes, PreparedWorkload::make(device(), print(workload.graph), 5));
    bool intact = true;
    TRY(const Verified verified, verify(
                                     *kernel, device(), sizes, [] {}, intact));
    return verified.verdict == Verdict::kOk ? "" : schedule.to_string() + ": " + verified.log;
  }
};

TEST_F(DeviceOpenSizes, AKernelOfEveryFamilyIsRightAtEverySize) {
  for (const testing::OpenWorkload& open : testing::open_workloads()) {
    SCOPED_TRACE(open.name);
    const Target target = lab_->device()->facts().target();
    if (open.family == Family::kProducts && target.isa != "sm_90a") continue;  // no plan has one
    const auto workload = testing::workload_of(open);
    ASSERT_TRUE(workload) << workload.error().message;
    const auto space = search_space(*workload, target);
    ASSERT_TRUE(space) << space.error().message;
    for (const size_t at : {size_t{0}, space->size() - 1}) {
      const auto wrong = check(*workload, (*space)[at]);
      ASSERT_TRUE(wrong) << wrong.error().message;
      EXPECT_EQ(*wrong, "");
    }
  }
}

}  // namespace
}  // namespace kiln::runner
