#include "client/cli/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kiln::cli {
namespace {

double largest_magnitude(const Tensor& tensor) {
  double scale = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (const double v = std::fabs(tensor.get(i)); std::isfinite(v)) scale = std::max(scale, v);
  return scale;
}

}  // namespace

Tolerance default_tolerance(DType dtype, double scale) {
  switch (dtype) {
    case DType::kF64:
      return {1e-7, 1e-9 * scale};
    case DType::kF32:
      return {1e-4, 1e-5 * scale};
    case DType::kF16:
      return {2e-3, 1e-3 * scale};
    case DType::kBF16:
      return {1.6e-2, 4e-3 * scale};
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return {0.25, 0.1 * scale};
    case DType::kF8E8M0:  // a power of two beside the right one
      return {1, 0};
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kBool:
      return {0, 0};
  }
  return {0, 0};
}

void Comparison::merge(const Comparison& other) {
  ok = ok && other.ok;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  max_rel_error = std::max(max_rel_error, other.max_rel_error);
  if (first_difference.empty()) first_difference = other.first_difference;
}

Comparison compare(const Tensor& actual, const Tensor& expected, double rtol, double atol,
                   std::string_view name) {
  Comparison result;
  if (actual.dtype() != expected.dtype() || actual.sizes() != expected.sizes()) {
    result.ok = false;
    result.first_difference =
        fmt::format("{} is {}[{}], expected {}[{}]", name, to_string(actual.dtype()),
                    fmt::join(actual.sizes(), ","), to_string(expected.dtype()),
                    fmt::join(expected.sizes(), ","));
    return result;
  }
  Tolerance tolerance = default_tolerance(expected.dtype(), largest_magnitude(expected));
  if (rtol >= 0) tolerance.rtol = rtol;
  if (atol >= 0) tolerance.atol = atol;
  const bool exact = !is_float(expected.dtype());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const double a = actual.get(i), e = expected.get(i);
    if (exact ? actual.get_int(i) == expected.get_int(i)
              : a == e || (std::isnan(a) && std::isnan(e)))
      continue;
    const double error = std::fabs(a - e);
    const bool finite = std::isfinite(error);
    if (finite) {
      result.max_abs_error = std::max(result.max_abs_error, error);
      if (std::fabs(e) > tolerance.atol)
        result.max_rel_error = std::max(result.max_rel_error, error / std::fabs(e));
    }
    if (finite && !exact && error <= tolerance.atol + tolerance.rtol * std::fabs(e)) continue;
    if (result.ok)
      result.first_difference =
          fmt::format("{} element {}: got {:.9g}, expected {:.9g}", name, i, a, e);
    result.ok = false;
  }
  return result;
}

}  // namespace kiln::cli
