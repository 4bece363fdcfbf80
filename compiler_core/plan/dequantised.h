// Operands of products that stand for other numbers than memory has: (q - zero) * scale + shift, where q
// has 8 bits, or 4 of which several lie in a byte or word, and the others belong to a line of the operand or to a
// group of its elements along the depth. Kernels may read q as it is stored, and apply the rest on its
// way. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/four_bits.h"

namespace kiln {

struct Dequantised {
  NodeId stored = kInvalidNode;  // q, of 8 bits: a View, or any other node
  Packing packing = Packing::kNone;
  // Where it is packed, `stored` has the bytes or words, row-major, and this is q: a View of bytes
  // taken apart, or what find_packed_words() takes.
  NodeId unpacked = kInvalidNode;
  int64_t word_depth = 0;  // of words
  // Nodes of the operand's shape, but for the order of its axes; kInvalidNode: none.
  NodeId zero = kInvalidNode, scale = kInvalidNode, shift = kInvalidNode;
  bool adds_zero = false;  // q + zero
  // The type of what zero is a View of; i64 where that is a constant integer of few bits.
  std::optional<DType> zero_dtype;
  // So many elements of the depth have one scale, zero and shift; 0: all of it has.
  int64_t group = 0;
  int64_t lines = 0;         // so many neighbouring lines have one scale; 0: that is not known
  bool depth_inner = false;  // q is contiguous along the depth
  // The arithmetic, the operand among it: neither q, nor what is no arithmetic or View.
  std::vector<NodeId> nodes;
  bool has_whole_zeros() const { return !zero_dtype || is_integer(*zero_dtype); }
  int in_byte() const { return packing == Packing::kNone ? 1 : 2; }
  // Whether it is anything but a widened q.
  bool is_scaled() const {
    return zero != kInvalidNode || scale != kInvalidNode || shift != kInvalidNode || in_byte() > 1;
  }
};

// Operand 0 or 1 of a Matmul: Casts that widen 8 bits, and around them, each at most once, a Sub or
// Add, a Mul and an Add, with Casts between float dtypes anywhere (a kernel keeps the precision of
// f32); all of it maybe behind a View. Nothing where it is anything else.
std::optional<Dequantised> find_dequantised(const Graph& graph, const Node& matmul, size_t operand);

}  // namespace kiln
