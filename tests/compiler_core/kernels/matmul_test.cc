#include "compiler_core/kernels/matmul/cpu_matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::matmul_workload;
using testing::random_inputs;
using testing::targets;

std::string check_matmul(const Workload& workload, int limit, std::vector<Target> on = targets()) {
  std::mt19937 random(11);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const Target& target : on) {
    const std::string wrong = check_space(workload, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(workload.graph);
  }
  return "";
}

std::string check_matmul_on_host(const Workload& workload, const CpuMatmulSchedule& schedule) {
  std::mt19937 random(12);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  return check_schedule(workload, to_schedule(schedule), targets()[0], inputs);
}

// x [m, k] times w, stored [k, n], or [n, k] and read transposed.
Workload plain(DType dtype, int64_t m, int64_t n, int64_t k, bool transposed = false) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, {m, k});
  const NodeId w = b.input(dtype, transposed ? Shape{n, k} : Shape{k, n});
  const NodeId y = b.matmul(x, transposed ? b.permute(w, {1, 0}) : w);
  return matmul_workload(b, is_half(dtype) ? b.cast(y, dtype) : y);
}

TEST(Matmul, AgreesUnderEveryScheduleOfTheSpace) {
  EXPECT_EQ(check_matmul(plain(DType::kF32, 67, 83, 300), 100), "");
}

TEST(Matmul, AgreesWithWeightsStoredTransposed) {
  EXPECT_EQ(check_matmul(plain(DType::kF32, 45, 70, 129, true), 3), "");
  EXPECT_EQ(check_matmul(plain(DType::kBF16, 45, 70, 129, true), 2), "");
}

TEST(Matmul, AgreesForAFewRows) {
  for (const int64_t m : {1, 3, 8})
    for (const bool transposed : {false, true})
      EXPECT_EQ(check_matmul(plain(DType::kF32, m, 200, 131, transposed), 2, {targets()[0]}), "");
}

TEST(Matmul, AgreesAtDegenerateSizes) {
  const std::vector<Target> host = {targets()[0]};
  EXPECT_EQ(check_matmul(plain(DType::kF32, 1, 1, 1), 1, host), "");
  EXPECT_EQ(check_matmul(plain(DType::kF32, 5, 1, 40), 2, host), "");
  EXPECT_EQ(check_matmul(plain(DType::kF32, 40, 50, 1), 1, host), "");
  EXPECT_EQ(check_matmul(plain(DType::kF32, 40, 1, 33, true), 2, host), "");
}

TEST(Matmul, AgreesForEveryDtype) {
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64, DType::kI8, DType::kU8})
    EXPECT_EQ(check_matmul(plain(dtype, 19, 37, 23), 1), "") << to_string(dtype);
}

// Products are added up in runs of bounded length: the error of a long sum, over the results' own
// size, is that of a short one. One sum of 4096 products would be off by 1.1e-6 here.
TEST(Matmul, ALongSumIsAsExactAsAShortOne) {
  const int lanes = targets()[0].isa == "x86-64-v4" ? 16 : 8;
  constexpr int64_t m = 24, n = 32, k = 4096;
  const Workload workload = plain(DType::kF32, m, n, k);
  std::mt19937 random(13);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const int64_t kc : {k, int64_t{512}})
    for (const BFrom b_from : {BFrom::kInPlace, BFrom::kPacked}) {
      const CpuMatmulSchedule schedule{lanes, false, 4, 2 * lanes, kc, 24, 32, b_from, true};
      const auto source = lower_to_source(workload, to_schedule(schedule), targets()[0]);
      ASSERT_TRUE(source) << source.error().message;
      const auto outputs = testing::run_source(*source, targets()[0], inputs);
      ASSERT_TRUE(outputs) << outputs.error().message;
      double errors = 0, squares = 0;
      for (int64_t row = 0; row < m; ++row)
        for (int64_t column = 0; column < n; ++column) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p)
            sum += inputs[0].get(row * k + p) * inputs[1].get(p * n + column);
          const double error = (*outputs)[0].get(row * n + column) - sum;
          errors += error * error;
          squares += sum * sum;
        }
      EXPECT_LT(std::sqrt(errors / squares), 4e-7) << schedule.kc;
    }
}

// Every way the kernels can be cut, on sizes that leave a rest everywhere.
TEST(Matmul, AgreesHoweverItIsBlocked) {
  const int lanes = targets()[0].isa == "x86-64-v4" ? 16 : 8;
  const Workload rows = plain(DType::kF32, 61, 101, 57);
  for (const BFrom b_from : {BFrom::kInPlace, BFrom::kPacked, BFrom::kSlab})
    for (const bool rows_first : {true, false}) {
      CpuMatmulSchedule schedule{lanes, false, 5, 2 * lanes, 16, 20, 64, b_from, rows_first};
      EXPECT_EQ(check_matmul_on_host(rows, schedule), "");
      schedule.kc = 1000;
      EXPECT_EQ(check_matmul_on_host(rows, schedule), "");
    }
  // In one phase: a read where it lies, the last tile of rows moved up; with a's rows and columns
  // exchanged too.
  GraphBuilder b;
  const Workload exchanged =
      matmul_workload(b, b.matmul(b.permute(b.input(DType::kF32, {57, 61}), {1, 0}),
                                  b.permute(b.input(DType::kF32, {101, 57}), {1, 0})));
  for (const BFrom b_from : {BFrom::kInPlace, BFrom::kSlab})
    for (const int64_t kc : {16, 57}) {
      const CpuMatmulSchedule schedule{lanes, false, 5, 2 * lanes, kc, 20, 64, b_from, true, false};
      EXPECT_EQ(check_matmul_on_host(rows, schedule), "");
      if (b_from == BFrom::kSlab) {
        EXPECT_EQ(check_matmul_on_host(exchanged, schedule), "");
      }
    }
  const Workload columns = plain(DType::kBF16, 11, 101, 57, true);
  for (const int columns_at_once : {1, 3})
    EXPECT_EQ(check_matmul_on_host(
                  columns, {lanes, true, 4, columns_at_once, 1, 1, 40, BFrom::kInPlace, true}),
              "");
}

TEST(Matmul, ReadsBatchedStridedOperands) {
  GraphBuilder b;
  // q [2, 9, 3, 20] and k [2, 14, 3, 20], heads moved in front: as attention has them.
  const NodeId q = b.permute(b.input(DType::kF32, {2, 9, 3, 20}), {0, 2, 1, 3});
  const NodeId k = b.permute(b.input(DType::kF32, {2, 14, 3, 20}), {0, 2, 3, 1});
  EXPECT_EQ(check_matmul(matmul_workload(b, b.matmul(q, k)), 4), "");
}

TEST(Matmul, SharesAnOperandThatIsBroadcastOverTheBatch) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4, 10, 33});
  const NodeId w = b.broadcast(b.input(DType::kF32, {1, 33, 21}), {4, 33, 21});
  EXPECT_EQ(check_matmul(matmul_workload(b, b.matmul(x, w)), 4), "");
}

TEST(Matmul, ReadsASliceAndAReversedAxis) {
  GraphBuilder b;
  const NodeId x = b.slice(b.slice(b.input(DType::kF32, {30, 50}), 0, 3, 20), 1, 5, 19, 2);
  const NodeId w = b.slice(b.input(DType::kF32, {19, 26}), 0, 18, 19, -1);
  EXPECT_EQ(check_matmul(matmul_workload(b, b.matmul(x, w)), 3), "");
}

TEST(Matmul, FusesBiasActivationAndResidual) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    GraphBuilder b;
    const int64_t m = 21, n = 75, k = 64;
    const NodeId x = b.input(dtype, {m, k});
    const NodeId w = b.permute(b.input(dtype, {n, k}), {1, 0});
    const auto wide = [&](NodeId id) { return b.cast(id, DType::kF32); };
    NodeId y = b.matmul(x, w);
    y = b.binary(Op::kAdd, y, wide(b.broadcast(b.input(dtype, {n}), {m, n})));
    const NodeId half = b.broadcast(b.constant(DType::kF32, 0.5), {m, n});
    y = b.binary(Op::kMul, b.binary(Op::kMul, y, half),
                 b.binary(Op::kAdd, b.unary(Op::kErf, b.binary(Op::kMul, y, half)), half));
    y = b.binary(Op::kAdd, y, wide(b.input(dtype, {m, n})));
    y = b.binary(Op::kMul, y, wide(b.broadcast(b.input(dtype, {m, 1}), {m, n})));
    EXPECT_EQ(check_matmul(matmul_workload(b, b.cast(y, dtype)), 3), "") << to_string(dtype);
  }
}

TEST(Matmul, EpilogueKnowsItsBatch) {
  GraphBuilder b;
  const Shape shape = {2, 3, 7, 18};
  NodeId y = b.matmul(b.input(DType::kF32, {2, 3, 7, 12}), b.input(DType::kF32, {2, 3, 12, 18}));
  y = b.binary(Op::kAdd, y, b.broadcast(b.input(DType::kF32, {3, 1, 18}), shape));
  y = b.binary(Op::kMul, y, b.input(DType::kF32, shape));
  EXPECT_EQ(check_matmul(matmul_workload(b, y), 2), "");
}

TEST(Matmul, KeepsNanInfinityAndTheSignOfZero) {
  const Workload workload = plain(DType::kF32, 4, 40, 3);
  Tensor x(DType::kF32, {4, 3}), w(DType::kF32, {3, 40});
  for (int64_t i = 0; i < w.numel(); ++i) w.set(i, 1);
  x.set(0, NAN);
  x.set(3, INFINITY);
  x.set(6, INFINITY);
  x.set(7, -INFINITY);
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(x));
  inputs.push_back(std::move(w));
  for (const Target& target : targets())
    for (const Schedule& schedule : cpu_matmul_candidates(workload, target))
      ASSERT_EQ(check_schedule(workload, schedule, target, inputs), "");
}

TEST(Matmul, RefusesAScheduleThatNeedsOtherStrides) {
  CpuMatmulSchedule dot;
  dot.dot = true;
  EXPECT_EQ(print_cpu_matmul(plain(DType::kF32, 4, 40, 30).graph, dot).error().code,
            Code::kInvalidArgument);
  CpuMatmulSchedule in_place;
  in_place.b_from = BFrom::kInPlace;
  EXPECT_EQ(print_cpu_matmul(plain(DType::kF32, 4, 40, 30, true).graph, in_place).error().code,
            Code::kInvalidArgument);
}

TEST(Matmul, RefusesToReadAnAThatMustBePacked) {
  CpuMatmulSchedule in_place;
  in_place.a_packed = false;
  in_place.b_from = BFrom::kSlab;
  in_place.mr = 8;
  const auto refused = [&](const Workload& workload) {
    const auto source = print_cpu_matmul(workload.graph, in_place);
    return !source && source.error().code == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused(plain(DType::kF32, 8, 40, 30)));
  EXPECT_TRUE(refused(plain(DType::kF32, 7, 40, 30))) << "no whole tile of rows";
  EXPECT_TRUE(refused(plain(DType::kBF16, 8, 40, 30))) << "elements to convert";
  in_place.b_from = BFrom::kPacked;
  EXPECT_FALSE(decisions_of<CpuMatmulSchedule>(to_schedule(in_place)))
      << "a phase to pack b, none for a";
}

// Packing in a phase of its own is dear for a small product, and all cores get a block.
TEST(Matmul, SmallProductsTakeOnePhaseAndAllCores) {
  Target target = targets()[0];
  target.units = 2;
  const Workload workload = plain(DType::kF32, 32, 64, 64, true);
  const auto source = print_cpu_matmul(
      workload.graph,
      *decisions_of<CpuMatmulSchedule>(cpu_matmul_candidates(workload, target).front()));
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ(source->recipe.phases.size(), 1u);
  EXPECT_GE(*source->recipe.phases[0].grid.blocks({}), 2);
}

TEST(Matmul, SpaceIsDeterministicDistinctAndBounded) {
  for (const Target& target : targets())
    for (const int64_t m : {1, 16, 512}) {
      const Workload workload = plain(DType::kF32, m, 512, 512, true);
      const auto space = cpu_matmul_candidates(workload, target);
      EXPECT_GE(space.size(), 8u);
      EXPECT_LE(space.size(), 16u);
      EXPECT_EQ(space, cpu_matmul_candidates(workload, target));
      for (size_t i = 0; i < space.size(); ++i) {
        EXPECT_EQ(to_schedule(*decisions_of<CpuMatmulSchedule>(space[i])), space[i]);
        for (size_t j = 0; j < i; ++j) EXPECT_NE(space[i], space[j]);
      }
    }
}

}  // namespace
}  // namespace kiln
