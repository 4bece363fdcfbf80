#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::all_targets;
using testing::check_space;
using testing::own_and_cuda;
using testing::random_inputs;
using testing::run_source;
using testing::targets;

constexpr Combine kCombines[] = {Combine::kSet, Combine::kAdd, Combine::kMul, Combine::kMax,
                                 Combine::kMin};

Graph scatter_graph(DType dtype, const Shape& shape, const Shape& index, Combine combine) {
  GraphBuilder b;
  Shape updates = index;
  updates.insert(updates.end(), shape.begin() + 1, shape.end());
  const NodeId x = b.input(dtype, shape), at = b.input(DType::kI64, index);
  return *b.finish({b.scatter(x, at, b.input(dtype, updates), combine)});
}

// Values near 1, so that products stay small, and exact sums; some indices from the end, some out
// of range.
std::vector<Tensor> scatter_inputs(const Graph& graph) {
  std::mt19937 random(13);
  std::vector<Tensor> inputs = random_inputs(graph, random);
  const Node& node = graph.node(graph.outputs()[0]);
  const int64_t rows = node.shape[0].constant();
  const auto index =
      static_cast<size_t>(std::get<InputAttr>(graph.node(node.operands[1]).attr).index);
  for (size_t k = 0; k < inputs.size(); ++k)
    for (int64_t i = 0; i < inputs[k].numel(); ++i)
      if (k == index)
        inputs[k].set_int(i, static_cast<int64_t>(random() % (2 * rows + 2)) - rows - 1);
      else if (is_float(inputs[k].dtype()))
        inputs[k].set(i, random() % 2 == 0 ? 1.0 : random() % 2 == 0 ? -1.0 : 0.5);
  return inputs;
}

std::string check_scatter(const Graph& graph, const std::vector<Target>& on, int limit) {
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kScatter) return "not a scatter";
  for (const Target& target : on) {
    const std::string wrong =
        check_space(made->workload, target, scatter_inputs(made->workload.graph), limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(Scatter, AgreesWithTheInterpreterInEveryTypeAndCombination) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool})
    for (const Combine combine : kCombines) {
      const bool plain = combine == Combine::kSet || combine == Combine::kAdd;
      const bool few = dtype == DType::kF64 || dtype == DType::kBF16 || dtype == DType::kI8;
      if (dtype == DType::kBool ? combine != Combine::kSet : !plain && !few) continue;
      EXPECT_EQ(check_scatter(scatter_graph(dtype, {7, 19}, {13}, combine), own_and_cuda(), 1), "")
          << to_string(dtype) << " " << to_string(combine);
    }
}

TEST(Scatter, EveryShape) {
  for (const Combine combine : {Combine::kSet, Combine::kAdd}) {
    EXPECT_EQ(check_scatter(scatter_graph(DType::kF32, {1}, {1}, combine), all_targets(), 1), "");
    EXPECT_EQ(check_scatter(scatter_graph(DType::kF32, {50}, {300}, combine), all_targets(), 1),
              "");
    const Graph ranks = scatter_graph(DType::kF32, {5, 3, 4}, {2, 3}, combine);
    EXPECT_EQ(check_scatter(ranks, own_and_cuda(), 1), "");
    EXPECT_EQ(check_scatter(scatter_graph(DType::kF32, {6, 33}, {}, combine), own_and_cuda(), 1),
              "");
  }
}

TEST(Scatter, OneBufferInTwoParts) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kI64, {6});
  EXPECT_EQ(check_scatter(*b.finish({b.scatter(x, x, x, Combine::kAdd)}), all_targets(), 1), "");
}

// Sums that depend on the order, which no thread's luck decides.
TEST(Scatter, TwoRunsGiveTheSameBits) {
  const auto made = make_workload(scatter_graph(DType::kF32, {50, 96}, {3000}, Combine::kAdd));
  const Graph& graph = made->workload.graph;
  std::mt19937 random(3);
  std::vector<Tensor> inputs = scatter_inputs(graph);
  for (Tensor& x : inputs)
    for (int64_t i = 0; x.dtype() == DType::kF32 && i < x.numel(); ++i)
      x.set(i, std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 40) - 40));
  const Target target = targets()[0];
  const auto space = search_space(made->workload, target);
  ASSERT_TRUE(space.has_value());
  for (const Schedule& schedule : *space) {
    const auto source = lower_to_source(made->workload, schedule, target);
    ASSERT_TRUE(source.has_value());
    const auto once = run_source(*source, target, inputs);
    const auto again = run_source(*source, target, inputs);
    ASSERT_TRUE(once.has_value() && again.has_value());
    EXPECT_EQ(std::memcmp((*once)[0].data(), (*again)[0].data(),
                          static_cast<size_t>((*once)[0].byte_size())),
              0)
        << schedule.to_string();
  }
}

TEST(Scatter, ManyUpdatesUnderEverySchedule) {
  const Graph table = scatter_graph(DType::kF32, {901, 24}, {4500}, Combine::kAdd);
  EXPECT_EQ(check_scatter(table, own_and_cuda(), 100), "");
  const Graph few_rows = scatter_graph(DType::kBF16, {3, 600}, {400}, Combine::kAdd);
  EXPECT_EQ(check_scatter(few_rows, own_and_cuda(), 100), "");
  const Graph elements = scatter_graph(DType::kI32, {20000}, {9000}, Combine::kSet);
  EXPECT_EQ(check_scatter(elements, own_and_cuda(), 100), "");
}

}  // namespace
}  // namespace kiln
