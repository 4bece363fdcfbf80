#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/codegen/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::random_inputs;
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
std::vector<Tensor> inputs_of(const Graph& graph) {
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

std::string check(const Graph& graph, const std::vector<Target>& on, int limit) {
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kScatter) return "not a scatter";
  for (const Target& target : on) {
    const std::string wrong =
        check_space(made->workload, target, inputs_of(made->workload.graph), limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(Scatter, AgreesWithTheInterpreterInEveryTypeAndCombination) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool})
    for (const Combine combine : kCombines) {
      if (dtype == DType::kBool && combine != Combine::kSet) continue;
      EXPECT_EQ(check(scatter_graph(dtype, {7, 19}, {13}, combine), {targets()[0]}, 1), "")
          << to_string(dtype) << " " << to_string(combine);
    }
}

TEST(Scatter, EveryShape) {
  for (const Combine combine : {Combine::kSet, Combine::kAdd}) {
    EXPECT_EQ(check(scatter_graph(DType::kF32, {1}, {1}, combine), targets(), 1), "");
    EXPECT_EQ(check(scatter_graph(DType::kF32, {50}, {300}, combine), targets(), 1), "");
    EXPECT_EQ(check(scatter_graph(DType::kF32, {5, 3, 4}, {2, 3}, combine), targets(), 1), "");
    EXPECT_EQ(check(scatter_graph(DType::kF32, {6, 33}, {}, combine), targets(), 1), "");
  }
}

TEST(Scatter, OneBufferInTwoParts) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kI64, {6});
  EXPECT_EQ(check(*b.finish({b.scatter(x, x, x, Combine::kAdd)}), targets(), 1), "");
}

TEST(Scatter, ManyUpdatesUnderEverySchedule) {
  for (const Combine combine : {Combine::kSet, Combine::kAdd}) {
    EXPECT_EQ(check(scatter_graph(DType::kF32, {901, 40}, {5000}, combine), targets(), 100), "");
    EXPECT_EQ(check(scatter_graph(DType::kBF16, {30, 700}, {400}, combine), targets(), 100), "");
    EXPECT_EQ(check(scatter_graph(DType::kI32, {40000}, {20000}, combine), targets(), 100), "");
  }
}

}  // namespace
}  // namespace kiln
