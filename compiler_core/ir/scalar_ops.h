// The elementwise ops on single elements, as op.h defines them: doubles for float dtypes, int64 for
// integers and bool. Pure functions. Results are not yet rounded or wrapped to a dtype.
#pragma once

#include <cstdint>

#include "compiler_core/base/check.h"
#include "compiler_core/base/dtype.h"
#include "compiler_core/ir/op.h"

namespace kiln {

// `v` wrapped to an integer dtype or bool.
int64_t wrap_to(DType dtype, int64_t v);

// REQUIRES: `op` is a unary op of floats, or of integers of `dtype`.
double apply_unary(Op op, double x);
int64_t apply_unary(Op op, int64_t x, DType dtype);

// REQUIRES: `op` is a binary op, not a comparison. Integer division by zero is 0.
double apply_binary(Op op, double a, double b);
int64_t apply_binary(Op op, int64_t a, int64_t b);

// The binary op by which `reduce` combines two elements. REQUIRES: `reduce` is a reduction.
Op combining_op(Op reduce);

// REQUIRES: `op` is a comparison.
template <class T>
bool apply_compare(Op op, T a, T b) {
  switch (op) {
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    default:
      CHECK(false, "not a comparison");
      return false;
  }
}

}  // namespace kiln
