// Products of 8-bit floats and 8-bit integers on the tensor cores of compute capability 9.0, run on the
// fake GPU, which adds products of 8-bit floats as coarsely as those do.
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"
#include "tests/support/fake_cuda/host_launch.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::kHopper;
using testing::random_inputs;
using testing::workload_of;

std::string check_staged_narrow(const Workload& workload, const WgmmaMatmulSchedule& schedule,
                                const Target& target = kHopper) {
  const Status covered = check_wgmma(workload);
  if (!covered) return covered.error().message;
  return check_with_random_inputs(workload, to_schedule(schedule), target);
}

// x, of 8 bits, as what is multiplied.
NodeId widened(GraphBuilder& b, NodeId x, DType type) {
  return is_half(type) ? b.cast(b.cast(x, DType::kF32), type) : b.cast(x, type);
}

struct ProductSizes {
  int64_t m, n, k;
};
// [m, k] times the transpose of [n, k], in f32 or i32.
NodeId product(GraphBuilder& b, DType a, DType w, ProductSizes s, DType wide) {
  const NodeId x = widened(b, b.input(a, {s.m, s.k}), wide);
  const NodeId y = widened(b, b.permute(b.input(w, {s.n, s.k}), {1, 0}), wide);
  return b.matmul(x, y);
}
Workload floats(DType a, DType w, ProductSizes sizes) {
  GraphBuilder b;
  return workload_of(b, b.cast(product(b, a, w, sizes, DType::kBF16), DType::kBF16));
}
Workload integers(DType a, DType w, ProductSizes sizes) {
  GraphBuilder b;
  return workload_of(b, product(b, a, w, sizes, DType::kI32));
}

constexpr DType kE4 = DType::kF8E4M3, kE5 = DType::kF8E5M2;

TEST(WgmmaNarrow, FloatsOfEveryPairOfTypesAgree) {
  for (const DType a : {kE4, kE5})
    for (const DType b : {kE4, kE5})
      for (const ProductSizes sizes : {ProductSizes{128, 128, 256}, ProductSizes{104, 72, 176}})
        EXPECT_EQ(check_staged_narrow(floats(a, b, sizes), {64, 64, 1, 3, 8}), "");
}

TEST(WgmmaNarrow, IntegersOfEveryPairOfTypesAgreeExactly) {
  for (const DType a : {DType::kI8, DType::kU8})
    for (const DType b : {DType::kI8, DType::kU8})
      for (const ProductSizes sizes : {ProductSizes{128, 128, 256}, ProductSizes{70, 77, 144}})
        EXPECT_EQ(check_staged_narrow(integers(a, b, sizes), {64, 64, 1, 3, 8}), "");
}

TEST(WgmmaNarrow, EveryTileAgrees) {
  const Workload f8 = floats(kE4, kE4, {264, 280, 272});
  const Workload i8 = integers(DType::kI8, DType::kI8, {264, 280, 272});
  for (const auto& [bm, bn, groups] :
       {std::array{128, 192, 2}, {256, 128, 2}, {192, 128, 3}, {64, 32, 1}}) {
    EXPECT_EQ(check_staged_narrow(f8, {bm, bn, groups, 3, 8}), "") << bm << 'x' << bn;
    EXPECT_EQ(check_staged_narrow(i8, {bm, bn, groups, 3, 8}), "") << bm << 'x' << bn;
  }
  EXPECT_EQ(check_staged_narrow(i8, {128, 256, 2, 3, 8}), "");
}

TEST(WgmmaNarrow, TinyProductsAgree) {
  for (const ProductSizes sizes : {ProductSizes{1, 8, 16}, ProductSizes{2, 2, 16},
                                   ProductSizes{3, 5, 48}, ProductSizes{65, 33, 128}}) {
    EXPECT_EQ(check_staged_narrow(floats(kE4, kE5, sizes), {64, 32, 1, 2, 8}), "") << sizes.m;
    EXPECT_EQ(check_staged_narrow(integers(DType::kI8, DType::kI8, sizes), {64, 32, 1, 2, 8}), "")
        << sizes.m;
  }
}

TEST(WgmmaNarrow, ABlockTakesSeveralTiles) {
  Target few = kHopper;
  few.units = 2;
  for (const int stages : {2, 3, 4})
    EXPECT_EQ(check_staged_narrow(floats(kE4, kE4, {200, 224, 656}), {64, 64, 1, stages, 2}, few),
              "");
}

// Scales of rows, columns and the whole, as _scaled_mm has them, and a bias.
TEST(WgmmaNarrow, ScalesAreAppliedBehindTheProduct) {
  GraphBuilder b;
  const Shape shape = {136, 104};
  const NodeId sums = product(b, kE4, kE4, {136, 104, 256}, DType::kBF16);
  const auto times = [&](NodeId x, Shape scale) {
    return b.binary(Op::kMul, x, b.broadcast(b.input(DType::kF32, std::move(scale)), Shape(shape)));
  };
  const NodeId scaled = times(times(sums, {136, 1}), {1, 104});
  const NodeId bias = b.broadcast(b.cast(b.input(DType::kBF16, {104}), DType::kF32), Shape(shape));
  EXPECT_EQ(
      check_staged_narrow(workload_of(b, b.cast(b.binary(Op::kAdd, scaled, bias), DType::kBF16)),
                          {128, 64, 2, 3, 8}),
      "");
}

TEST(WgmmaNarrow, AgreesForAnyNumberOfRows) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({0, 1 << 20}, 70));
  const Shape shape = {rows, 128};
  const NodeId x = widened(b, b.input(kE4, {rows, 384}), DType::kBF16);
  const NodeId w = widened(b, b.permute(b.input(kE4, {128, 384}), {1, 0}), DType::kBF16);
  const NodeId scale = b.broadcast(b.input(DType::kF32, {rows, 1}), Shape(shape));
  const Workload workload =
      workload_of(b, b.cast(b.binary(Op::kMul, b.matmul(x, w), scale), DType::kBF16));
  ASSERT_TRUE(check_wgmma(workload));
  EXPECT_EQ(testing::check_sizes(workload, to_schedule(WgmmaMatmulSchedule{64, 64, 1, 3, 8}),
                                 kHopper, {{0}, {1}, {64}, {150}}),
            "");
}

// x of [rows, depth] times a scale for each block of it.
NodeId scaled_in_blocks(GraphBuilder& b, NodeId x, int64_t row_block, int64_t depth_block) {
  const int64_t rows = b.shape(x)[0].constant(), depth = b.shape(x)[1].constant();
  const NodeId scale = b.input(DType::kF32, {rows / row_block, 1, depth / depth_block, 1});
  const NodeId each =
      b.reshape(b.broadcast(scale, {rows / row_block, row_block, depth / depth_block, depth_block}),
                {rows, depth});
  return b.binary(Op::kMul, b.cast(x, DType::kF32), each);
}
// Scales of blocks of 128 of both operands' depth, of each row of the first, of 128 columns.
Workload blocks(ProductSizes s, int64_t columns = 128, int64_t depth = 128) {
  GraphBuilder b;
  const NodeId x = scaled_in_blocks(b, b.input(kE4, {s.m, s.k}), 1, 128);
  const NodeId y = scaled_in_blocks(b, b.input(kE4, {s.n, s.k}), columns, depth);
  return workload_of(b, b.cast(b.matmul(x, b.permute(y, {1, 0})), DType::kBF16));
}

TEST(WgmmaNarrow, ScalesOfBlocksAreAppliedWhereSumsArePromoted) {
  const ProductSizes sizes = {136, 256, 384};
  for (const auto& [bm, bn, groups] :
       {std::array{64, 64, 1}, {128, 128, 2}, {64, 32, 1}, {192, 128, 3}})
    EXPECT_EQ(check_staged_narrow(blocks(sizes), {bm, bn, groups, 3, 8}), "") << bm << 'x' << bn;
  EXPECT_EQ(check_staged_narrow(blocks({3, 128, 128}), {64, 32, 1, 2, 8}), "");
  EXPECT_EQ(check_staged_narrow(blocks(sizes, 256), {64, 64, 1, 3, 8}), "")
      << "one scale for all columns";
  EXPECT_EQ(check_staged_narrow(blocks(sizes, 128, 384), {64, 64, 1, 3, 8}), "")
      << "one for all the depth";
  Target few = kHopper;
  few.units = 2;
  EXPECT_EQ(check_staged_narrow(blocks({200, 256, 512}), {64, 64, 1, 3, 2}, few), "")
      << "several tiles a block";
}

TEST(WgmmaNarrow, ScalesThatFitNoTileOrStepAreLeftToOthers) {
  const auto covers = [](const Workload& workload) {
    return wgmma_matmul().covers(workload, kHopper);
  };
  EXPECT_TRUE(covers(blocks({136, 256, 384})));
  EXPECT_FALSE(covers(blocks({136, 256, 384}, 1))) << "a scale a column";
  EXPECT_FALSE(covers(blocks({136, 256, 384}, 64)));
  EXPECT_FALSE(covers(blocks({136, 256, 384}, 128, 64)));
  const auto space = wgmma_candidates(blocks({4096, 4096, 4096}), kHopper);
  ASSERT_FALSE(space.empty());
  for (const Schedule& schedule : space)
    EXPECT_EQ(128 % schedule.get("bn", 0), 0) << schedule.to_string();
}

TEST(WgmmaNarrow, IntegersAreScaledBehindTheProduct) {
  GraphBuilder b;
  const Shape shape = {72, 96};
  const NodeId sums = product(b, DType::kI8, DType::kI8, {72, 96, 144}, DType::kI32);
  const NodeId scale = b.broadcast(b.input(DType::kF32, {96}), Shape(shape));
  const NodeId scaled = b.binary(Op::kMul, b.cast(sums, DType::kF32), scale);
  EXPECT_EQ(check_staged_narrow(workload_of(b, b.cast(scaled, DType::kBF16)), {64, 64, 1, 3, 8}),
            "");
}

TEST(WgmmaNarrow, BatchesAgree) {
  GraphBuilder b;
  const NodeId x = widened(b, b.input(kE4, {3, 40, 144}), DType::kBF16);
  const NodeId y = widened(b, b.permute(b.input(kE4, {3, 48, 144}), {0, 2, 1}), DType::kBF16);
  EXPECT_EQ(
      check_staged_narrow(workload_of(b, b.cast(b.matmul(x, y), DType::kF16)), {64, 32, 1, 3, 8}),
      "");
}

// 4096 products of numbers that all are positive: added up in 14 bits from beginning to end they would
// be off by a hundredth.
TEST(WgmmaNarrow, SumsOfFloatsAreF32s) {
  GraphBuilder b;
  const Workload workload = workload_of(b, product(b, kE4, kE4, {8, 8, 4096}, DType::kBF16));
  std::mt19937 random(5);
  std::uniform_real_distribution<double> positive(0.5, 1.5);
  std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (Tensor& input : inputs)
    for (int64_t j = 0; j < input.numel(); ++j) input.set(j, positive(random));
  ASSERT_TRUE(check_wgmma(workload));
  const auto source =
      lower_to_source(workload, to_schedule(WgmmaMatmulSchedule{64, 32, 1, 3, 8}), kHopper);
  ASSERT_TRUE(source);
  const auto outputs = testing::run_on_fake_gpu(*source, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  std::vector<const Tensor*> pointers = {&inputs[0], &inputs[1]};
  const auto want = interpret(workload.graph, pointers, Precision::kHigh);
  ASSERT_TRUE(want);
  for (int64_t i = 0; i < 64; ++i)
    EXPECT_NEAR((*outputs)[0].get(i) / (*want)[0].get(i), 1, 2e-3) << i;
}

TEST(WgmmaNarrow, CoversWhatIsContiguousAlongTheDepth) {
  const auto covers = [](const Workload& workload, const char* target = "cuda:sm_90a") {
    return wgmma_matmul().covers(workload, *Target::parse(target));
  };
  EXPECT_TRUE(covers(floats(kE4, kE4, {128, 128, 128})));
  EXPECT_TRUE(covers(integers(DType::kI8, DType::kI8, {128, 128, 128})));
  EXPECT_FALSE(covers(floats(kE4, kE4, {128, 128, 128}), "cuda:sm_80"));
  EXPECT_FALSE(covers(floats(kE4, kE4, {128, 128, 136}))) << "rows begin anywhere";
  GraphBuilder b;
  const NodeId x = widened(b, b.input(kE4, {64, 64}), DType::kBF16);
  const NodeId y = widened(b, b.input(kE4, {64, 64}), DType::kBF16);
  EXPECT_FALSE(covers(workload_of(b, b.matmul(x, y)))) << "columns are contiguous";
  const Workload narrow = floats(kE4, kE4, {128, 128, 128});
  for (const KernelTemplate* made : kernel_templates()) {
    for (const char* target : {"cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90a"})
      EXPECT_EQ(made->covers(narrow, *Target::parse(target)),
                made->name() == "cuda.matmul.wgmma" && target == std::string_view("cuda:sm_90a"))
          << made->name();
  }
}

TEST(WgmmaNarrow, CandidatesKeepTheSumsOfAStepInRegisters) {
  const Workload workload = floats(kE4, kE4, {4096, 4096, 4096});
  const auto space = wgmma_candidates(workload, kHopper);
  ASSERT_EQ(space.size(), 4u);
  for (const Schedule& schedule : space)
    EXPECT_LE(decisions_of<WgmmaMatmulSchedule>(schedule)->registers(true), 192)
        << schedule.to_string();
  const auto wide = wgmma_candidates(integers(DType::kI8, DType::kI8, {4096, 4096, 4096}), kHopper);
  EXPECT_EQ(wide[0].get("bm", 0) * wide[0].get("bn", 0), 128 * 256) << wide[0].to_string();
}

}  // namespace
}  // namespace kiln
