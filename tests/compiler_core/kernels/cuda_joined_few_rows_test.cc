// Products of one first operand of few rows on CUDA, run on the fake GPU.
#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <gtest/gtest.h>

#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/joined_workloads.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_with_random_inputs;
using testing::gated;
using testing::kAmpere;
using testing::kHopper;
using testing::projections;

std::string check_few(const Workload& workload, const CudaFewRowsSchedule& decisions) {
  return check_with_random_inputs(workload, to_schedule(CudaJoinedFewRowsSchedule{decisions}),
                                  kHopper);
}

// Whole tiles of every output, outputs that end inside one, outputs smaller than one.
TEST(CudaJoinedFewRows, AgreesForEveryNumberOfColumns) {
  for (const std::vector<int64_t>& columns : std::vector<std::vector<int64_t>>{
           {64, 32, 32}, {72, 8, 40}, {16, 16}, {8, 8, 8, 8, 8, 8, 8, 8}})
    for (const int splits : {1, 2})
      EXPECT_EQ(check_few(projections(DType::kBF16, 5, 520, columns), {8, 32, 32, 4, splits}), "")
          << columns.size() << ' ' << splits;
}

TEST(CudaJoinedFewRows, AgreesForEveryNumberOfRows) {
  for (const auto& [rows, bm] : {std::pair{1, 8}, {8, 8}, {9, 16}, {27, 32}})
    EXPECT_EQ(check_few(projections(DType::kF16, rows, 136, {48, 24}, false), {bm, 16, 32, 2, 1}),
              "")
        << rows;
}

// Two products of an output stand side by side in a tile.
TEST(CudaJoinedFewRows, AgreesForGates) {
  for (const int columns : {32, 64})
    for (const int splits : {1, 2})
      for (const int64_t n : {16, 72, 128})
        EXPECT_EQ(check_few(gated(DType::kBF16, 7, 520, n), {8, columns, 32, 4, splits}), "")
            << columns << ' ' << splits << ' ' << n;
}

TEST(CudaJoinedFewRows, EveryCandidateAgrees) {
  for (const Target& target : {kHopper, kAmpere})
    for (const Workload& workload :
         {projections(DType::kBF16, 16, 1024, {96, 32, 32}), gated(DType::kBF16, 3, 1024, 96),
          gated(DType::kF16, 1, 8, 8)}) {
      const auto space = cuda_joined_few_rows().candidates(workload, target);
      ASSERT_TRUE(space) << space.error().message;
      EXPECT_FALSE(space->empty());
      for (const Schedule& schedule : *space)
        EXPECT_EQ(check_with_random_inputs(workload, schedule, target), "") << schedule.to_string();
    }
}

TEST(CudaJoinedFewRows, LeavesManyRowsToOthers) {
  EXPECT_FALSE(cuda_joined_few_rows().covers(projections(DType::kBF16, 33, 64, {64, 64}), kHopper));
}

// A tile would have half a fragment of each product.
TEST(CudaJoinedFewRows, RefusesColumnsThatTwoProductsCannotShare) {
  const Schedule schedule = to_schedule(CudaJoinedFewRowsSchedule{{8, 16, 32, 4, 1}});
  EXPECT_FALSE(lower(gated(DType::kBF16, 7, 256, 64), schedule, kHopper));
}

}  // namespace
}  // namespace kiln
