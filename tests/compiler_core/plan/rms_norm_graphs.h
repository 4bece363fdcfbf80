// Rows that a norm scales, as models write them, for tests of plans and of kernels.
#pragma once

#include "compiler_core/ir/builder.h"

namespace kiln::testing {

// What columns are multiplied with: nothing, halves, f32, or as gemma has it 1 more than halves.
enum class NormWeights : uint8_t { kNone, kHalves, kF32, kOneMore };

// x * rsqrt(mean(x * x) + 2^-20) * w along the last axis of x, which is of `dtype`; as llama has it rounded to
// that in front of w, too. Without `rounds`: in f32.
inline NodeId normed(GraphBuilder& b, NodeId x, NormWeights weights = NormWeights::kHalves,
                     bool rounds = true) {
  const DType dtype = b.dtype(x);
  const Shape shape = b.shape(x);
  const Dim depth = shape.back();
  const auto constant = [&](double value, const Shape& of) {
    return b.broadcast(b.constant(DType::kF32, value), of);
  };
  const auto rounded = [&](NodeId id) { return rounds ? b.cast(id, dtype) : id; };
  const NodeId wide = b.cast(x, DType::kF32);
  const int last = static_cast<int>(shape.size()) - 1;
  NodeId scale = b.reduce(Op::kReduceSum, b.binary(Op::kMul, wide, wide), {last});
  const Shape rows = b.shape(scale);
  scale = b.binary(Op::kMul, scale, constant(1.0 / static_cast<double>(depth.constant()), rows));
  scale = b.unary(Op::kRsqrt, b.binary(Op::kAdd, scale, constant(0x1p-20, rows)));
  Shape once = shape;
  once.back() = 1;
  NodeId y = b.binary(Op::kMul, wide, b.broadcast(b.reshape(scale, once), shape));
  if (weights == NormWeights::kNone) return rounded(y);
  NodeId w =
      b.cast(b.input(weights == NormWeights::kF32 ? DType::kF32 : dtype, {depth}), DType::kF32);
  if (weights == NormWeights::kOneMore) w = b.binary(Op::kAdd, w, constant(1, {depth}));
  if (weights == NormWeights::kHalves) y = b.cast(rounded(y), DType::kF32);
  return rounded(b.binary(Op::kMul, b.broadcast(w, shape), y));
}

// x [rows, depth], of halves or f32, times a weight as a Linear has it, bf16 [columns, depth], in f32.
inline NodeId linear_of(GraphBuilder& b, NodeId x, int64_t columns) {
  const Dim depth = b.shape(x)[1];
  const DType dtype = b.dtype(x);
  const NodeId weight = b.input(dtype == DType::kF16 ? dtype : DType::kBF16, {columns, depth});
  return b.matmul(x, b.permute(b.cast(weight, dtype), {1, 0}));
}

}  // namespace kiln::testing
