#include "coordinator/storage/needed_kernels.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

PlanFinished plan(const std::string& program, const std::vector<std::string>& kernels) {
  PlanFinished plan{Digest::of(program), Program{}, {}};
  for (const std::string& kernel : kernels) plan.kernels.emplace_back().key = Digest::of(kernel);
  return plan;
}
std::vector<Digest> digests(const std::vector<std::string>& names) {
  std::vector<Digest> digests;
  for (const std::string& name : names) digests.push_back(Digest::of(name));
  return digests;
}

TEST(NeededKernels, AreThoseOfProgramsThatHaveNotEnded) {
  NeededKernels needed;
  needed.planned(0, plan("p", {"a", "b"}));
  needed.planned(5, plan("q", {"c"}));
  needed.planned(5, PlanFinished{Digest::of("r"), fail(Code::kUnsupported, "no kernel"), {}});
  EXPECT_EQ(needed.kernels(10), digests({"a", "b", "c"}));
  needed.planned(20, plan("p", {"a"}));  // asked again
  EXPECT_EQ(needed.kernels(20), digests({"c", "a"}));
  needed.ended(Digest::of("q"));
  EXPECT_EQ(needed.kernels(30), digests({"a"}));
}

TEST(NeededKernels, NotForEverAndNotWithoutBound) {
  NeededKernels needed;
  needed.planned(0, plan("p", {"a"}));
  EXPECT_EQ(needed.kernels(NeededKernels::kLongestMs - 1).size(), 1u);
  EXPECT_TRUE(needed.kernels(NeededKernels::kLongestMs).empty());
  for (size_t i = 0; i <= NeededKernels::kMost; ++i)
    needed.planned(0, plan(std::to_string(i), {std::to_string(i)}));
  EXPECT_EQ(needed.kernels(1).front(), Digest::of("1"));
}

}  // namespace
}  // namespace kiln
