#include "compiler_core/runtime/program_layout.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Program two_kernels() {
  Program program;
  program.kernels.resize(2);
  program.kernels[0].recipe.workspace_bytes = Dim(64);
  program.kernels[1].recipe.workspace_bytes = Dim::symbol(0) * Dim(8);
  program.arena_bytes = Dim(128);
  return program;
}

TEST(ProgramLayout, OneWorkspaceServesEveryKernelInTurn) {
  const Program program = two_kernels();
  EXPECT_FALSE(has_constant_memory_need(program));
  const auto small = memory_need(program, std::vector<int64_t>{1});
  ASSERT_TRUE(small);
  EXPECT_EQ(small->workspace_bytes, 64);
  EXPECT_EQ(small->arena_bytes, 128);
  EXPECT_EQ(memory_need(program, std::vector<int64_t>{100})->workspace_bytes, 800);
}

TEST(ProgramLayout, SizesThatMakeNoSenseAreTheCallersError) {
  const Program program = two_kernels();
  EXPECT_EQ(memory_need(program, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(memory_need(program, std::vector<int64_t>{-1}).error().code, Code::kInvalidArgument);
}

TEST(ProgramLayout, TemporariesLieInTheArenaAtTheirOffsets) {
  Program program;
  program.buffers = {{Buffer::Kind::kOutput, 1, {}, Dim(0)},
                     {Buffer::Kind::kTemporary, 0, {}, Dim::symbol(0) * Dim(64)},
                     {Buffer::Kind::kInput, 0, {}, Dim(0)}};
  const std::vector<uint64_t> inputs = {16}, outputs = {32, 48};
  std::vector<uint64_t> placed;
  ASSERT_TRUE(
      place_buffers<uint64_t>(program, inputs, outputs, 4096, std::vector<int64_t>{2}, placed));
  EXPECT_EQ(placed, (std::vector<uint64_t>{48, 4096 + 128, 16}));
}

}  // namespace
}  // namespace kiln
