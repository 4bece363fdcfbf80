#include <gtest/gtest.h>

#include "compiler_core/runtime/call_sizes.h"
#include "compiler_core/runtime/kernel.h"

namespace kiln {
namespace {

// Buffers of 64 bytes: two inputs, two outputs, then temporaries, one behind the other.
enum : int { kIn0, kIn1, kOut0, kOut1, kTemp0, kTemp1, kTemp2, kTemp3 };

class LaunchSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    const TensorSpec spec{DType::kI64, {Dim(8)}};
    program_.kernels.resize(1);
    program_.kernels[0].recipe.inputs = {spec};
    program_.kernels[0].recipe.outputs = {spec};
    program_.kernels[0].recipe.phases = {{"kernel", Dim(2)}};
    using enum Buffer::Kind;
    for (const auto& [kind, index] : std::vector<std::pair<Buffer::Kind, int>>{
             {kInput, 0}, {kInput, 1}, {kOutput, 0}, {kOutput, 1}})
      program_.buffers.push_back({kind, index, spec, Dim(0)});
    for (int i = 0; i < 4; ++i)
      program_.buffers.push_back({kTemporary, 0, spec, Dim(int64_t{64} * i)});
    program_.output_buffers = {kOut0, kOut1};
    program_.arena_bytes = Dim(256);
  }

  // Each launch: from one buffer to another.
  std::vector<LaunchStep> steps(const std::vector<std::pair<int, int>>& launches) {
    program_.launches.clear();
    for (const auto& [from, to] : launches) program_.launches.push_back({0, {from, to}});
    const auto sizes = sizes_of_call(program_, {});
    EXPECT_TRUE(sizes);
    return steps_of(program_, *sizes, Kernel::kMostSideBySide);
  }
  using Steps = std::vector<LaunchStep>;

  Program program_;
};

TEST_F(LaunchSteps, LaunchesThatOnlyShareWhatTheyReadAreOneStep) {
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn0, kTemp1}, {kIn1, kTemp2}}), (Steps{{0, 1, 2}}));
}

TEST_F(LaunchSteps, WhatReadsAResultWaitsForIt) {
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn0, kTemp1}, {kTemp0, kTemp2}, {kTemp1, kTemp3}}),
            (Steps{{0, 1}, {2, 3}}));
}

TEST_F(LaunchSteps, WhatIsReadIsNotWrittenOverMeanwhile) {
  EXPECT_EQ(steps({{kTemp0, kTemp1}, {kIn0, kTemp0}}), (Steps{{0}, {1}}));
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn1, kTemp0}}), (Steps{{0}, {1}}));
}

TEST_F(LaunchSteps, TemporariesThatShareMemoryAreOneBuffer) {
  program_.buffers[kTemp3].arena_offset = Dim(32);
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn0, kTemp3}}), (Steps{{0}, {1}}));
  EXPECT_EQ(steps({{kTemp1, kTemp2}, {kIn0, kTemp3}}), (Steps{{0}, {1}}));
  EXPECT_EQ(steps({{kIn0, kTemp2}, {kIn0, kTemp3}}), (Steps{{0, 1}}));
}

// A caller may give one memory for both.
TEST_F(LaunchSteps, AnInputAndAnOutputStayApart) {
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kTemp1, kOut0}}), (Steps{{0}, {1}}));
  EXPECT_EQ(steps({{kTemp0, kOut0}, {kTemp0, kOut1}}), (Steps{{0, 1}}));
}

TEST_F(LaunchSteps, SeveralPhasesOrAWorkspaceAreAStepOfTheirOwn) {
  const std::vector<std::pair<int, int>> launches = {{kIn0, kTemp0}, {kIn0, kTemp1}};
  program_.kernels[0].recipe.workspace_bytes = Dim(64);
  EXPECT_EQ(steps(launches), (Steps{{0}, {1}}));
  program_.kernels[0].recipe.workspace_bytes = Dim(0);
  program_.kernels[0].recipe.phases.push_back({"second", Dim(2)});
  EXPECT_EQ(steps(launches), (Steps{{0}, {1}}));
}

TEST_F(LaunchSteps, ALaunchOfOneBlockStaysOnTheCallingCore) {
  program_.kernels[0].recipe.phases = {{"kernel", Dim(1)}};
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn0, kTemp1}}), (Steps{{0}, {1}}));
}

TEST_F(LaunchSteps, WhatWritesNothingIsInNone) {
  program_.buffers[kTemp1].spec.shape = {Dim(0)};
  EXPECT_EQ(steps({{kIn0, kTemp0}, {kIn0, kTemp1}, {kIn0, kTemp2}}), (Steps{{0, 2}}));
}

TEST_F(LaunchSteps, AStepIsNoLongerThanTheRuntimeTakes) {
  const size_t most = Kernel::kMostSideBySide;
  for (size_t i = 0; i <= most; ++i)
    program_.buffers.push_back(
        {Buffer::Kind::kTemporary, 0, program_.buffers[0].spec, Dim(int64_t{64} * i)});
  std::vector<std::pair<int, int>> launches;
  for (size_t i = 0; i <= most; ++i) launches.emplace_back(kIn0, kTemp3 + 1 + static_cast<int>(i));
  const Steps cut = steps(launches);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].size(), most);
}

}  // namespace
}  // namespace kiln
