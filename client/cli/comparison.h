// Whether a program's outputs are the expected ones: |a - e| <= atol + rtol * |e| for every
// element, NaN equal to NaN, infinities equal to themselves; torch.testing.assert_close's rule.
#pragma once

#include "compiler_core/base/tensor.h"

namespace kiln::cli {

struct Tolerance {
  double rtol = 0, atol = 0;
};
// By dtype, `scale` being the largest finite magnitude expected: sums are reassociated, so that an
// element near zero may be off by a fraction of its neighbours.
Tolerance default_tolerance(DType dtype, double scale);

struct Comparison {
  bool ok = true;
  double max_abs_error = 0;
  double max_rel_error = 0;      // over elements whose expected magnitude is above atol
  std::string first_difference;  // for people: which element, got, expected
  void merge(const Comparison& other);
};

// `rtol`, `atol`: negative means by dtype.
Comparison compare(const Tensor& actual, const Tensor& expected, double rtol, double atol,
                   std::string_view name);

}  // namespace kiln::cli
