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

}  // namespace kiln::testing
