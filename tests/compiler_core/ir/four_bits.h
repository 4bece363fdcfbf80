// Weights of 4 bits as models pack them: each byte has two values, neighbours along the last axis.
#pragma once

#include <array>

#include "compiler_core/ir/builder.h"

namespace kiln::testing {

// `value` for each element of `x`, in its dtype.
inline NodeId constant_like(GraphBuilder& b, NodeId x, double value) {
  return b.broadcast(b.constant(b.dtype(x), value), Shape(b.shape(x)));
}

// The low and the high 4 bits of each of `bytes`, u8.
inline std::array<NodeId, 2> halves_of(GraphBuilder& b, NodeId bytes) {
  return {b.binary(Op::kAnd, bytes, constant_like(b, bytes, 15)),
          b.binary(Op::kDiv, bytes, constant_like(b, bytes, 16))};
}

// The values, u8[n, 2 k], in `bytes`, u8[n, k].
inline NodeId taken_apart(GraphBuilder& b, NodeId bytes, bool high_first) {
  const Dim n = b.shape(bytes)[0], k = b.shape(bytes)[1];
  std::array<NodeId, 2> both = halves_of(b, b.reshape(bytes, {n, k, 1}));
  if (high_first) std::swap(both[0], both[1]);
  return b.reshape(b.concat(both, 2), {n, Dim(2 * k.constant())});
}

// The values, u8[8 t, 32 s w], in `words`, i32[t, s, 32, w], as ATen's _weight_int4pack_mm reads them.
inline NodeId words_apart(GraphBuilder& b, NodeId words) {
  const Shape shape = b.shape(words);
  const Dim tiles = shape[0], steps = shape[1], of_lane = shape[3];
  const NodeId wide = b.cast(words, DType::kI64);
  const NodeId bits = b.binary(Op::kAnd, wide, constant_like(b, wide, 4294967295.0));
  const Shape eight = {tiles, steps, 32, of_lane, 8};
  const NodeId place = b.iota(DType::kI64, 8);
  const NodeId power = b.binary(Op::kPow, constant_like(b, place, 16), place);
  const NodeId q =
      b.binary(Op::kDiv, b.broadcast(b.reshape(bits, {tiles, steps, 32, of_lane, 1}), Shape(eight)),
               b.broadcast(power, Shape(eight)));
  const NodeId low = b.cast(b.binary(Op::kAnd, q, constant_like(b, q, 15)), DType::kU8);
  const NodeId lanes = b.reshape(low, {tiles, steps, 8, 4, of_lane, 2, 4});
  return b.reshape(b.permute(lanes, {0, 2, 1, 4, 6, 3, 5}), {tiles * 8, steps * of_lane * Dim(32)});
}

}  // namespace kiln::testing
