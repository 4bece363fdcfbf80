// Kernels that convert and move 8-bit floats, on both targets.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

constexpr int64_t kCodes = 256, kCopies = 5;

std::string check_f8(const Graph& graph, Family family, const std::vector<Tensor>& inputs) {
  std::vector<Target> targets = testing::targets();
  targets.push_back(*Target::parse("cuda:sm_90a"));
  for (const Target& target : targets) {
    const std::string wrong = testing::check_space({graph, family, {}}, target, inputs, 4);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Every code of the type, several times over.
Tensor every_code(DType type) {
  Tensor x(type, {kCopies, kCodes});
  for (int64_t i = 0; i < x.numel(); ++i) x.as<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  return x;
}

// The numbers at which rounding to `type` turns, their neighbours, and what has no number.
Tensor turning_points(DType type) {
  Tensor codes(type, {kCodes}), x(DType::kF32, {kCodes, 5});
  for (int64_t code = 0; code < kCodes; ++code)
    codes.as<uint8_t>()[code] = static_cast<uint8_t>(code);
  for (int64_t code = 0; code < kCodes; ++code) {
    const auto value = static_cast<float>(codes.get(code));
    const auto next = static_cast<float>(codes.get(std::min(code + 1, kCodes - 1)));
    const float middle = (value + next) / 2;
    int64_t at = code * 5;
    for (const float point :
         {value, middle, std::nextafter(middle, value), std::nextafter(middle, next), value * 1e6f})
      x.set(at++, point);
  }
  return x;
}

class F8 : public ::testing::TestWithParam<DType> {};

TEST_P(F8, EveryValueBecomesItsF32) {
  GraphBuilder b;
  const NodeId x = b.input(GetParam(), {kCopies, kCodes});
  std::vector<Tensor> inputs;
  inputs.push_back(every_code(GetParam()));
  const NodeId wide = b.cast(x, DType::kF32);
  EXPECT_EQ(check_f8(*b.finish({wide}), Family::kPointwise, inputs), "");
  GraphBuilder moved;
  const NodeId y = moved.input(GetParam(), {kCopies, kCodes});
  EXPECT_EQ(check_f8(*moved.finish({moved.permute(y, {1, 0})}), Family::kPointwise, inputs), "");
}

TEST_P(F8, EveryF32BecomesTheNearest) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kCodes, 5});
  std::vector<Tensor> inputs;
  inputs.push_back(turning_points(GetParam()));
  EXPECT_EQ(check_f8(*b.finish({b.cast(x, GetParam())}), Family::kPointwise, inputs), "");
}

// A value that is quantised and used further is the quantised one.
TEST_P(F8, AValueOnTheWayIsRounded) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {kCodes, 5});
  std::vector<Tensor> inputs;
  inputs.push_back(turning_points(GetParam()));
  const NodeId there_and_back = b.cast(b.cast(x, GetParam()), DType::kF32);
  EXPECT_EQ(check_f8(*b.finish({b.cast(there_and_back, DType::kBF16)}), Family::kPointwise, inputs),
            "");
}

TEST_P(F8, ReductionsReadAndStoreThem) {
  for (const int axis : {0, 1}) {
    GraphBuilder b;
    const NodeId x = b.input(GetParam(), {40, 72});
    const NodeId greatest = b.reduce(Op::kReduceMax, b.cast(x, DType::kF32), {axis});
    std::vector<Tensor> inputs;
    inputs.emplace_back(GetParam(), std::vector<int64_t>{40, 72});
    for (int64_t i = 0; i < inputs[0].numel(); ++i)
      inputs[0].set(i, std::sin(static_cast<double>(i)) * 8);
    EXPECT_EQ(check_f8(*b.finish({b.cast(greatest, GetParam())}),
                       axis == 1 ? Family::kRowReduction : Family::kColumnReduction, inputs),
              "");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, F8,
                         ::testing::Values(DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace kiln
