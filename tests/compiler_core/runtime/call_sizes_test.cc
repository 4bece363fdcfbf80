#include "compiler_core/runtime/call_sizes.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Dim kSize = Dim::symbol(0);

// in f32[s0] -> t f32[s0] -> out f32[s0], by a kernel that calls the size s1.
Program chain() {
  Program program;
  const TensorSpec spec{DType::kF32, {kSize}}, own{DType::kF32, {Dim::symbol(1)}};
  program.kernels.resize(1);
  program.kernels[0].recipe = {{own}, {own}, {{"k", Grid({{Dim::symbol(1), 64}})}}, 0, 0};
  program.kernels[0].recipe.workspace_bytes = Dim::symbol(1) * 8;
  program.buffers = {{Buffer::Kind::kInput, 0, spec, 0},
                     {Buffer::Kind::kTemporary, 0, spec, kSize * 64},
                     {Buffer::Kind::kOutput, 0, spec, 0}};
  program.launches = {{0, {0, 1}, {5, kSize}}, {0, {1, 2}, {5, kSize * 2}}};
  program.output_buffers = {2};
  program.arena_bytes = kSize * 128;
  program.symbols = {{0, 4096, 31}};
  return program;
}

Result<CallSizes> sizes_of(const Program& program, std::vector<int64_t> symbols) {
  return sizes_of_call(program, symbols);
}

TEST(CallSizes, AreWhatTheManifestSaysForTheSymbols) {
  const auto sizes = sizes_of(chain(), {100});
  ASSERT_TRUE(sizes) << sizes.error().message;
  EXPECT_EQ(sizes->symbols, std::vector<int64_t>{100});
  EXPECT_EQ(sizes->arena_bytes, 12800);
  EXPECT_EQ(sizes->workspace_bytes, 1600) << "of the launch that needs most";
  EXPECT_EQ(sizes->bytes, (std::vector<int64_t>{400, 400, 400}));
  EXPECT_EQ(sizes->offsets, (std::vector<int64_t>{0, 6400, 0}));
  EXPECT_EQ(sizes->launches[0].dims, (std::vector<int64_t>{5, 100}));
  EXPECT_EQ(sizes->launches[1].dims, (std::vector<int64_t>{5, 200}));
  EXPECT_FALSE(sizes->launches[0].empty);
}

TEST(CallSizes, ALaunchThatWritesNothingIsLeftOut) {
  const auto sizes = sizes_of(chain(), {0});
  ASSERT_TRUE(sizes);
  EXPECT_TRUE(sizes->launches[0].empty);
}

TEST(CallSizes, SizesThatMakeNoSenseAreTheCallersError) {
  const auto refused = [](const Program& program, std::vector<int64_t> symbols) {
    const auto sizes = sizes_of(program, std::move(symbols));
    EXPECT_TRUE(sizes || sizes.error().code == Code::kInvalidArgument);
    return !sizes;
  };
  Program program = chain();
  EXPECT_TRUE(refused(program, {}));
  EXPECT_TRUE(refused(program, {1, 2}));
  EXPECT_TRUE(refused(program, {-1}));
  EXPECT_TRUE(refused(program, {4097}));
  program.guards = {{kSize, 8, 64}};
  EXPECT_TRUE(refused(program, {7}));
  EXPECT_FALSE(refused(program, {8}));
  program.symbols[0].max = INT64_MAX;
  program.guards = {{kSize * kSize, 0, INT64_MAX}};
  EXPECT_TRUE(refused(program, {int64_t{1} << 32})) << "a guard that overflows";
  program.guards.clear();
  EXPECT_TRUE(refused(program, {INT64_MAX / 2})) << "memory that overflows";
  program.arena_bytes = kSize - 8;
  EXPECT_TRUE(refused(program, {7})) << "memory below zero";
}

TEST(CallSizes, TemporariesLieInTheArenaAtTheirOffsets) {
  const Program program = chain();
  const auto sizes = sizes_of(program, {2});
  ASSERT_TRUE(sizes);
  const std::vector<uint64_t> inputs = {16}, outputs = {48};
  std::vector<uint64_t> placed;
  place_buffers(program, inputs, outputs, 4096, *sizes, placed);
  EXPECT_EQ(placed, (std::vector<uint64_t>{16, 4096 + 128, 48}));
}

}  // namespace
}  // namespace kiln
