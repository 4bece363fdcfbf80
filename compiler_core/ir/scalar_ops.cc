#include "compiler_core/ir/scalar_ops.h"

#include <algorithm>
#include <cmath>

#include "compiler_core/base/check.h"

namespace kiln {

int64_t wrap_to(DType dtype, int64_t v) {
  switch (dtype) {
    case DType::kI8:
      return static_cast<int8_t>(v);
    case DType::kI16:
      return static_cast<int16_t>(v);
    case DType::kI32:
      return static_cast<int32_t>(v);
    case DType::kU8:
      return static_cast<uint8_t>(v);
    case DType::kBool:
      return v != 0;
    default:
      return v;
  }
}

double apply_unary(Op op, double x) {
  switch (op) {
    case Op::kNeg:
      return -x;
    case Op::kAbs:
      return std::fabs(x);
    case Op::kSign:
      return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0));
    case Op::kFloor:
      return std::floor(x);
    case Op::kCeil:
      return std::ceil(x);
    case Op::kTrunc:
      return std::trunc(x);
    case Op::kRound:
      return std::nearbyint(x);
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRsqrt:
      return 1 / std::sqrt(x);
    case Op::kReciprocal:
      return 1 / x;
    case Op::kExp:
      return std::exp(x);
    case Op::kExpm1:
      return std::expm1(x);
    case Op::kLog:
      return std::log(x);
    case Op::kLog1p:
      return std::log1p(x);
    case Op::kSin:
      return std::sin(x);
    case Op::kCos:
      return std::cos(x);
    case Op::kTan:
      return std::tan(x);
    case Op::kTanh:
      return std::tanh(x);
    case Op::kErf:
      return std::erf(x);
    default:
      CHECK(false, "not a float unary op");
      return 0;
  }
}

int64_t apply_unary(Op op, int64_t x, DType dtype) {
  switch (op) {
    case Op::kNeg:
      return static_cast<int64_t>(-static_cast<uint64_t>(x));
    case Op::kAbs:
      return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
    case Op::kSign:
      return (x > 0) - (x < 0);
    case Op::kNot:
      return dtype == DType::kBool ? static_cast<int64_t>(x == 0) : ~x;
    default:
      CHECK(false, "not an integer unary op");
      return 0;
  }
}

double apply_binary(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kRem:
      return std::fmod(a, b);
    case Op::kPow:
      return std::pow(a, b);
    case Op::kAtan2:
      return std::atan2(a, b);
    case Op::kMax:
      return std::isnan(a) || a > b ? a : b;
    case Op::kMin:
      return std::isnan(a) || a < b ? a : b;
    default:
      CHECK(false, "not a float binary op");
      return 0;
  }
}

namespace {

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (; exponent != 0; exponent >>= 1, factor *= factor)
    if ((exponent & 1) != 0) result *= factor;
  return static_cast<int64_t>(result);
}

}  // namespace

int64_t apply_binary(Op op, int64_t a, int64_t b) {
  const auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
  switch (op) {
    case Op::kAdd:
      return static_cast<int64_t>(u(a) + u(b));
    case Op::kSub:
      return static_cast<int64_t>(u(a) - u(b));
    case Op::kMul:
      return static_cast<int64_t>(u(a) * u(b));
    case Op::kDiv:
      return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(-u(a)) : a / b;
    case Op::kRem:
      return b == 0 || b == -1 ? 0 : a % b;
    case Op::kPow:
      return integer_power(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kMin:
      return std::min(a, b);
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    default:
      CHECK(false, "not an integer binary op");
      return 0;
  }
}

Op combining_op(Op reduce) {
  switch (reduce) {
    case Op::kReduceSum:
      return Op::kAdd;
    case Op::kReduceProd:
      return Op::kMul;
    case Op::kReduceMax:
      return Op::kMax;
    case Op::kReduceMin:
      return Op::kMin;
    default:
      CHECK(false, "not a reduction");
      return reduce;
  }
}

}  // namespace kiln
