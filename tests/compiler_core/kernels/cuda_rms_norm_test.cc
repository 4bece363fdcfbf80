// Products of few rows that a norm scales on CUDA, run on the fake GPU.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/rms_norm.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/plan/rms_norm_graphs.h"

namespace kiln {
namespace {

using testing::kAmpere;
using testing::kHopper;
using testing::linear_of;
using testing::normed;
using testing::NormWeights;

// A kernel and what it should compute: its graph with rows that are scaled in f32. Kernels round rows before
// they are scaled, where the graph rounds them behind that; of inputs_of(), nothing is lost there.
struct NormedCase {
  Workload workload;
  std::vector<int> input_order;
  Graph exact;
};

// `results`: of x [rows, depth], in f32, by way of rows that are scaled, which are rounded or not.
using Results = std::function<std::vector<NodeId>(GraphBuilder&, bool rounds)>;
NormedCase case_of(const Results& results) {
  const auto graph_of = [&](bool rounds) {
    GraphBuilder b;
    std::vector<NodeId> outputs = results(b, rounds);
    for (NodeId& output : outputs) output = b.cast(output, DType::kBF16);
    auto graph = b.finish(std::move(outputs));
    EXPECT_TRUE(graph) << graph.error().message;
    return *std::move(graph);
  };
  auto made = make_workload(graph_of(true));
  EXPECT_TRUE(made) << made.error().message;
  return {made->workload, made->input_order, graph_of(false)};
}

NormedCase one_product(int64_t rows, int64_t columns, int64_t depth,
                       NormWeights weights = NormWeights::kHalves) {
  return case_of([=](GraphBuilder& b, bool rounds) {
    const NodeId x = normed(b, b.input(DType::kBF16, {rows, depth}), weights, rounds);
    return std::vector<NodeId>{linear_of(b, x, columns)};
  });
}

NormedCase one_gate(int64_t rows, int64_t columns, int64_t depth) {
  return case_of([=](GraphBuilder& b, bool rounds) {
    const NodeId x = normed(b, b.input(DType::kBF16, {rows, depth}), NormWeights::kOneMore, rounds);
    const NodeId gate = b.unary(Op::kTanh, linear_of(b, x, columns));
    return std::vector<NodeId>{b.binary(Op::kMul, gate, linear_of(b, x, columns))};
  });
}

// Rows of few digits, of which some are far larger than others, so that each square counts; weights of a norm
// that are powers of two, with 1 more too; others at random.
std::vector<Tensor> inputs_of(const Graph& graph) {
  std::mt19937 random(12);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  std::vector<Tensor> inputs = testing::random_inputs(graph, random);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor& tensor = inputs[i];
    const bool is_weight = tensor.sizes().size() == 1;
    if (i > 0 && !is_weight) continue;
    for (int64_t at = 0; at < tensor.numel(); ++at)
      tensor.set(at, is_weight ? std::array{1.0, -0.5, -2.0}[static_cast<size_t>(pick(0, 2))]
                               : std::ldexp(pick(-7, 7), pick(0, 9) == 0 ? 6 : 0));
  }
  return inputs;
}

std::string check_case(const NormedCase& of, const Schedule& schedule,
                       const Target& target = kHopper) {
  const std::vector<Tensor> inputs = inputs_of(of.exact);
  // As the workload has them: in its order, and some without their axes.
  std::vector<Tensor> ordered;
  for (size_t i = 0; i < of.input_order.size(); ++i) {
    const Tensor& from = inputs[static_cast<size_t>(of.input_order[i])];
    const Node& to = of.workload.graph.node(of.workload.graph.inputs()[i]);
    ordered.emplace_back(to.dtype, constant_sizes(to.shape));
    std::ranges::copy(from.bytes(), ordered.back().bytes().begin());
  }
  const auto source = lower_to_source(of.workload, schedule, target);
  if (!source) return source.error().message;
  const auto outputs = testing::run_source(*source, target, ordered);
  if (!outputs) return outputs.error().message;
  return testing::disagreement(of.exact, inputs, *outputs);
}

std::string check_normed(const NormedCase& of, const CudaFewRowsSchedule& decisions) {
  const bool is_joined = of.workload.family == Family::kProducts;
  return check_case(
      of, is_joined ? to_schedule(CudaJoinedFewRowsSchedule{decisions}) : to_schedule(decisions));
}

TEST(CudaRmsNorms, AgreeForEveryNumberOfRowsAndColumns) {
  for (const auto& [rows, bm] : {std::pair{1, 8}, {5, 8}, {8, 16}, {16, 16}})
    for (const int64_t columns : {8, 48, 72})
      EXPECT_EQ(check_normed(one_product(rows, columns, 200), {bm, 32, 32, 4, 1}), "")
          << rows << ' ' << columns;
}

TEST(CudaRmsNorms, AgreeForEveryKindOfWeights) {
  for (const NormWeights weights :
       {NormWeights::kNone, NormWeights::kHalves, NormWeights::kF32, NormWeights::kOneMore})
    EXPECT_EQ(check_normed(one_product(7, 40, 264, weights), {8, 16, 64, 2, 1}), "")
        << static_cast<int>(weights);
}

// Fewer steps than warps, as many, one more, ends inside a step.
TEST(CudaRmsNorms, AgreeForEveryDepth) {
  for (const int64_t depth : {8, 64, 256, 264, 320, 1096})
    for (const int bk : {32, 128})
      EXPECT_EQ(check_normed(one_product(5, 48, depth), {8, 16, bk, 2, 1}), "")
          << depth << ' ' << bk;
}

// A residual of the rows that are scaled; rows that are part of others.
TEST(CudaRmsNorms, AgreeWhereTheRowsAreReadElsewhereToo) {
  const NormedCase residual = case_of([](GraphBuilder& b, bool rounds) {
    const NodeId x = b.slice(b.input(DType::kBF16, {11, 64}), 1, 16, 48);
    const NodeId y = linear_of(b, normed(b, x, NormWeights::kHalves, rounds), 48);
    return std::vector<NodeId>{b.binary(Op::kAdd, y, b.cast(x, DType::kF32))};
  });
  for (const int bn : {16, 64}) EXPECT_EQ(check_normed(residual, {16, bn, 32, 4, 1}), "") << bn;
}

TEST(CudaRmsNorms, ProductsOfThemAgree) {
  for (const int64_t rows : {1, 13}) {
    const NormedCase projections = case_of([rows](GraphBuilder& b, bool rounds) {
      const NodeId x = normed(b, b.input(DType::kBF16, {rows, 136}), NormWeights::kHalves, rounds);
      return std::vector<NodeId>{linear_of(b, x, 72), linear_of(b, x, 8), linear_of(b, x, 40)};
    });
    EXPECT_EQ(check_normed(projections, {16, 32, 32, 4, 1}), "") << rows;
    EXPECT_EQ(check_normed(one_gate(rows, 72, 136), {16, 64, 32, 2, 1}), "") << rows;
  }
}

TEST(CudaRmsNorms, EveryCandidateAgrees) {
  for (const Target& target : {kHopper, kAmpere})
    for (const NormedCase& of :
         {one_product(16, 80, 2048), one_product(3, 8, 8, NormWeights::kF32),
          one_product(9, 16, kMostRmsNormWeights / 4, NormWeights::kF32), one_gate(16, 96, 1024)}) {
      const auto space = ranked_space(of.workload, target);
      ASSERT_TRUE(space) << space.error().message;
      EXPECT_FALSE(space->schedules.empty());
      for (const Schedule& schedule : space->schedules) {
        EXPECT_NE(schedule.template_name.find("few_rows"), std::string::npos) << "no other scales";
        EXPECT_EQ(check_case(of, schedule, target), "") << schedule.to_string();
      }
    }
}

// The block that multiplies adds up the squares.
TEST(CudaRmsNorms, NoClusterDividesTheirDepth) {
  const MatmulProblem problem = MatmulProblem::of(one_product(8, 64, 4096).workload.graph);
  EXPECT_FALSE(fits(CudaFewRowsSchedule{8, 16, 32, 4, 2}, problem));
  EXPECT_TRUE(fits(CudaFewRowsSchedule{8, 16, 32, 4, 1}, problem));
}

// A block of 16 warps stages 73 KB of sums, and the norm's weights are 32 KB.
TEST(CudaRmsNorms, SharedMemoryLimitsTheTile) {
  const MatmulProblem problem =
      MatmulProblem::of(one_product(16, 64, kMostRmsNormWeights / 2).workload.graph);
  EXPECT_FALSE(fits(CudaFewRowsSchedule{16, 64, 32, 16, 1}, problem));
  EXPECT_TRUE(fits(CudaFewRowsSchedule{16, 64, 32, 8, 1}, problem));
  EXPECT_TRUE(fits(CudaFewRowsSchedule{16, 32, 32, 16, 1}, problem));
}

}  // namespace
}  // namespace kiln
