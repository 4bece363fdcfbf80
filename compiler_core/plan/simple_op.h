// What a plan takes for cheap enough to compute again.
#pragma once

#include "compiler_core/ir/op.h"

namespace kiln {

// One instruction, on any target.
inline bool is_simple(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMax:
    case Op::kMin:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kCast:
    case Op::kSelect:
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
      return true;
    default:
      return traits(op).kind == OpKind::kCompare;
  }
}

}  // namespace kiln
