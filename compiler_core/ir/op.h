// Op: the small core of operations every graph is made of. Whatever else a model uses is decomposed
// into these by the frontend.
//
// Semantics, all following PyTorch's ATen:
//  - Elementwise operands have equal shapes; broadcasting is a View. Half types are computed in f32
//    and rounded once, to nearest even, at each node. f32 and f64 follow IEEE 754; sums may be
//    reassociated, products may be contracted into fused multiply-adds, nothing else is relaxed.
//  - NaN: max and min propagate it; comparisons with it are false, except Ne, which is true.
//  - Integers wrap in two's complement. Div truncates towards zero on integers; division by zero
//    on integers is the caller's error and gives an unspecified value. Rem is C's fmod / %.
//  - Float to integer truncates towards zero; out of range is unspecified. Anything to bool is
//    x != 0.
//  - Round is half to even. Sign of NaN is NaN, of zero zero.
//  - Select(c, a, b) is a where c holds, else b; c is bool.
//  - And, Or, Xor, Not act bitwise on integers and logically on bool.
//  - View(x): out[i0, i1, ...] = flat(x)[offset + i0*stride0 + i1*stride1 + ...], where flat is the
//    row-major flattening of x. One op for broadcast (stride 0), permute, reshape, slice, select
//    and reverse (negative stride).
//  - Pad(x): `low` and `high` elements of a constant around each axis. Concat: along one axis.
//  - Reduce*: over the listed axes, which disappear; accumulated in the compute type of the dtype
//    (f32 for half types). ReduceSum of nothing is 0, of Prod 1, of Max -inf (or the least
//    integer).
//  - ScanSum: inclusive cumulative sum along one axis.
//  - Matmul: [b..., m, k] x [b..., k, n] -> [b..., m, n], equal batch sizes; the result has the
//    compute type of the operands (f32 for half types), so that an epilogue sees the accumulator.
//  - Convolution(x, w): x [n, g*c, spatial...] with one to three spatial axes, w [o, c, window...],
//    o a multiple of the groups g -> [n, o, spatial'...]; cross-correlation, as in PyTorch. x is
//    padded with zeros, `low` and `high` of them at each spatial axis; spatial' = (low + spatial +
//    high - dilation * (window - 1) - 1) / stride + 1. Like Matmul it gives the compute type of its
//    operands.
//  - Gather(x, index): x [n, rest...], index [i...] of i64 -> [i..., rest...]; a negative index
//    counts from the end; out of range is the caller's error and reads a clamped element.
//  - Scatter(x, index, updates): x [n, rest...], index [i...] of i64, updates [i..., rest...] -> x
//    with each update combined into the row that its index names: set (of several the one last in
//    row-major order stays), add, mul, max, min; in the compute type, rounded once. A negative
//    index counts from the end; an update whose index is out of range is dropped.
//  - Argsort(x): along the last axis, the i64 positions of its elements in order, ascending or
//    descending, stable both ways. NaN is greater than everything and equal to itself, -0 equals 0.
//  - Philox(seed): seed an i64 scalar -> i64 of any shape, uniform in [0, 2^32): the element at
//    row-major position p is word p % 4 of Philox4x32-10 with key (low, high word of the seed) and
//    counter (low, high word of p / 4, low, high word of the attribute `stream`).
//  - CustomCall(x...): the result of a user's kernel; see ir/custom_call.h.
//  - Iota: 0, 1, 2, ... of shape [n]. Constant: a scalar of shape [].
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

enum class Op : uint8_t {
  kInput,
  kConstant,
  kIota,
  // Unary, elementwise.
  kNeg,
  kAbs,
  kSign,
  kFloor,
  kCeil,
  kTrunc,
  kRound,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kTanh,
  kErf,
  kNot,
  kCast,
  // Binary, elementwise, both operands of the result's dtype.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kPow,
  kAtan2,
  kMax,
  kMin,
  kAnd,
  kOr,
  kXor,
  // Comparisons, elementwise, to bool.
  kEq,
  kNe,
  kLt,
  kLe,
  kSelect,
  // Index maps.
  kView,
  kPad,
  kConcat,
  // Across elements.
  kReduceSum,
  kReduceMax,
  kReduceMin,
  kReduceProd,
  kScanSum,
  kMatmul,
  kConvolution,
  kGather,
  kScatter,
  kArgsort,
  kPhilox,
  kCustomCall,
};
inline constexpr int kOpCount = static_cast<int>(Op::kCustomCall) + 1;

enum class OpKind : uint8_t {
  kSource,
  kUnary,
  kBinary,
  kCompare,
  kSelect,
  kIndexMap,
  kReduce,
  kScan,
  kContract,  // matmul and convolution: sums of products, with an epilogue
  kGather,
  kScatter,
  kSort,
  kRandom,
  kCustom
};

struct OpTraits {
  std::string_view name;  // in text form and digests: persisted, never renamed
  OpKind kind;
  int arity;  // -1: one or more
  bool commutative;
};

const OpTraits& traits(Op op);
inline std::string_view to_string(Op op) {
  return traits(op).name;
}
Result<Op> parse_op(std::string_view name);

// The result depends on elements anywhere in the operands, and nothing is fused with it: such a
// node is a kernel of its own, which reads stored values and stores its result.
inline bool stands_alone(Op op) {
  const OpKind kind = traits(op).kind;
  return kind == OpKind::kScan || kind == OpKind::kScatter || kind == OpKind::kSort ||
         kind == OpKind::kCustom;
}

// An input, a constant or positions along an axis: it reads no other node.
inline bool is_leaf(Op op) {
  return traits(op).kind == OpKind::kSource;
}

// One output element depends on the same element of each operand only.
inline bool is_elementwise(Op op) {
  const OpKind kind = traits(op).kind;
  return kind == OpKind::kUnary || kind == OpKind::kBinary || kind == OpKind::kCompare ||
         kind == OpKind::kSelect;
}

}  // namespace kiln
