// Matmul kernels for CUDA, run on the fake GPU: mma.sync, ldmatrix and cp.async included.
#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::check_with_random_inputs;
using testing::kAmpere;
using testing::kHopper;
using testing::matmul_workload;
using testing::plain_product;
using testing::random_inputs;
using testing::run_source;
using testing::Stored;

std::string check_cuda_matmul(const Workload& workload, int limit) {
  std::mt19937 random(11);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  const std::string wrong = check_space(workload, kHopper, inputs, limit);
  return wrong.empty() ? "" : wrong + "\n" + print(workload.graph);
}

std::string check_cuda_matmul(const Workload& workload, const CudaMatmulSchedule& schedule) {
  return check_with_random_inputs(workload, to_schedule(schedule), kHopper);
}

constexpr Stored kEveryStorage[] = {{false, false}, {false, true}, {true, false}, {true, true}};

TEST(CudaMatmul, AgreesHoweverTheOperandsAreStored) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const Stored stored : kEveryStorage)
      // Whole tiles of aligned chunks, then tails everywhere and single elements.
      for (const auto& [m, n, k] : {std::array{64, 64, 96}, std::array{67, 85, 51}})
        EXPECT_EQ(
            check_cuda_matmul(plain_product(dtype, m, n, k, stored), {64, 64, 32, 2, 2, 3, 1, 8}),
            "")
            << to_string(dtype) << m << stored.a_transposed << stored.b_transposed;
}

// A product of f32 matrices on the fake GPU, beside the exact one and one of fused multiply-adds.
struct Sums {
  std::vector<double> exact;
  std::vector<float> kernels, fused;
};
Sums sums_of_f32(const std::vector<Tensor>& inputs, size_t m, size_t n, size_t depth,
                 int splits = 1, int cluster = 1) {
  const auto source = lower_to_source(
      plain_product(DType::kF32, static_cast<int64_t>(m), static_cast<int64_t>(n),
                    static_cast<int64_t>(depth)),
      to_schedule(CudaMatmulSchedule{64, 64, 32, 2, 2, 3, splits, 8, cluster}), kHopper);
  EXPECT_TRUE(source) << source.error().message;
  const auto outputs = run_source(*source, kHopper, inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  Sums sums;
  if (!outputs) return sums;
  const auto x = inputs[0].as<float>(), w = inputs[1].as<float>(), y = (*outputs)[0].as<float>();
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double exact = 0;
      float fused = 0;
      for (size_t k = 0; k < depth; ++k) {
        exact += static_cast<double>(x[i * depth + k]) * w[k * n + j];
        fused = std::fma(x[i * depth + k], w[k * n + j], fused);
      }
      sums.exact.push_back(exact);
      sums.fused.push_back(fused);
      sums.kernels.push_back(y[i * n + j]);
    }
  return sums;
}

// Of a product of f32, drawn from the normal distribution.
std::vector<Tensor> normal_inputs(int64_t m, int64_t n, size_t depth, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Tensor> inputs =
      random_inputs(plain_product(DType::kF32, m, n, static_cast<int64_t>(depth)).graph, random);
  for (Tensor& input : inputs)
    for (int64_t i = 0; i < input.numel(); ++i) input.set(i, normal(random));
  return inputs;
}

double largest_error(const std::vector<float>& sums, const std::vector<double>& exact) {
  double largest = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(sums[i] - exact[i]));
  return largest;
}

// Three tf32 products lose less than f32 arithmetic in its plainest form.
TEST(CudaMatmul, SumsOfF32AreNearerThanFusedMultiplyAdds) {
  std::mt19937 random(13);
  const Sums sums =
      sums_of_f32(random_inputs(plain_product(DType::kF32, 64, 64, 64).graph, random), 64, 64, 64);
  EXPECT_LT(largest_error(sums.kernels, sums.exact), largest_error(sums.fused, sums.exact));
}

// Sums of few products have few roundings, next to which the halves' are seen.
TEST(CudaMatmul, ShallowSumsOfF32AreAsNearAsFusedMultiplyAdds) {
  for (const size_t depth : {16, 24, 40, 64}) {
    const Sums sums = sums_of_f32(normal_inputs(128, 128, depth, 16), 128, 128, depth);
    double kernels = 0, fused = 0;
    for (size_t i = 0; i < sums.exact.size(); ++i) {
      kernels += std::pow(sums.kernels[i] - sums.exact[i], 2);
      fused += std::pow(sums.fused[i] - sums.exact[i], 2);
    }
    EXPECT_LT(std::sqrt(kernels), 1.05 * std::sqrt(fused)) << depth;
  }
}

// The tensor cores truncate, which alone makes every sum 4.1e-8 to 4.7e-8 of itself too small here;
// the layers of a model add that up.
TEST(CudaMatmul, SumsOfF32AreNotTooSmallOnAverage) {
  struct Case {
    size_t depth;
    int splits, cluster;
  };
  // Whole tiles, ends inside a tile and inside an instruction's depth, and splits.
  for (const auto& [depth, splits, cluster] :
       {Case{512, 1, 1}, Case{150, 1, 1}, Case{72, 1, 1}, Case{512, 3, 1}, Case{512, 4, 4}}) {
    const Sums sums = sums_of_f32(normal_inputs(96, 96, depth, 14), 96, 96, depth, splits, cluster);
    double along = 0, squares = 0;
    for (size_t i = 0; i < sums.exact.size(); ++i) {
      along += (sums.kernels[i] - sums.exact[i]) * sums.exact[i];
      squares += sums.exact[i] * sums.exact[i];
    }
    EXPECT_LT(std::abs(along / squares), 1.5e-8) << depth << " in " << splits;
  }
}

// No rounding makes what needs none inexact.
TEST(CudaMatmul, SumsOfIntegersInF32AreExact) {
  std::mt19937 random(15);
  std::uniform_int_distribution<int> integers(-40, 40);
  std::vector<Tensor> inputs = random_inputs(plain_product(DType::kF32, 64, 64, 200).graph, random);
  for (Tensor& input : inputs)
    for (int64_t i = 0; i < input.numel(); ++i) input.set(i, integers(random));
  const Sums sums = sums_of_f32(inputs, 64, 64, 200);
  EXPECT_EQ(largest_error(sums.kernels, sums.exact), 0);
}

TEST(CudaMatmul, AgreesForF16) {
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kF16, 64, 64, 96), {64, 64, 32, 2, 2, 3, 1, 8}),
            "");
}

// Aligned rows that end inside a chunk: copies of less than 16 bytes.
TEST(CudaMatmul, FillsWhatIsPastAnEndWithZeros) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const Stored stored : kEveryStorage) {
      GraphBuilder b;
      const auto cut = [&](int64_t rows, int64_t columns, bool transposed) {
        const NodeId whole = b.input(dtype, transposed ? Shape{72, 104} : Shape{104, 72});
        const NodeId x = b.slice(b.slice(whole, 0, 0, transposed ? columns : rows), 1, 0,
                                 transposed ? rows : columns);
        return transposed ? b.permute(x, {1, 0}) : x;
      };
      const NodeId y = b.matmul(cut(71, 69, stored.a_transposed), cut(69, 71, stored.b_transposed));
      const Workload workload = matmul_workload(b, y);
      EXPECT_EQ(check_cuda_matmul(workload, {64, 64, 32, 2, 2, 4, 1, 8}), "")
          << to_string(dtype) << stored.a_transposed << stored.b_transposed;
    }
}

TEST(CudaMatmul, AgreesHoweverItIsTiled) {
  const Workload halves = plain_product(DType::kBF16, 150, 136, 200);
  for (const CudaMatmulSchedule& schedule : {CudaMatmulSchedule{128, 128, 32, 2, 4, 2, 1, 1},
                                             {128, 64, 64, 4, 1, 3, 1, 8},
                                             {16, 64, 128, 1, 4, 2, 1, 4},
                                             {32, 192, 16, 2, 2, 6, 1, 2},
                                             {64, 128, 32, 2, 2, 3, 3, 8}})
    EXPECT_EQ(check_cuda_matmul(halves, schedule), "");
  const Workload floats = plain_product(DType::kF32, 70, 76, 100, {true, false});
  for (const CudaMatmulSchedule& schedule : {CudaMatmulSchedule{128, 128, 16, 4, 2, 2, 1, 1},
                                             {16, 128, 32, 1, 4, 4, 2, 8},
                                             {32, 64, 16, 1, 4, 3, 4, 8},
                                             {128, 16, 64, 4, 1, 2, 1, 3}})
    EXPECT_EQ(check_cuda_matmul(floats, schedule), "");
}

TEST(CudaMatmul, AgreesUnderTheSchedulesOfTheSpace) {
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kBF16, 130, 264, 160, {false, true}), 4), "");
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kF32, 67, 83, 100), 3), "");
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kBF16, 1, 200, 520), 3), "");
}

TEST(CudaMatmul, AgreesAtDegenerateSizes) {
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kF32, 1, 1, 1), 1), "");
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kBF16, 5, 1, 40), 1), "");
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kF64, 40, 50, 1), 1), "");
  EXPECT_EQ(check_cuda_matmul(plain_product(DType::kBF16, 40, 1, 33, {false, true}), 1), "");
}

TEST(CudaMatmul, AgreesWithoutTensorCores) {
  for (const DType dtype :
       {DType::kF64, DType::kI32, DType::kI64, DType::kI16, DType::kI8, DType::kU8})
    EXPECT_EQ(check_cuda_matmul(plain_product(dtype, 19, 37, 23), 1), "") << to_string(dtype);
  for (const DType dtype : {DType::kF64, DType::kI8})
    EXPECT_EQ(check_cuda_matmul(plain_product(dtype, 48, 80, 64, {true, true}), 1), "")
        << to_string(dtype);
}

TEST(CudaMatmul, ReadsBatchedStridedOperands) {
  GraphBuilder b;
  // q [2, 9, 3, 24] and k [2, 14, 3, 24], heads moved in front: as attention has them.
  const NodeId q = b.permute(b.input(DType::kBF16, {2, 9, 3, 24}), {0, 2, 1, 3});
  const NodeId k = b.permute(b.input(DType::kBF16, {2, 14, 3, 24}), {0, 2, 3, 1});
  EXPECT_EQ(check_cuda_matmul(matmul_workload(b, b.matmul(q, k)), 3), "");
}

TEST(CudaMatmul, ReadsBroadcastSlicedAndReversedOperands) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    GraphBuilder b;
    const NodeId x = b.slice(b.slice(b.input(dtype, {4, 30, 50}), 1, 3, 20), 2, 5, 19, 2);
    const NodeId w = b.broadcast(b.slice(b.input(dtype, {19, 26}), 0, 18, 19, -1), {4, 19, 26});
    EXPECT_EQ(check_cuda_matmul(matmul_workload(b, b.matmul(x, w)), 2), "");
    GraphBuilder c;  // every row the same, every column the same
    const NodeId row = c.broadcast(c.input(dtype, {1, 40}), {20, 40});
    const NodeId column = c.broadcast(c.input(dtype, {40, 1}), {40, 24});
    EXPECT_EQ(check_cuda_matmul(matmul_workload(c, c.matmul(row, column)), 1), "");
  }
}

Workload with_epilogue(DType dtype, int64_t m, int64_t n, int64_t k) {
  GraphBuilder b;
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
  return matmul_workload(b, b.cast(y, dtype));
}

TEST(CudaMatmul, FusesBiasActivationAndResidual) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t n : {72, 75})
      EXPECT_EQ(check_cuda_matmul(with_epilogue(dtype, 21, n, 128), {32, 64, 32, 1, 4, 3, 1, 8}),
                "")
          << to_string(dtype);
}

TEST(CudaMatmul, FusesTheEpilogueAfterTheSumsOfSplits) {
  // 5 steps for 4 blocks: the last has none.
  for (const int cluster : {1, 4})
    EXPECT_EQ(check_cuda_matmul(with_epilogue(DType::kBF16, 21, 75, 160),
                                {32, 64, 32, 1, 4, 3, 4, 8, cluster}),
              "");
}

// Sums meet in vectors of 16 bytes, in smaller ones, and one by one; in fewer vectors than the cluster
// has threads; of integers and doubles too.
TEST(CudaMatmul, SumsOfSplitsMeetInACluster) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kI32})
    for (const int64_t columns : {1, 2, 20, 64, 80})
      for (const int cluster : {2, 8}) {
        const bool cores = dtype != DType::kF64 && dtype != DType::kI32;
        const CudaMatmulSchedule schedule =
            cores ? CudaMatmulSchedule{16, 64, 32, 1, 4, 3, cluster, 8, cluster}
                  : CudaMatmulSchedule{16, 64, 32, 2, 2, 2, cluster, 8, cluster};
        EXPECT_EQ(check_cuda_matmul(plain_product(dtype, 5, columns, 300), schedule), "")
            << to_string(dtype) << ' ' << columns << ' ' << cluster;
      }
}

TEST(CudaMatmul, SplitsNeedNoSecondLaunchWhereThereAreClusters) {
  const Workload workload = plain_product(DType::kBF16, 16, 512, 4096);
  for (const Target& target : {kHopper, kAmpere})
    for (const Schedule& schedule : cuda_matmul_candidates(workload, target)) {
      const auto chosen = decisions_of<CudaMatmulSchedule>(schedule);
      const auto source = print_cuda_matmul(workload.graph, *chosen, target);
      ASSERT_TRUE(source) << source.error().message;
      const bool meets = sm_number(target) >= 90 && chosen->splits <= 8;
      EXPECT_EQ(source->recipe.phases.size(), chosen->splits > 1 && !meets ? 2U : 1U)
          << schedule.to_string();
    }
}

TEST(CudaMatmul, EpilogueKnowsItsBatch) {
  for (const auto& [splits, cluster] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{2, 2}}) {
    GraphBuilder b;
    const Shape shape = {2, 3, 7, 18};
    NodeId y = b.matmul(b.input(DType::kF32, {2, 3, 7, 60}), b.input(DType::kF32, {2, 3, 60, 18}));
    y = b.binary(Op::kAdd, y, b.broadcast(b.input(DType::kF32, {3, 1, 18}), shape));
    y = b.binary(Op::kMul, y, b.input(DType::kF32, shape));
    EXPECT_EQ(check_cuda_matmul(matmul_workload(b, y), {16, 64, 32, 1, 4, 3, splits, 8, cluster}),
              "");
  }
}

TEST(CudaMatmul, KeepsNanAndInfinity) {
  // Sums of one block, and of a cluster's two.
  for (const auto& [depth, schedule] :
       {std::pair{3, CudaMatmulSchedule{}},
        std::pair{40, CudaMatmulSchedule{16, 32, 16, 1, 2, 3, 2, 8, 2}}}) {
    const Workload workload = plain_product(DType::kF32, 4, 40, depth);
    Tensor x(DType::kF32, {4, depth}), w(DType::kF32, {depth, 40});
    for (int64_t i = 0; i < w.numel(); ++i) w.set(i, 1);
    x.set(0, NAN);
    x.set(depth, INFINITY);
    x.set(2 * depth, INFINITY);
    x.set(3 * depth - 1, -INFINITY);
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(x));
    inputs.push_back(std::move(w));
    EXPECT_EQ(check_schedule(workload, to_schedule(schedule), kHopper, inputs), "") << depth;
  }
}

TEST(CudaMatmul, RefusesWhatNoKernelCanBeWrittenFor) {
  const Graph graph = plain_product(DType::kBF16, 64, 64, 64).graph;
  const auto refused = [&](const CudaMatmulSchedule& schedule) {
    const auto source = print_cuda_matmul(graph, schedule, kHopper);
    return !source && source.error().code == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused({64, 64, 32, 2, 2, 3, 1, 8}));
  EXPECT_TRUE(refused({16, 64, 32, 2, 2, 3, 1, 8}));     // half a fragment a warp
  EXPECT_TRUE(refused({256, 256, 32, 2, 2, 3, 1, 8}));   // too many sums a thread
  EXPECT_TRUE(refused({256, 128, 128, 4, 2, 4, 1, 8}));  // too much shared memory
  EXPECT_TRUE(refused({64, 64, 32, 2, 2, 3, 4, 8}));     // more splits than steps
  EXPECT_TRUE(refused({64, 96, 32, 2, 2, 3, 1, 8}));     // rows that chunks can't change places in
  EXPECT_FALSE(decisions_of<CudaMatmulSchedule>(         // sums of half of the splits
      to_schedule(CudaMatmulSchedule{64, 64, 32, 2, 2, 3, 4, 8, 2})));
  EXPECT_FALSE(
      print_cuda_matmul(graph, {64, 64, 32, 2, 2, 3, 2, 8, 2}, *Target::parse("cuda:sm_80")));
  Schedule odd = to_schedule(CudaMatmulSchedule{});
  odd.decisions[0].value = 20;  // rows come in eights
  EXPECT_FALSE(decisions_of<CudaMatmulSchedule>(odd));
}

// A squeeze of efficientnet: one step brings the whole depth, however deep it could be.
TEST(CudaMatmul, SpaceHasNoScheduleThatOnlyIdlesMore) {
  const auto space = [](int64_t m, int64_t n, int64_t k) {
    const Workload workload = plain_product(DType::kBF16, m, n, k);
    std::vector<CudaMatmulSchedule> all;
    for (const Schedule& schedule : cuda_matmul_candidates(workload, kHopper))
      all.push_back(*decisions_of<CudaMatmulSchedule>(schedule));
    return all;
  };
  for (const auto& [m, n, k] : {std::tuple(8, 32, 32), {96, 32, 4}, {1152, 32, 20}}) {
    const auto all = space(m, n, k);
    ASSERT_FALSE(all.empty());
    for (const CudaMatmulSchedule& x : all) {
      EXPECT_EQ(x.bk, 32) << to_schedule(x).to_string();     // no zeros behind the depth
      EXPECT_EQ(x.stages, 3) << to_schedule(x).to_string();  // no room for steps that never come
      EXPECT_FALSE(x.bm == 16 && x.bn == 64) << "the tile of 32 columns has them all";
    }
  }
  // Two steps of 32 or one of 64: neither only idles more. Deep products keep what they had.
  const auto two = space(48, 32, 64);
  EXPECT_TRUE(std::ranges::any_of(two, [](const auto& x) { return x.bk == 32; }));
  EXPECT_TRUE(std::ranges::any_of(two, [](const auto& x) { return x.bk == 64; }));
  const auto deep = space(512, 512, 4096);
  EXPECT_TRUE(std::ranges::any_of(deep, [](const auto& x) { return x.stages > 3; }));
}

TEST(CudaMatmul, SpaceIsDeterministicDistinctAndBounded) {
  for (const Target& target : {kAmpere, kHopper})
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64})
      for (const int64_t m : {1, 16, 512, 4096}) {
        const Workload workload = plain_product(dtype, m, 1024, 1024, {false, true});
        const MatmulProblem problem = MatmulProblem::of(workload.graph);
        const auto space = cuda_matmul_candidates(workload, target);
        EXPECT_GE(space.size(), 2u);
        EXPECT_LE(space.size(), 12u);
        EXPECT_EQ(space, cuda_matmul_candidates(workload, target));
        for (size_t i = 0; i < space.size(); ++i) {
          const auto schedule = decisions_of<CudaMatmulSchedule>(space[i]);
          ASSERT_TRUE(schedule);
          EXPECT_EQ(to_schedule(*schedule), space[i]);
          EXPECT_TRUE(fits(*schedule, problem));
          EXPECT_LE(schedule->shared_bytes(problem), (target == kAmpere ? 163 : 227) << 10);
          for (size_t j = 0; j < i; ++j) EXPECT_NE(space[i], space[j]);
        }
      }
}

}  // namespace
}  // namespace kiln
