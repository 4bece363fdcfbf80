// Products of few rows on CUDA, whose weights go from memory into registers, run on the fake GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::kAmpere;
using testing::kHopper;
using testing::matmul_workload;
using testing::plain_product;

constexpr testing::Stored kWeights = {false, true};  // as a Linear has them

std::string check(const Workload& workload, const CudaFewRowsSchedule& schedule,
                  const Target& target = kHopper) {
  return check_with_random_inputs(workload, to_schedule(schedule), target);
}

TEST(CudaFewRows, AgreesForEveryNumberOfRowsAndColumns) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [rows, bm] :
         {std::pair{1, 8}, std::pair{8, 8}, std::pair{9, 16}, std::pair{16, 32}, std::pair{27, 32}})
      for (const int64_t columns : {1, 16, 47, 72})
        EXPECT_EQ(check(plain_product(dtype, rows, columns, 200, kWeights), {bm, 32, 32, 4, 1}), "")
            << to_string(dtype) << ' ' << rows << ' ' << columns;
}

// Fewer steps than warps, as many, one more, ends inside a step; of clusters too.
TEST(CudaFewRows, AgreesForEveryDepth) {
  for (const int64_t depth : {8, 64, 256, 264, 320, 1096})
    for (const int splits : {1, 2})
      for (const int bk : {32, 128}) {
        const Workload workload = plain_product(DType::kBF16, 5, 48, depth, kWeights);
        const CudaFewRowsSchedule schedule = {8, 16, bk, 2, splits};
        if (!fits(schedule, MatmulProblem::of(workload.graph))) continue;
        EXPECT_EQ(check(workload, schedule), "") << depth << ' ' << splits << ' ' << bk;
      }
}

TEST(CudaFewRows, EpilogueKnowsItsBatch) {
  for (const int splits : {1, 4}) {
    GraphBuilder b;
    const Shape shape = {2, 3, 7, 24};
    const auto wide = [&](NodeId id) { return b.cast(id, DType::kF32); };
    NodeId y = b.matmul(b.input(DType::kBF16, {2, 3, 7, 512}),
                        b.permute(b.input(DType::kBF16, {2, 3, 24, 512}), {0, 1, 3, 2}));
    y = b.binary(Op::kAdd, y, b.broadcast(wide(b.input(DType::kBF16, {3, 1, 24})), shape));
    y = b.binary(Op::kMul, y, wide(b.input(DType::kBF16, shape)));
    EXPECT_EQ(check(matmul_workload(b, b.cast(y, DType::kBF16)), {8, 16, 32, 4, splits}), "");
  }
}

// Which a thread reads while it multiplies, where it has one vector of it at most.
TEST(CudaFewRows, AgreesWithAnAddend) {
  for (const auto& [rows, columns, bm] : {std::tuple{5, 40, 8}, std::tuple{16, 72, 16}})
    for (const auto& [bn, warps, splits] :
         {std::tuple{16, 4, 1}, std::tuple{64, 2, 1}, std::tuple{32, 4, 4}}) {
      GraphBuilder b;
      NodeId y = b.matmul(b.input(DType::kBF16, {rows, 512}),
                          b.permute(b.input(DType::kBF16, {columns, 512}), {1, 0}));
      const NodeId addend = b.input(DType::kBF16, {rows, columns});
      y = b.cast(b.binary(Op::kAdd, y, b.cast(addend, DType::kF32)), DType::kBF16);
      EXPECT_EQ(check(matmul_workload(b, y), {bm, bn, 32, warps, splits}), "")
          << rows << ' ' << bn << ' ' << splits;
    }
}

// A View of it reads memory, not the register in which it waits. Part of a Concat of it would read that.
TEST(CudaFewRows, AgreesWithAnAddendThatIsReadElsewhereToo) {
  for (const bool joined : {false, true}) {
    GraphBuilder b;
    NodeId y = b.matmul(b.input(DType::kBF16, {16, 512}),
                        b.permute(b.input(DType::kBF16, {16, 512}), {1, 0}));
    const NodeId addend = b.input(DType::kBF16, {16, 16});
    y = b.binary(Op::kAdd, y, b.cast(addend, DType::kF32));
    const NodeId twice[] = {addend, addend};
    const NodeId elsewhere =
        joined ? b.slice(b.concat(twice, 1), 1, 8, 16) : b.permute(addend, {1, 0});
    y = b.binary(Op::kMul, y, b.cast(elsewhere, DType::kF32));
    EXPECT_EQ(check(matmul_workload(b, b.cast(y, DType::kBF16)), {16, 16, 32, 4, 4}), "") << joined;
  }
}

TEST(CudaFewRows, EveryCandidateAgrees) {
  for (const Target& target : {kHopper, kAmpere}) {
    const Workload workload = plain_product(DType::kBF16, 16, 80, 2048, kWeights);
    const auto space = cuda_few_rows().candidates(workload, target);
    ASSERT_TRUE(space) << space.error().message;
    EXPECT_FALSE(space->empty());
    for (const Schedule& schedule : *space) {
      const auto chosen = decisions_of<CudaFewRowsSchedule>(schedule);
      ASSERT_TRUE(chosen) << chosen.error().message;
      EXPECT_EQ(check(workload, *chosen, target), "") << schedule.to_string();
    }
  }
}

// A launch of a few microseconds; a longer one is judged by itself.
TEST(CudaFewRows, OthersAreInReserveWhereALaunchIsShort) {
  const auto far = [](int64_t rows, int64_t columns) {
    const auto space =
        ranked_space(plain_product(DType::kBF16, rows, columns, 2048, kWeights), kHopper);
    return space ? space->far : std::set<std::string>();
  };
  const std::set<std::string> others = {"cuda.matmul", "cuda.matmul.wgmma"};
  EXPECT_EQ(far(16, 2048), others);
  EXPECT_EQ(far(1, 8192), others);
  EXPECT_EQ(far(16, 128256), std::set<std::string>());
  EXPECT_EQ(far(32, 2048), std::set<std::string>());
}

TEST(CudaFewRows, CoversWhatItIsWrittenFor) {
  const auto covers = [](const Workload& workload) {
    return cuda_few_rows().covers(workload, kHopper);
  };
  EXPECT_TRUE(covers(plain_product(DType::kBF16, 32, 80, 64, kWeights)));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 33, 80, 64, kWeights)));  // many rows
  EXPECT_FALSE(covers(plain_product(DType::kF32, 8, 80, 64, kWeights)));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 8, 80, 60, kWeights)));  // lines begin anywhere
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 8, 80, 64)));            // contiguous by columns
}

}  // namespace
}  // namespace kiln
