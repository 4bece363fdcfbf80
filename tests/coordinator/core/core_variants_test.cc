// Candidates that are much like another: when they are tried, and what is reported of them.
#include <algorithm>
#include <map>
#include <set>

#include "tests/coordinator/core/tried_candidates.h"

namespace kiln {
namespace {

// By candidate: 0 leads 1, 2 leads 3 and 4.
PlannedKernel kernel_with_variants() {
  PlannedKernel planned = planned_kernel("k", 0);
  for (const int64_t rows : {16, 32})
    for (const int64_t shared : {0, 1})
      planned.schedules.push_back({"cpu.pointwise", {{"rows", rows}, {"shared", shared}}});
  std::swap(planned.schedules[1], planned.schedules[2]);
  planned.schedules.push_back({"cpu.pointwise", {{"rows", 64}, {"shared", 1}}});
  planned.has_variants = true;
  return planned;
}

class CoreVariants : public TriedCandidates {
 protected:
  // A worker with one slot, which has nothing else to do only before and after.
  void start(PlannedKernel planned, int slots = 1) {
    WorkerReport self = bench_.report_of("w");
    self.slots = slots;
    bench_.step(ReportReceived{"w", self});
    bench_.start({std::move(planned)});
  }
  // Candidates of `us` are right, in finals as long as they are not among `wrong_late`.
  void work_off(const std::map<int, double>& us, const std::set<int>& wrong_late = {}) {
    try_all([&](int i, bool is_final) {
      return us.contains(i) && !(is_final && wrong_late.contains(i)) ? us.at(i) : 0;
    });
  }
  const KernelReport& report() const { return bench_.kernels.at(0).kernel.report; }
};

TEST_F(CoreVariants, ArePassedOverWhereTheirOriginalIsFarBehind) {
  start(kernel_with_variants());
  work_off({{0, 100}, {1, 90}, {2, 150}, {3, 10}, {4, 10}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(winner(), kernel_with_variants().schedules[1].to_string());
  EXPECT_EQ(report().candidates, 3) << "as if they had not been listed";
  EXPECT_EQ(report().rejected, 0);
}

TEST_F(CoreVariants, AreTriedWhereTheirOriginalIsNear) {
  start(kernel_with_variants());
  work_off({{0, 100}, {1, 90}, {2, 105}, {3, 80}, {4, 95}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3, 4}));
  EXPECT_EQ(winner(), kernel_with_variants().schedules[3].to_string());
}

TEST_F(CoreVariants, AreTriedWhereTheirOriginalIsWrong) {
  start(kernel_with_variants());
  work_off({{0, 100}, {1, 120}, {3, 80}, {4, 95}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3, 4}));
  EXPECT_EQ(winner(), kernel_with_variants().schedules[3].to_string());
}

TEST_F(CoreVariants, AreTriedWhereNothingIsRight) {
  start(kernel_with_variants());
  work_off({{4, 95}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 2, 1, 3, 4}));
  EXPECT_EQ(winner(), kernel_with_variants().schedules[4].to_string());
}

TEST_F(CoreVariants, ThatWerePassedOverAreTriedWhereAllOthersProveWrongInTheirFinal) {
  PlannedKernel planned = planned_kernel("k", 0);
  for (const int64_t shared : {0, 1})
    for (const int64_t packed : {0, 1})
      planned.schedules.push_back(
          {"cpu.pointwise", {{"rows", 16}, {"shared", shared}, {"packed", packed}}});
  planned.schedules.push_back({"cpu.pointwise", {{"rows", 32}, {"shared", 1}, {"packed", 1}}});
  planned.has_variants = true;
  start(planned);
  work_off({{0, 100}, {1, 101}, {2, 150}, {3, 151}, {4, 200}}, {0, 1, 2, 3});
  EXPECT_EQ(tried_, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(winner(), planned.schedules[4].to_string());
  EXPECT_EQ(report().candidates, 5);
}

TEST_F(CoreVariants, AreTriedAtOnceByAWorkerThatHasNothingElseToDo) {
  start(kernel_with_variants(), 2);
  EXPECT_EQ(bench_.take<SendOrders>().back().orders.jobs.size(), 2u);
}

TEST_F(CoreVariants, AreCandidatesLikeOthersWhereTheyAreNotLookedFor) {
  PlannedKernel planned = kernel_with_variants();
  planned.has_variants = false;
  start(planned);
  work_off({{0, 100}, {1, 90}, {2, 150}, {3, 200}, {4, 200}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(CoreVariants, AreJudgedByRecordsOfAnEarlierIncarnation) {
  PlannedKernel planned = kernel_with_variants();
  planned.records = {record_of(planned, 0, 100), record_of(planned, 2, 150)};
  start(planned);
  work_off({{0, 100}, {1, 90}});
  EXPECT_EQ(std::ranges::count(tried_, 3) + std::ranges::count(tried_, 4), 0);
  EXPECT_EQ(std::ranges::count(tried_, 1), 1);
}

TEST_F(CoreVariants, AreNoneOfWhatIsInReserve) {
  PlannedKernel planned = kernel_with_variants();
  planned.schedules[2].template_name = "cpu.vector";
  planned.reserves = {"cpu.vector"};
  start(planned);
  work_off({{0, 100}, {1, 90}, {3, 101}, {4, 99}});
  EXPECT_EQ(tried_, (std::vector<int>{0, 3, 1, 4})) << "3 leads 4";
}

}  // namespace
}  // namespace kiln
