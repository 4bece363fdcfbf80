// A user's op for tests: y = x * sigmoid(beta * x) + bias, of equal shapes, in f32; kernels for
// both backends, with a decision each.
#pragma once

#include <stdexcept>

#include "compiler_core/ir/custom_op.h"

namespace kiln::testing {

inline constexpr const char* kSwishCpu = R"(
static void swish(const float* in0, const float* in1, float* out0, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += UNROLL)
    for (int64_t j = i; j < i + UNROLL && j < end; ++j)
      out0[j] = in0[j] / (1 + __builtin_expf(-in0[j])) + in1[j];
}
)";

inline constexpr const char* kSwishCuda = R"(
KILN_INLINE void swish(const float* in0, const float* in1, float* out0) {
  const int begin = block_index() * KILN_BLOCK;
  for (int i = thread_index(); i < KILN_BLOCK && begin + i < KILN_ITEMS; i += KILN_THREADS) {
    const float x = in0[begin + i];
    out0[begin + i] = x / (1 + expf(-x)) + in1[begin + i];
  }
}
)";

inline CustomOp swish_op() {
  CustomOp op;
  op.name = "tests::swish_bias";
  op.shape = [](std::span<const OperandType> operands) {
    if (operands.size() != 2 || operands[0] != operands[1])
      throw std::invalid_argument("swish_bias takes two tensors of one type");
    return operands[0];
  };
  op.reference = [](GraphBuilder& b, std::span<const NodeId> in) {
    const NodeId one = b.broadcast(b.constant(DType::kF32, 1), b.shape(in[0]));
    const NodeId below = b.binary(Op::kAdd, one, b.unary(Op::kExp, b.unary(Op::kNeg, in[0])));
    return b.binary(Op::kAdd, b.binary(Op::kDiv, in[0], below), in[1]);
  };
  op.kernels = {{"cpu", kSwishCpu, "swish", {{"UNROLL", {4, 1, 16}}}, 0, "1024", "256", "0"},
                {"cuda", kSwishCuda, "swish", {{"STEPS", {2, 1}}}, 0, "128*STEPS", "128", "0"}};
  return op;
}

}  // namespace kiln::testing
