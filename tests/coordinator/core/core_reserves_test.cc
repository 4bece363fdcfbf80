// Candidates that are expected to be far behind: when they are tried, and what is reported of them.
#include <algorithm>
#include <set>

#include "tests/coordinator/core/tried_candidates.h"

namespace kiln {
namespace {

// Candidates 1 and 3 are of the template that is in reserve.
PlannedKernel kernel_with_reserves() {
  PlannedKernel planned = planned_kernel("k", 4);
  for (const size_t i : {1, 3}) planned.schedules[i].template_name = "cpu.vector";
  planned.reserves = {"cpu.vector"};
  return planned;
}

class CoreReserves : public TriedCandidates {
 protected:
  // Those of `wrong` are wrong, those of `wrong_late` in finals alone. All take about as long.
  void work_off(const std::set<int>& wrong, const std::set<int>& wrong_late = {}) {
    try_all([&](int i, bool is_final) {
      return wrong.contains(i) || (is_final && wrong_late.contains(i)) ? 0 : 100.0 + i;
    });
  }
};

TEST_F(CoreReserves, AreNotTriedWhereAnotherIsRight) {
  bench_.report("w");
  bench_.start({kernel_with_reserves()});
  work_off({2});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2}));
  EXPECT_EQ(winner(), kernel_with_reserves().schedules[0].to_string());
  const KernelReport& report = bench_.kernels.at(0).kernel.report;
  EXPECT_EQ(report.candidates, 2) << "as if they had not been listed";
  EXPECT_EQ(report.measured, 1);
  EXPECT_EQ(report.rejected, 1);
}

TEST_F(CoreReserves, AreTriedWhereNoOtherIsRight) {
  bench_.report("w");
  bench_.start({kernel_with_reserves()});
  work_off({0, 2});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(winner(), kernel_with_reserves().schedules[1].to_string());
  EXPECT_EQ(bench_.kernels.at(0).kernel.report.candidates, 4);
}

TEST_F(CoreReserves, AreTriedWhereTheOthersProveWrongInTheirFinal) {
  bench_.report("w");
  const PlannedKernel planned = kernel_with_reserves();
  bench_.start({planned});
  work_off({}, {0, 2});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(winner(), planned.schedules[1].to_string());
}

TEST_F(CoreReserves, StayInReserveWhereAnEarlierRecordIsRight) {
  PlannedKernel planned = kernel_with_reserves();
  planned.records = {record_of(planned, 0, 10)};
  bench_.report("w");
  bench_.start({planned});
  work_off({2});
  EXPECT_EQ(std::ranges::count(tried_, 1) + std::ranges::count(tried_, 3), 0);
  EXPECT_EQ(winner(), planned.schedules[0].to_string());
}

TEST_F(CoreReserves, FailWithTheOthersWhereNoneIsRight) {
  bench_.report("w");
  bench_.start({kernel_with_reserves()});
  work_off({0, 1, 2, 3});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3}));
  const auto answers = bench_.take<Answer>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(bench_.kernels.empty());
}

}  // namespace
}  // namespace kiln
