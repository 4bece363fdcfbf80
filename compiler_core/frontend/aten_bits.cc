// The bits of a tensor read as another dtype (torch.Tensor.view of a dtype): between bytes and e8m0, of
// which bits are the exponent alone. Each value is computed from the other with exact arithmetic in f32.
#include <cmath>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

constexpr int kBits = 8, kBias = 127;

Expr select(Expr condition, Expr a, Expr b) {
  return {a.b, a.b->select(condition.id, a.id, b.id)};
}
// x * 2^power, of which both and all between are f32.
Expr scaled(Expr x, int power) {
  constexpr int kMost = 64;
  for (; power > kMost; power -= kMost) x = x * 0x1p64;
  for (; power < -kMost; power += kMost) x = x * 0x1p-64;
  return x * std::ldexp(1, power);
}

// 2^(byte - 127); 255 is NaN.
Expr e8m0_of(Expr byte) {
  const Expr wide = byte.cast(DType::kF32);
  Expr x = wide.like(std::ldexp(1, -kBias));
  for (int bit = 0; bit < kBits; ++bit) {
    const Expr is_set = (byte & byte.like(1 << bit)) != 0;
    x = select(is_set, scaled(x, 1 << bit), x);
  }
  return select(byte == 255, wide.like(std::nan("")), x).cast(DType::kF8E8M0);
}

Expr byte_of(Expr e8m0) {
  const Expr value = e8m0.cast(DType::kF32);
  Expr x = value, byte = value.like(0);
  for (int bit = kBits - 1; bit >= 0; --bit) {
    const int step = 1 << bit;
    const Expr is_set = x >= std::ldexp(1, step - kBias);
    byte = select(is_set, byte + step, byte);
    x = select(is_set, scaled(x, -step), x);
  }
  return select(value != value, value.like(255), byte).cast(DType::kU8);
}

Values view_dtype(Call& c) {
  const Expr x = tensor(c, "self");
  const DType to = c.dtype("dtype", x.dtype());
  if (!c.ok()) return {};
  if (to == x.dtype()) return {x.id};
  if (x.dtype() == DType::kU8 && to == DType::kF8E8M0) return {e8m0_of(x).id};
  if (x.dtype() == DType::kF8E8M0 && to == DType::kU8) return {byte_of(x).id};
  return {c.unsupported("bits are read as another dtype between uint8 and float8_e8m0fnu alone")};
}

constexpr Lowering kBitLowerings[] = {
    {"aten.view.dtype", view_dtype},
};

}  // namespace

std::span<const Lowering> bit_lowerings() {
  return kBitLowerings;
}

}  // namespace kiln
