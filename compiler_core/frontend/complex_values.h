// Complex numbers: a tensor of them is a tensor of their components with a last axis of 2, the real and
// the imaginary part, which is how they lie in memory too. What an op on them becomes: a form of its
// own (a product), the op on each part (a transpose), or a refusal. Plain functions.
#pragma once

#include "compiler_core/frontend/expr.h"

namespace kiln {

struct Complex {
  Expr re, im;

  Expr joined() const;  // with the last axis of 2
};
// The parts of a tensor with a last axis of 2.
Complex parts_of(Expr pairs);
inline Complex operator*(Complex x, Complex y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

// `op`, which reads or gives complex numbers, by `lowering`, which may know real ones only; nothing when
// it is not covered for complex ones.
std::optional<Values> lower_complex(Call& call, std::string_view op, const Lowering* lowering);

}  // namespace kiln
