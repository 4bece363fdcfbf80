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
//  - Float to integer truncates towards zero; out of range is unspecified. Anything to bool is !=
//  0.
//  - Round is half to even. Sign of NaN is NaN, of zero zero.
//  - Select(c, a, b) is a where c holds, else b; c is bool.
//  - And, Or, Xor, Not act bitwise on integers and logically on bool.
//  - View(x): out[i0, i1, ...] = flat(x)[offset + i0*stride0 + i1*stride1 + ...], where flat is the
//    row-major flattening of x. One op for broadcast (stride 0), permute, reshape, slice, select
//    and reverse (negative stride).
//  - Pad(x): `low` and `high` elements of a constant around each axis. Concat: along one axis.
//  - Reduce*: over the listed axes, which disappear; accumulated in the compute type of the dtype
//    (f32 for the halves). ReduceSum of nothing is 0, of Max -inf (or the least integer).
//  - ScanSum: inclusive cumulative sum along one axis.
//  - Matmul: [b..., m, k] x [b..., k, n] -> [b..., m, n], equal batch sizes; the result has the
//    compute type of the operands (f32 for the halves), so that an epilogue sees the accumulator.
//  - Gather(x, index): x [n, rest...], index [i...] of i64 -> [i..., rest...]; a negative index
//    counts from the end; out of range is the caller's error and reads a clamped element.
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
  kScanSum,
  kMatmul,
  kGather,
};
inline constexpr int kOpCount = static_cast<int>(Op::kGather) + 1;

enum class OpKind : uint8_t {
  kSource,
  kUnary,
  kBinary,
  kCompare,
  kSelect,
  kIndexMap,
  kReduce,
  kScan,
  kContract,
  kGather
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

// One output element depends on the same element of each operand only.
inline bool is_elementwise(Op op) {
  const OpKind kind = traits(op).kind;
  return kind == OpKind::kUnary || kind == OpKind::kBinary || kind == OpKind::kCompare ||
         kind == OpKind::kSelect;
}

}  // namespace kiln
