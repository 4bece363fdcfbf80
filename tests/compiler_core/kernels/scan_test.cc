#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::all_targets;
using testing::check_space;
using testing::random_inputs;
using testing::targets;

Graph scan_graph(DType dtype, Shape shape, int axis) {
  GraphBuilder b;
  return *b.finish({b.scan_sum(b.input(dtype, std::move(shape)), axis)});
}

// Sums of halves make this many exact: every order of adding gives the same bits.
std::vector<Tensor> halves(const Graph& graph) {
  std::mt19937 random(7);
  std::vector<Tensor> inputs = random_inputs(graph, random);
  for (Tensor& x : inputs)
    for (int64_t i = 0; is_float(x.dtype()) && i < x.numel(); ++i)
      x.set(i, static_cast<double>(random() % 9) * 0.5 - 2);
  return inputs;
}

std::string check_scan(const Graph& graph, const std::vector<Target>& on, int limit) {
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kScan) return "not a scan";
  for (const Target& target : on) {
    const std::string wrong =
        check_space(made->workload, target, halves(made->workload.graph), limit);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

struct ScanCase {
  Shape shape;
  int axis;
};
const ScanCase kCases[] = {{{2}, 0},          {{7}, 0},          {{3, 64}, 1},
                           {{5, 33}, 1},      {{2, 1000}, 1},    {{9, 3}, 0},
                           {{40, 17}, 0},     {{3, 21, 130}, 1}, {{2, 3, 4, 5}, 2},
                           {{3, 2, 1, 6}, 1}, {{2, 5, 1, 1}, 1}};

TEST(Scan, AgreesWithTheInterpreterInEveryShape) {
  for (const ScanCase& c : kCases)
    EXPECT_EQ(check_scan(scan_graph(DType::kF32, c.shape, c.axis), all_targets(), 1), "");
}

TEST(Scan, AgreesWithTheInterpreterInEveryType) {
  for (const DType dtype :
       {DType::kF64, DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8}) {
    EXPECT_EQ(check_scan(scan_graph(dtype, {3, 301}, 1), all_targets(), 1), "") << to_string(dtype);
    EXPECT_EQ(check_scan(scan_graph(dtype, {101, 9}, 0), all_targets(), 1), "") << to_string(dtype);
  }
}

TEST(Scan, LongLinesUnderEverySchedule) {
  EXPECT_EQ(check_scan(scan_graph(DType::kF32, {100003}, 0), all_targets(), 100), "");
  EXPECT_EQ(check_scan(scan_graph(DType::kI64, {2001, 70}, 0), all_targets(), 4), "");
}

// A running sum in f32 alone would be off by the sum of all roundings.
TEST(Scan, LongSumsOfF32StayExactToTheLastPlaces) {
  const Graph graph = scan_graph(DType::kF32, {200000}, 0);
  const auto made = make_workload(graph);
  std::vector<Tensor> inputs;
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{1, 200000, 1});
  for (int64_t i = 0; i < inputs[0].numel(); ++i) inputs[0].set(i, 0.1);
  for (const Target& target : all_targets())
    EXPECT_EQ(check_space(made->workload, target, inputs, 2), "");
}

}  // namespace
}  // namespace kiln
