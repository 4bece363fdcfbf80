// Products of rows with matrices that an index picks, on the tensor cores of compute capability 9.0,
// run on the fake GPU.
#include "compiler_core/kernels/wgmma/wgmma_picked.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::kHopper;
using testing::random_inputs;

struct PickedSizes {
  int64_t indices, rows, k, n, matrices;  // rows: of an index
};
struct Forms {
  DType dtype = DType::kBF16;
  bool transposed = false;  // matrices are stored [n, k]
  bool epilogue = false;    // a bias of the matrix, a residual, and f32 results
};

// The index is input 0.
Workload picked(const PickedSizes& s, const Forms& forms = {}) {
  GraphBuilder b;
  const NodeId index = b.input(DType::kI64, {s.indices});
  const NodeId x = b.input(forms.dtype, {s.indices, s.rows, s.k});
  const Shape stored = {s.matrices, forms.transposed ? s.n : s.k, forms.transposed ? s.k : s.n};
  const NodeId table = b.input(forms.dtype, stored);
  const NodeId matrices = b.gather(forms.transposed ? b.permute(table, {0, 2, 1}) : table, index);
  const Shape shape = {s.indices, s.rows, s.n};
  NodeId y = b.add({Op::kMatmul, DType::kF32, shape, {x, matrices}, {}});
  if (forms.epilogue) {
    const NodeId bias = b.cast(b.input(forms.dtype, shape), DType::kF32);
    const NodeId scale = b.broadcast(b.input(DType::kF32, {s.indices, s.rows, 1}), shape);
    y = b.binary(Op::kMul, b.unary(Op::kTanh, b.binary(Op::kAdd, y, bias)), scale);
  } else {
    y = b.cast(y, forms.dtype);
  }
  const auto graph = b.finish({y});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto family = classify(*graph);
  EXPECT_TRUE(family) << family.error().message;
  return {*graph, Family::kMatmul, {}};
}

std::string check_picked(const Workload& workload, const WgmmaPickedSchedule& schedule,
                         const std::vector<int64_t>& index, int units = 132) {
  std::mt19937 random(21);
  std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (size_t i = 0; i < index.size(); ++i) inputs[0].set_int(static_cast<int64_t>(i), index[i]);
  Target target = kHopper;
  target.units = units;
  const std::string wrong = check_schedule(workload, to_schedule(schedule), target, inputs);
  return wrong.empty() ? "" : wrong + "\n" + print(workload.graph);
}

// Runs of these lengths, of the matrices in order.
std::vector<int64_t> runs(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> index;
  for (size_t matrix = 0; matrix < lengths.size(); ++matrix)
    index.insert(index.end(), static_cast<size_t>(lengths[matrix]), static_cast<int64_t>(matrix));
  return index;
}

WgmmaPickedSchedule tiles(int bm, int bn, int groups, int stages = 3) {
  WgmmaPickedSchedule schedule;
  schedule.bm = bm, schedule.bn = bn, schedule.groups = groups, schedule.stages = stages;
  return schedule;
}

TEST(WgmmaPicked, AgreesHoweverRowsAreSharedOut) {
  const Workload workload = picked({200, 1, 136, 88, 5});
  for (const auto& lengths : {std::vector<int64_t>{40, 40, 40, 40, 40},
                              {0, 130, 0, 70, 0},
                              {200, 0, 0, 0, 0},
                              {0, 0, 0, 0, 200},
                              {1, 63, 64, 65, 7}}) {
    EXPECT_EQ(check_picked(workload, tiles(64, 64, 1), runs(lengths)), "") << lengths[0];
    EXPECT_EQ(check_picked(workload, tiles(128, 64, 2), runs(lengths)), "") << lengths[0];
  }
}

// Runs are found wherever they are: here most rows are one of their own.
TEST(WgmmaPicked, AgreesForIndicesInAnyOrder) {
  const Workload workload = picked({90, 1, 64, 72, 7});
  std::vector<int64_t> index;
  for (int64_t i = 0; i < 90; ++i) index.push_back(i * i % 7);
  EXPECT_EQ(check_picked(workload, tiles(64, 64, 1), index), "");
  std::ranges::sort(index, std::greater<>());
  EXPECT_EQ(check_picked(workload, tiles(128, 128, 2), index), "");
}

TEST(WgmmaPicked, CountsNegativeIndicesFromTheEndAndClampsOthers) {
  const Workload workload = picked({12, 1, 64, 64, 3});
  EXPECT_EQ(check_picked(workload, tiles(64, 64, 1), {-1, -1, -3, -9, 0, 0, 1, 2, 2, 3, 9, 77}),
            "");
}

// A block takes tile after tile, of which some leave its second warpgroup without rows.
TEST(WgmmaPicked, AgreesWhereABlockTakesSeveralTiles) {
  const Workload workload = picked({300, 1, 200, 328, 6});
  const std::vector<int64_t> index = runs({3, 130, 0, 64, 65, 38});
  for (const int stages : {2, 3, 4})
    EXPECT_EQ(check_picked(workload, tiles(128, 128, 2, stages), index, 2), "") << stages;
  EXPECT_EQ(check_picked(workload, tiles(192, 128, 3), index, 3), "");
  EXPECT_EQ(check_picked(workload, tiles(256, 128, 2), index, 3), "");
  EXPECT_EQ(check_picked(workload, tiles(64, 256, 1), index, 5), "");
}

TEST(WgmmaPicked, AgreesForSeveralRowsAnIndex) {
  const Workload workload = picked({9, 24, 72, 80, 4});
  EXPECT_EQ(check_picked(workload, tiles(64, 64, 1), {0, 0, 0, 2, 2, 3, 3, 3, 1}), "");
}

TEST(WgmmaPicked, AgreesForMatricesStoredTransposed) {
  const Forms forms{.dtype = DType::kF16, .transposed = true};
  EXPECT_EQ(check_picked(picked({70, 1, 72, 104, 3}, forms), tiles(64, 96, 1), runs({10, 0, 60})),
            "");
}

TEST(WgmmaPicked, FusesAnEpilogue) {
  const Forms forms{.epilogue = true};
  EXPECT_EQ(check_picked(picked({70, 1, 72, 104, 3}, forms), tiles(64, 64, 1), runs({10, 0, 60})),
            "");
  EXPECT_EQ(check_picked(picked({20, 5, 72, 104, 3}, forms), tiles(64, 64, 1), runs({7, 2, 11})),
            "");
}

// More indices than the kernel that finds the runs has threads.
TEST(WgmmaPicked, AgreesForManyIndices) {
  const Workload workload = picked({2500, 1, 64, 64, 40});
  std::vector<int64_t> lengths(40, 60);
  lengths[17] = 160;
  EXPECT_EQ(check_picked(workload, tiles(128, 64, 2), runs(lengths)), "");
}

TEST(WgmmaPicked, IsTheOnlyTemplateForItsWorkloads) {
  const Workload workload = picked({512, 1, 2048, 768, 128});
  const auto space = search_space(workload, kHopper);
  ASSERT_TRUE(space) << space.error().message;
  for (const Schedule& schedule : *space)
    EXPECT_EQ(schedule.template_name, WgmmaPickedSchedule::kTemplate);
  EXPECT_FALSE(wgmma_picked().covers(workload, *Target::parse("cuda:sm_80")));
  // Few rows a matrix: no tile is higher than need be.
  EXPECT_EQ(decisions_of<WgmmaPickedSchedule>(space->front())->bm, 64);
}

}  // namespace
}  // namespace kiln
