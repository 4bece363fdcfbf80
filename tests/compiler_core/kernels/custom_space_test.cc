#include "compiler_core/kernels/custom/custom.h"

#include <gtest/gtest.h>

#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/ir/sample_custom_op.h"

namespace kiln {
namespace {

Workload workload_of(const CustomOp& op) {
  GraphBuilder b;
  const NodeId in[] = {b.input(DType::kF32, {40}), b.input(DType::kF32, {40})};
  const auto graph = b.finish({op.call(b, in)});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made->workload;
}

Target cpu() {
  return *Target::parse("cpu:x86-64-v3");
}

std::vector<std::string> texts(const CustomOp& op, const Target& target = cpu()) {
  const auto space = search_space(workload_of(op), target);
  EXPECT_TRUE(space.has_value()) << space.error().message;
  std::vector<std::string> lines;
  for (const Schedule& schedule : *space) {
    lines.push_back(schedule.to_string());
    EXPECT_EQ(Schedule::parse(lines.back()).value(), schedule);
  }
  return lines;
}

TEST(CustomSpace, NearestToTheAuthorsGuessFirst) {
  CustomOp op = testing::swish_op();
  EXPECT_EQ(texts(op),
            (std::vector<std::string>{"custom UNROLL=4", "custom UNROLL=1", "custom UNROLL=16"}));
  EXPECT_EQ(texts(op, *Target::parse("cuda:sm_90a")),
            (std::vector<std::string>{"custom STEPS=2", "custom STEPS=1"}));
  op.kernels[0].decisions.push_back({"fast", {1, 0, 1}});
  EXPECT_EQ(texts(op),
            (std::vector<std::string>{"custom UNROLL=4 fast=1", "custom UNROLL=4 fast=0",
                                      "custom UNROLL=1 fast=1", "custom UNROLL=16 fast=1",
                                      "custom UNROLL=1 fast=0", "custom UNROLL=16 fast=0"}));
  op.kernels[0].decisions.clear();
  op.kernels[0].block = "64";
  EXPECT_EQ(texts(op), (std::vector<std::string>{"custom"}));
}

TEST(CustomSpace, IsBounded) {
  CustomOp op = testing::swish_op();
  for (int d = 0; d < 12; ++d) {
    CustomDecision decision{"D" + std::to_string(d), {}};
    for (int64_t v = 0; v < 64; ++v) decision.values.push_back(v);
    op.kernels[0].decisions.push_back(decision);
  }
  const auto lines = texts(op);
  EXPECT_EQ(lines.size(), kMostCustomCandidates);
  EXPECT_EQ(lines[0].find("UNROLL=4 D0=0 D1=0"), std::string("custom ").size());
}

TEST(CustomSpace, ABackendWithoutAKernelIsRefusedByName) {
  CustomOp op = testing::swish_op();
  op.kernels.pop_back();
  const auto space = search_space(workload_of(op), *Target::parse("cuda:sm_90a"));
  ASSERT_FALSE(space.has_value());
  EXPECT_EQ(space.error().code, Code::kUnsupported);
  EXPECT_NE(space.error().message.find("tests::swish_bias has no kernel for cuda"),
            std::string::npos)
      << space.error().message;
}

TEST(CustomSpace, OnlyListedValuesAreTaken) {
  const CustomOp op = testing::swish_op();
  const auto values = [&](const std::string& text) {
    return custom_values(op.kernels[0], *Schedule::parse(text));
  };
  EXPECT_EQ(values("custom UNROLL=16").value(), (std::vector<int64_t>{16}));
  EXPECT_EQ(values("custom").value(), (std::vector<int64_t>{4}));
  EXPECT_FALSE(values("custom UNROLL=5"));
  EXPECT_FALSE(values("pointwise UNROLL=4"));
}

}  // namespace
}  // namespace kiln
