#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::all_targets;
using testing::check_space;
using testing::own_and_cuda;
using testing::random_inputs;
using testing::targets;

constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

Graph sort_graph(DType dtype, Shape shape, bool descending) {
  GraphBuilder b;
  return *b.finish({b.argsort(b.input(dtype, std::move(shape)), descending)});
}

// Full of equal elements and of the values that are special.
std::vector<Tensor> sort_inputs(const Graph& graph) {
  std::mt19937 random(11);
  std::vector<Tensor> inputs = random_inputs(graph, random);
  const double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, infinity, -infinity, std::nan(""), -std::nan(""), 1, -1};
  for (Tensor& x : inputs)
    for (int64_t i = 0; is_float(x.dtype()) && i < x.numel(); ++i)
      if (random() % 3 == 0) x.set(i, special[random() % 8]);
  return inputs;
}

std::string check_sort(const Graph& graph, const std::vector<Target>& on, int limit) {
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kSort) return "not a sort";
  for (const Target& target : on) {
    const std::string wrong =
        check_space(made->workload, target, sort_inputs(made->workload.graph), limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(Sort, AgreesWithTheInterpreterInEveryTypeBothWays) {
  for (const DType dtype : kTypes)
    for (const bool descending : {false, true})
      EXPECT_EQ(check_sort(sort_graph(dtype, {3, 131}, descending), own_and_cuda(), 1), "")
          << to_string(dtype);
}

TEST(Sort, ShortRowsAndHighRanks) {
  for (const Shape& shape : {Shape{1}, {2}, {5, 1}, {4, 3, 7}, {2, 2, 2, 48}, {1, 49}})
    EXPECT_EQ(check_sort(sort_graph(DType::kF32, shape, true), own_and_cuda(), 1), "");
}

TEST(Sort, LongRowsUnderEverySchedule) {
  EXPECT_EQ(check_sort(sort_graph(DType::kF32, {2, 20011}, false), all_targets(), 100), "");
  EXPECT_EQ(check_sort(sort_graph(DType::kI64, {50000}, true), all_targets(), 100), "");
}

}  // namespace
}  // namespace kiln
