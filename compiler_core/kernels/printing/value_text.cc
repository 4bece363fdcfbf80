#include "compiler_core/kernels/printing/value_text.h"

#include <fmt/core.h>

#include <cmath>

namespace kiln {
namespace {

// The function that brings f32 or i32 lanes back into the range of a narrower dtype; "" when every
// value of the register type is one of the dtype.
std::string_view narrowing(DType dtype, bool plain_nans) {
  if (dtype == DType::kF16) return "round_f16";
  if (dtype == DType::kBF16) return plain_nans ? "round_bf16_plain" : "round_bf16";
  if (dtype == DType::kF8E4M3) return "round_f8e4m3";
  if (dtype == DType::kF8E5M2) return "round_f8e5m2";
  if (dtype == DType::kF8E8M0) return "round_f8e8m0";
  return wrapping(dtype);
}

}  // namespace

std::string_view register_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "vf64";
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
      return "vf32";
    case DType::kI64:
      return "vi64";
    default:
      return "vi32";
  }
}

std::string_view memory_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "double";
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kF8E5M2:
      return "f8e5m2";
    case DType::kF8E8M0:
      return "f8e8m0";
    case DType::kI8:
      return "signed char";
    case DType::kI16:
      return "short";
    case DType::kI32:
      return "int";
    case DType::kI64:
      return "int64_t";
    case DType::kU8:
      return "unsigned char";
    case DType::kBool:
      return "boolean";
  }
  return "";
}

std::string literal(DType dtype, const ConstantAttr& value) {
  if (!is_float(dtype)) {
    if (dtype == DType::kBool) return value.as_int() != 0 ? "-1" : "0";
    if (value.as_int() == INT64_MIN) return "-9223372036854775807L - 1";
    return std::to_string(value.as_int()) + (dtype == DType::kI64 ? "L" : "");
  }
  const double number = value.as_double();
  const char* suffix = dtype == DType::kF64 ? "" : "f";
  const char* type = dtype == DType::kF64 ? "f64" : "f32";
  if (std::isnan(number)) return fmt::format("nan_{}()", type);
  if (std::isinf(number)) return fmt::format("{}infinity_{}()", number < 0 ? "-" : "", type);
  return fmt::format("{:a}{}", number, suffix);
}

std::string_view infix(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kAnd:
      return "&";
    case Op::kOr:
      return "|";
    case Op::kXor:
      return "^";
    default:
      return "";
  }
}

std::string_view wrapping(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return "wrap_i8";
    case DType::kI16:
      return "wrap_i16";
    case DType::kU8:
      return "wrap_u8";
    default:
      return "";
  }
}

std::string narrowed(DType dtype, bool plain_nans, const std::string& expression) {
  const std::string_view function = narrowing(dtype, plain_nans);
  return function.empty() ? expression : fmt::format("{}({})", function, expression);
}

std::string cast_expression(DType from, DType to, bool plain_nans, const std::string& x) {
  const std::string_view type = register_type(to);
  if (to == DType::kBool) return fmt::format("op_ne({}, splat<{}>(0))", x, register_type(from));
  if (from == DType::kBool) return fmt::format("convert<{}>({} & 1)", type, x);
  const bool widens = is_half(from) && is_float(to);
  const std::string converted =
      register_type(from) == type ? x : fmt::format("convert<{}>({})", type, x);
  return widens && !is_half(to) ? converted : narrowed(to, plain_nans, converted);
}

}  // namespace kiln
