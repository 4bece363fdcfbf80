// Products of halves with weights that are stored in 8 bits, which kernels widen, on the fake GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "tests/compiler_core/ir/four_bits.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::kHopper;
using testing::workload_of;

enum class Zero { kNone, kSubtracted, kConstant };
struct Weights {
  DType stored = DType::kI8, half = DType::kBF16;
  int64_t m = 16, n = 64, k = 256;
  int64_t group = 0;  // of the depth; 0: one scale a column
  bool scaled = true;
  Zero zero = Zero::kNone;
};

// [m, k] times the transpose of the weights that [n, k] stand for.
NodeId product(GraphBuilder& b, const Weights& w) {
  const int64_t group = w.group == 0 ? w.k : w.group;
  const Shape blocks = {w.n, w.k / group, group};
  NodeId x = b.cast(b.reshape(b.input(w.stored, {w.n, w.k}), blocks), DType::kF32);
  const auto factor = [&](DType dtype) {
    return b.broadcast(b.cast(b.input(dtype, {w.n, w.k / group, 1}), DType::kF32), blocks);
  };
  if (w.zero == Zero::kSubtracted) x = b.binary(Op::kSub, x, factor(DType::kI64));
  if (w.zero == Zero::kConstant)
    x = b.binary(Op::kSub, x, b.broadcast(b.constant(DType::kF32, 8.0), blocks));
  if (w.scaled) x = b.binary(Op::kMul, x, factor(DType::kF32));
  const NodeId weights = b.permute(b.reshape(b.cast(x, w.half), {w.n, w.k}), {1, 0});
  return b.matmul(b.input(w.half, {w.m, w.k}), weights);
}

// Scales are powers of two: kernels multiply sums by them, and nothing is to be rounded in between.
std::vector<Tensor> random_inputs(const Workload& workload, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Tensor> inputs = testing::random_inputs(workload.graph, random);
  for (Tensor& input : inputs)
    for (int64_t i = 0; i < input.numel() && input.dtype() == DType::kF32; ++i)
      input.set(i, std::ldexp(random() % 2 == 0 ? 1 : -1, static_cast<int>(random() % 5) - 2));
  for (Tensor& input : inputs)  // words, of any bits
    for (int64_t i = 0; i < input.numel() && input.dtype() == DType::kI32; ++i)
      input.set(i, static_cast<int32_t>(random()));
  return inputs;
}

Workload workload_of(const Weights& weights) {
  GraphBuilder b;
  return workload_of(b, b.cast(product(b, weights), weights.half));
}

std::string check_narrow(const Workload& workload, CudaMatmulSchedule schedule) {
  if (const Status covered = check_cuda_narrow(workload); !covered)
    return covered.error().message + "\n" + print(workload.graph);
  const std::vector<Tensor> inputs = random_inputs(workload, 12);
  const std::string wrong =
      check_schedule(workload, to_schedule(CudaNarrowMatmulSchedule{schedule}), kHopper, inputs);
  return wrong.empty() ? "" : wrong + "\n" + print(workload.graph);
}

TEST(NarrowWeights, EveryTypeAgreesWithAndWithoutScalesAndZeros) {
  for (const DType stored : {DType::kI8, DType::kU8})
    for (const DType half : {DType::kBF16, DType::kF16})
      for (const bool scaled : {false, true})
        for (const Zero zero : {Zero::kNone, Zero::kSubtracted, Zero::kConstant})
          EXPECT_EQ(
              check_narrow(
                  workload_of({.stored = stored, .half = half, .scaled = scaled, .zero = zero}),
                  {16, 64, 64, 1, 4, 3, 1, 8}),
              "")
              << to_string(stored) << to_string(half) << scaled << static_cast<int>(zero);
}

// Every value of a byte is widened as it is.
TEST(NarrowWeights, EveryByteAgrees) {
  for (const DType stored : {DType::kI8, DType::kU8})
    for (const DType half : {DType::kBF16, DType::kF16}) {
      const Workload workload = workload_of({.stored = stored, .half = half, .scaled = false});
      std::vector<Tensor> inputs = random_inputs(workload, 3);
      for (Tensor& input : inputs)
        for (int64_t i = 0; i < input.numel(); ++i) {
          const int64_t byte = i % 256 - (stored == DType::kI8 ? 128 : 0);
          if (size_of(input.dtype()) == 1)
            input.set(i, static_cast<double>(byte));
          else
            input.set(i, i % 257 == 0 ? 1 : 0);  // row r takes element r of each column
        }
      EXPECT_EQ(check_schedule(workload,
                               to_schedule(CudaNarrowMatmulSchedule{{16, 32, 32, 1, 2, 3, 1, 8}}),
                               kHopper, inputs),
                "");
    }
}

// Groups that are parts of steps, steps, and several of them; splits that begin within one.
TEST(NarrowWeights, GroupsOfTheDepthHaveScalesAndZerosOfTheirOwn) {
  for (const int64_t group : {32, 64, 128, 256})
    for (const int splits : {1, 3})
      for (const int bk : {32, 64, 128})
        EXPECT_EQ(check_narrow(
                      workload_of({.n = 48, .k = 512, .group = group, .zero = Zero::kSubtracted}),
                      {16, 32, bk, 1, 2, 3, splits, 8}),
                  "")
            << group << ' ' << splits << ' ' << bk;
}

// A zero may be a half that is no integer, and may be added: differences are rounded to halves then.
TEST(NarrowWeights, ZerosMayBeHalvesAndMayBeAdded) {
  for (const DType half : {DType::kBF16, DType::kF16})
    for (const Op op : {Op::kAdd, Op::kSub}) {
      GraphBuilder b;
      const Shape groups = {48, 4, 32};
      const auto factor = [&](DType dtype) {
        return b.broadcast(b.cast(b.input(dtype, {48, 4, 1}), DType::kF32), Shape(groups));
      };
      const NodeId q = b.cast(b.reshape(b.input(DType::kU8, {48, 128}), groups), DType::kF32);
      const NodeId moved = b.cast(b.cast(b.binary(op, q, factor(half)), half), DType::kF32);
      const NodeId w = b.cast(b.binary(Op::kMul, moved, factor(DType::kF32)), half);
      const NodeId y =
          b.matmul(b.input(half, {7, 128}), b.permute(b.reshape(w, {48, 128}), {1, 0}));
      EXPECT_EQ(check_narrow(workload_of(b, b.cast(y, half)), {16, 32, 64, 1, 2, 3, 1, 8}), "")
          << to_string(half) << static_cast<int>(op);
    }
}

// Weights of 4 bits, two in a byte: what is subtracted from them, and what is added behind the scale.
enum class FourBits { kPlain, kZeros, kZeroInI8, kAddends };
struct Packed {
  FourBits form = FourBits::kPlain;
  bool high_first = false;
  DType half = DType::kBF16;
  int64_t m = 7, n = 48, k = 256, group = 32;
};
Workload packed_workload(const Packed& w) {
  GraphBuilder b;
  const int64_t group = w.group == 0 ? w.k : w.group;
  const Shape groups = {w.n, w.k / group, group};
  const NodeId bytes = b.input(DType::kU8, {w.n, w.k / 2});
  NodeId q = b.reshape(testing::taken_apart(b, bytes, w.high_first), groups);
  if (w.form == FourBits::kZeroInI8) {
    q = b.cast(q, DType::kI8);
    q = b.binary(Op::kSub, q, testing::constant_like(b, q, 8));
  }
  NodeId x = b.cast(q, DType::kF32);
  const auto factor = [&](DType dtype) {
    return b.broadcast(b.cast(b.input(dtype, {w.n, w.k / group, 1}), DType::kF32), Shape(groups));
  };
  if (w.form == FourBits::kZeros) x = b.binary(Op::kSub, x, factor(DType::kI8));
  if (w.form == FourBits::kAddends) x = b.binary(Op::kSub, x, testing::constant_like(b, x, 8));
  x = b.binary(Op::kMul, x, factor(DType::kF32));
  if (w.form == FourBits::kAddends) x = b.binary(Op::kAdd, x, factor(DType::kI8));
  const NodeId weights = b.permute(b.reshape(b.cast(x, w.half), {w.n, w.k}), {1, 0});
  const NodeId sums = b.matmul(b.input(w.half, {w.m, w.k}), weights);
  return workload_of(b, b.cast(sums, w.half));
}

TEST(NarrowWeights, TwoInAByteAgree) {
  for (const FourBits form :
       {FourBits::kPlain, FourBits::kZeros, FourBits::kZeroInI8, FourBits::kAddends})
    for (const bool high_first : {false, true})
      for (const DType half : {DType::kBF16, DType::kF16})
        EXPECT_EQ(
            check_narrow(packed_workload({.form = form, .high_first = high_first, .half = half}),
                         {16, 64, 64, 1, 4, 3, 1, 8}),
            "")
            << static_cast<int>(form) << high_first << to_string(half);
}

TEST(NarrowWeights, TwoInAByteHaveGroupsStepsAndSizesOfAnyKind) {
  for (const FourBits form : {FourBits::kZeros, FourBits::kAddends})
    for (const int64_t group : {0, 32, 64, 128})
      for (const int bk : {32, 128})
        EXPECT_EQ(check_narrow(
                      packed_workload({.form = form, .m = 19, .n = 40, .k = 384, .group = group}),
                      {32, 32, bk, 1, 2, 3, group == 64 ? 3 : 1, 8}),
                  "")
            << static_cast<int>(form) << ' ' << group << ' ' << bk;
}

// What _weight_int4pack_mm becomes: (q - 8) * scale + zero of weights in ATen's words.
struct Words {
  DType half = DType::kBF16;
  int64_t m = 7, n = 48, k = 256, group = 32, of_lane = 1;
  bool moved = true;  // and not q alone
};
Workload words_workload(const Words& w) {
  GraphBuilder b;
  const Shape groups = {w.n, w.k / w.group, w.group};
  const NodeId words = b.input(DType::kI32, {w.n / 8, w.k / (32 * w.of_lane), 32, w.of_lane});
  NodeId x = b.reshape(b.cast(testing::words_apart(b, words), DType::kF32), groups);
  const auto factor = [&](DType dtype) {
    const NodeId stored = b.permute(b.input(dtype, {w.k / w.group, w.n}), {1, 0});
    return b.broadcast(b.reshape(b.cast(stored, DType::kF32), {w.n, groups[1], 1}), Shape(groups));
  };
  if (w.moved) {
    x = b.binary(Op::kSub, x, testing::constant_like(b, x, 8));
    x = b.binary(Op::kAdd, b.binary(Op::kMul, x, factor(DType::kF32)), factor(DType::kI8));
  }
  const NodeId weights = b.permute(b.reshape(b.cast(x, w.half), {w.n, w.k}), {1, 0});
  return workload_of(b, b.cast(b.matmul(b.input(w.half, {w.m, w.k}), weights), w.half));
}

TEST(NarrowWeights, WordsAgreeInEveryLayoutGroupAndStep) {
  for (const DType half : {DType::kBF16, DType::kF16})
    for (const int64_t of_lane : {1, 2, 4})
      for (const int64_t group : {32, 128, 256})
        for (const int bk : {32, 64, 128}) {
          if (bk < 32 * of_lane) continue;
          EXPECT_EQ(check_narrow(words_workload({.half = half, .group = group, .of_lane = of_lane}),
                                 {16, 32, bk, 1, 2, 3, group == 128 ? 2 : 1, 8}),
                    "")
              << to_string(half) << ' ' << of_lane << ' ' << group << ' ' << bk;
        }
}

// A constant zero is subtracted while weights are widened, whichever way it is written.
TEST(NarrowWeights, ZerosThatAllHaveAreSubtractedOnce) {
  for (const Op op : {Op::kSub, Op::kAdd})
    for (const double zero : {3.0, 8.0, 64.0, 100.0})
      for (const bool high_first : {false, true}) {
        GraphBuilder b;
        const NodeId bytes = b.input(DType::kU8, {48, 64});
        const NodeId q = b.cast(testing::taken_apart(b, bytes, high_first), DType::kF32);
        const NodeId moved = b.binary(op, q, testing::constant_like(b, q, zero));
        const NodeId w = b.permute(b.reshape(b.cast(moved, DType::kBF16), {48, 128}), {1, 0});
        const NodeId y = b.matmul(b.input(DType::kBF16, {7, 128}), w);
        EXPECT_EQ(check_narrow(workload_of(b, b.cast(y, DType::kBF16)), {8, 32, 64, 1, 2, 3, 1, 8}),
                  "")
            << static_cast<int>(op) << ' ' << zero << high_first;
      }
}

TEST(NarrowWeights, EightRowsAreATileOfWidenedWeightsAlone) {
  const CudaMatmulSchedule eight{8, 32, 64, 1, 2, 3, 1, 8};
  GraphBuilder b;
  const NodeId y = b.matmul(b.input(DType::kBF16, {7, 128}), b.input(DType::kBF16, {128, 48}));
  const Workload halves = workload_of(b, b.cast(y, DType::kBF16));
  EXPECT_FALSE(lower(halves, to_schedule(eight), kHopper));
  EXPECT_TRUE(
      lower(workload_of(Weights{.m = 7}), to_schedule(CudaNarrowMatmulSchedule{eight}), kHopper));
}

// Every half byte is taken as it is.
TEST(NarrowWeights, EveryHalfByteOfWordsAgrees) {
  for (const DType half : {DType::kBF16, DType::kF16}) {
    const Workload workload =
        words_workload({.half = half, .m = 64, .n = 16, .k = 64, .of_lane = 2, .moved = false});
    std::vector<Tensor> inputs = random_inputs(workload, 5);
    for (Tensor& input : inputs)
      for (int64_t i = 0; i < input.numel() && input.dtype() == half; ++i)
        input.set(i, i % 65 == 0 ? 1 : 0);  // row r takes element r of each column
    EXPECT_EQ(
        check_schedule(workload, to_schedule(CudaNarrowMatmulSchedule{{64, 16, 64, 4, 1, 3, 1, 8}}),
                       kHopper, inputs),
        "");
  }
}

TEST(NarrowWeights, WordsOfSizesThatTilesDoNotDivideAgree) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 8, 128}, {19, 40, 384}, {70, 136, 640}})
    for (const CudaMatmulSchedule& schedule : {CudaMatmulSchedule{16, 64, 128, 1, 4, 4, 1, 8},
                                               {64, 64, 128, 2, 2, 3, 1, 8},
                                               {8, 128, 128, 1, 4, 4, 1, 8},
                                               {128, 16, 128, 4, 1, 2, 1, 8}})
      EXPECT_EQ(check_narrow(words_workload({.m = m, .n = n, .k = k, .group = 64, .of_lane = 4}),
                             schedule),
                "")
          << m << ' ' << n;
}

TEST(NarrowWeights, TheSearchSpaceOfWordsAgrees) {
  for (const int64_t of_lane : {1, 4}) {
    const Workload workload =
        words_workload({.m = 5, .n = 96, .k = 640, .group = 128, .of_lane = of_lane});
    EXPECT_EQ(testing::check_space(workload, kHopper, random_inputs(workload, 7), 4), "");
  }
}

TEST(NarrowWeights, StepsAreWholeWordsOfEachLane) {
  const Workload workload = words_workload({.of_lane = 4});
  const auto lowered = [&](int bk) {
    return lower(workload, to_schedule(CudaNarrowMatmulSchedule{{16, 32, bk, 1, 2, 3, 1, 8}}),
                 kHopper);
  };
  EXPECT_TRUE(lowered(128));
  EXPECT_FALSE(lowered(64));
}

// Halves of 11 bits hold each weight, so that nothing is rounded in between.
TEST(NarrowWeights, AddendsBehindScalesOf8BitsAgree) {
  for (const bool grouped : {false, true}) {
    GraphBuilder b;
    const Shape groups = {48, grouped ? 4 : 1, grouped ? 32 : 128};
    const auto factor = [&](DType dtype) {
      return b.broadcast(b.cast(b.input(dtype, {48, groups[1], 1}), DType::kF32), Shape(groups));
    };
    const NodeId q = b.cast(b.reshape(b.input(DType::kI8, {48, 128}), groups), DType::kF32);
    const NodeId scaled = b.binary(Op::kMul, q, factor(DType::kF32));
    const NodeId w = b.cast(b.binary(Op::kAdd, scaled, factor(DType::kI8)), DType::kF16);
    const NodeId y =
        b.matmul(b.input(DType::kF16, {7, 128}), b.permute(b.reshape(w, {48, 128}), {1, 0}));
    EXPECT_EQ(check_narrow(workload_of(b, b.cast(y, DType::kF16)), {16, 32, 64, 1, 2, 3, 1, 8}), "")
        << grouped;
  }
}

TEST(NarrowWeights, TheSearchSpaceOfTwoInAByteAgrees) {
  const Workload workload =
      packed_workload(Packed{.form = FourBits::kAddends, .m = 5, .n = 96, .k = 640, .group = 128});
  EXPECT_EQ(testing::check_space(workload, kHopper, random_inputs(workload, 7), 4), "");
}

TEST(NarrowWeights, OddSizesAgree) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 40, 16}, {3, 77, 144}, {17, 8, 48}, {70, 136, 400}, {1, 1, 32}})
    for (const CudaMatmulSchedule& schedule : {CudaMatmulSchedule{16, 64, 128, 1, 4, 4, 1, 8},
                                               {64, 64, 64, 2, 2, 3, 1, 8},
                                               {32, 128, 32, 1, 4, 3, 1, 4},
                                               {8, 32, 64, 1, 2, 4, 1, 8},
                                               {128, 16, 64, 4, 1, 2, 1, 8}})
      EXPECT_EQ(check_narrow(workload_of({.m = m, .n = n, .k = k}), schedule), "") << m << ' ' << n;
}

TEST(NarrowWeights, TheSearchSpaceAgrees) {
  for (const int64_t group : {0, 128}) {
    const Workload workload = workload_of({.m = 5, .n = 96, .k = 640, .group = group});
    const std::vector<Tensor> inputs = random_inputs(workload, 7);
    EXPECT_EQ(testing::check_space(workload, kHopper, inputs, 4), "");
  }
}

// Lines of x that begin anywhere, a bias and a residual behind the product.
TEST(NarrowWeights, RowsBeginAnywhereAndResultsHaveAnEpilogue) {
  GraphBuilder b;
  const NodeId x = b.slice(b.input(DType::kBF16, {9, 150}), 1, 3, 128);
  const NodeId w = b.permute(b.cast(b.input(DType::kI8, {56, 128}), DType::kF32), {1, 0});
  const NodeId sums = b.matmul(x, b.cast(w, DType::kBF16));
  const NodeId bias = b.broadcast(b.cast(b.input(DType::kBF16, {56}), DType::kF32), Shape{9, 56});
  const NodeId residual = b.cast(b.input(DType::kBF16, {9, 56}), DType::kF32);
  const NodeId sum = b.binary(Op::kAdd, b.binary(Op::kMul, sums, bias), residual);
  EXPECT_EQ(check_narrow(workload_of(b, b.cast(sum, DType::kBF16)), {16, 32, 64, 1, 2, 3, 1, 8}),
            "");
}

TEST(NarrowWeights, BatchesHaveWeightsOfTheirOwn) {
  GraphBuilder b;
  const NodeId q = b.cast(b.permute(b.input(DType::kI8, {3, 40, 64}), {0, 2, 1}), DType::kF32);
  const NodeId scale = b.broadcast(b.input(DType::kF32, {3, 1, 40}), Shape{3, 64, 40});
  const NodeId w = b.cast(b.binary(Op::kMul, q, scale), DType::kBF16);
  const NodeId y = b.matmul(b.input(DType::kBF16, {3, 6, 64}), w);
  EXPECT_EQ(check_narrow(workload_of(b, b.cast(y, DType::kBF16)), {16, 32, 32, 1, 2, 3, 1, 8}), "");
}

TEST(NarrowWeights, TheNumberOfRowsMayBeKnownAtRunTime) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({1, 64}, 5));
  const NodeId q = b.cast(b.permute(b.input(DType::kI8, {48, 128}), {1, 0}), DType::kF32);
  const NodeId zero =
      b.cast(b.broadcast(b.input(DType::kI8, {1, 48}), Shape{128, 48}), DType::kF32);
  const NodeId w = b.cast(b.binary(Op::kSub, q, zero), DType::kBF16);
  const NodeId y = b.matmul(b.input(DType::kBF16, {rows, 128}), w);
  const Workload workload = workload_of(b, b.cast(y, DType::kBF16));
  const auto space = cuda_narrow_matmul().candidates(workload, kHopper);
  ASSERT_TRUE(space) << space.error().message;
  ASSERT_FALSE(space->empty());
  EXPECT_EQ(testing::check_sizes(workload, (*space)[0], kHopper, {{1}, {5}, {64}}), "");
}

TEST(NarrowWeights, WhatKernelsAreNotWrittenForIsLeftToOthers) {
  const auto covers = [](const Workload& workload, const char* target = "cuda:sm_90a") {
    return cuda_narrow_matmul().covers(workload, *Target::parse(target));
  };
  EXPECT_TRUE(covers(workload_of(Weights{})));
  EXPECT_TRUE(covers(workload_of(Weights{}), "cuda:sm_80"));
  EXPECT_FALSE(covers(workload_of({.k = 264}))) << "columns begin anywhere";
  EXPECT_FALSE(covers(workload_of({.k = 256, .group = 16})))
      << "groups of less than an instruction";
  EXPECT_TRUE(covers(packed_workload(Packed{})));
  EXPECT_FALSE(covers(packed_workload(Packed{.k = 272, .group = 16})))
      << "bytes of 8 columns' depth";
  for (const KernelTemplate* made : kernel_templates())
    for (const char* target : {"cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90a"})
      EXPECT_EQ(made->covers(workload_of(Weights{}), *Target::parse(target)),
                made->name() == "cuda.matmul.narrow" && target != std::string_view("cpu:x86-64-v3"))
          << made->name();
}

}  // namespace
}  // namespace kiln
