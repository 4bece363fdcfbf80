// NaN and the infinities go where PyTorch sends them, under every schedule.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "compiler_core/ir/builder.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::softmax;

// Rows of ordinary values, except: row 1 has +inf, row 2 is all -inf, row 3 has a NaN, row 4 has
// both infinities, and column 5 ends in NaN.
Tensor special_rows(DType dtype, int64_t rows, int64_t columns) {
  Tensor x(dtype, {rows, columns});
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::sin(static_cast<double>(i)));
  x.set(columns + 3, INFINITY);
  for (int64_t j = 0; j < columns; ++j) x.set(2 * columns + j, -INFINITY);
  x.set(3 * columns + columns - 1, NAN);
  x.set(4 * columns, INFINITY);
  x.set(4 * columns + 1, -INFINITY);
  x.set((rows - 1) * columns + 5, NAN);
  return x;
}

std::string check_special(const Graph& graph, Family family, Tensor input) {
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(input));
  for (const Target& target : testing::targets()) {
    const std::string wrong = testing::check_space({graph, family, {}}, target, inputs, 4);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

TEST(SpecialValues, SoftmaxOfARowWithInfinityIsNaN) {
  for (int axis : {0, 1}) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, {9, 37});
    const Graph graph = *b.finish({softmax(b, x, axis)});
    EXPECT_EQ(check_special(graph, axis == 1 ? Family::kRowReduction : Family::kColumnReduction,
                            special_rows(DType::kF32, 9, 37)),
              "");
  }
}

TEST(SpecialValues, ReductionsPropagateNaN) {
  for (int axis : {0, 1}) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, {9, 37});
    std::vector<NodeId> outputs;
    for (Op op : {Op::kReduceMax, Op::kReduceMin, Op::kReduceSum})
      outputs.push_back(b.reduce(op, x, {axis}));
    EXPECT_EQ(check_special(*b.finish(outputs),
                            axis == 1 ? Family::kRowReduction : Family::kColumnReduction,
                            special_rows(DType::kF32, 9, 37)),
              "");
  }
}

TEST(SpecialValues, ElementwiseOperationsFollowIeee) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {9, 37});
    const NodeId zero = b.broadcast(b.constant(dtype, 0), {9, 37});
    const NodeId nan = b.broadcast(b.constant(dtype, NAN), {9, 37});
    std::vector<NodeId> outputs;
    for (Op op : {Op::kMax, Op::kMin}) {
      outputs.push_back(b.binary(op, x, zero));
      outputs.push_back(b.binary(op, zero, x));
      outputs.push_back(b.binary(op, x, nan));
    }
    for (Op op : {Op::kEq, Op::kNe, Op::kLt, Op::kLe}) outputs.push_back(b.binary(op, x, x));
    for (Op op : {Op::kSign, Op::kAbs, Op::kExp, Op::kLog, Op::kTanh, Op::kSin, Op::kReciprocal})
      outputs.push_back(b.unary(op, x));
    outputs.push_back(b.cast(x, DType::kBool));
    EXPECT_EQ(check_special(*b.finish(outputs), Family::kPointwise, special_rows(dtype, 9, 37)),
              "");
  }
}

TEST(SpecialValues, NegativeZeroStaysNegativeInConstantsAndBroadcasts) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {1});
  const Shape shape = {3, 40};
  const NodeId spread = b.broadcast(x, shape);
  const NodeId constant = b.broadcast(b.constant(DType::kF32, -0.0), shape);
  Tensor zero(DType::kF32, {1});
  zero.set(0, -0.0);
  EXPECT_EQ(check_special(
                *b.finish({b.unary(Op::kReciprocal, spread), b.unary(Op::kReciprocal, constant)}),
                Family::kPointwise, std::move(zero)),
            "");
}

TEST(SpecialValues, EveryNaNOfBf16SurvivesRounding) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {128});
  const NodeId wide = b.cast(x, DType::kF32);
  const NodeId doubled = b.binary(Op::kAdd, wide, wide);
  Tensor nans(DType::kBF16, {128});
  for (uint16_t i = 0; i < 128; ++i)
    nans.as<uint16_t>()[i] = static_cast<uint16_t>((i % 2 == 0 ? 0x7f80 : 0xff80) | (i | 1));
  EXPECT_EQ(check_special(*b.finish({b.cast(doubled, DType::kBF16)}), Family::kPointwise,
                          std::move(nans)),
            "");
}

}  // namespace
}  // namespace kiln
