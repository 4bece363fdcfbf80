#include "compiler_core/plan/fusion/narrow_products.h"

#include <algorithm>

namespace kiln {
namespace {

bool is_8_bit_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8;
}

// Groups of a depth that some kernel keeps sums of their own of.
bool has_groups_of(const Dequantised& x, int64_t least) {
  return x.group % least == 0;
}

// Kernels subtract zeros as halves: of integers, or of that type.
bool has_halves_for_zeros(const Dequantised& x, DType half) {
  return x.has_whole_zeros() || *x.zero_dtype == half;
}

}  // namespace

bool NarrowProduct::reads(NodeId node) const {
  return std::ranges::any_of(operands, [&](const std::optional<Dequantised>& operand) {
    return operand && std::ranges::find(operand->nodes, node) != operand->nodes.end();
  });
}

std::optional<NarrowProduct> narrow_product(const Graph& graph, const Node& product) {
  constexpr int64_t kLeastDepth = 16, kPromoted = 128, kLeastGroup = 32;
  if (product.op != Op::kMatmul) return std::nullopt;
  const Dim& depth = graph.node(product.operands[0]).shape.back();
  if (!depth.is_constant() || depth.constant() % kLeastDepth != 0) return std::nullopt;
  NarrowProduct found{{find_dequantised(graph, product, 0), find_dequantised(graph, product, 1)}};
  const auto& [a, b] = found.operands;
  if (!b) return std::nullopt;
  if (depth.constant() % (kLeastDepth * b->in_byte()) != 0) return std::nullopt;
  const DType right = graph.node(b->stored).dtype;
  if (!a) {
    const DType half = graph.node(product.operands[0]).dtype;
    const bool integers = is_8_bit_integer(right) || b->packing == Packing::kWords;
    return is_16_bit_float(half) && integers && b->depth_inner && has_groups_of(*b, kLeastGroup) &&
                   has_halves_for_zeros(*b, half)
               ? std::optional(std::move(found))
               : std::nullopt;
  }
  const DType left = graph.node(a->stored).dtype;
  if (is_f8(left) && is_f8(right)) {
    const bool plain = a->zero == kInvalidNode && b->zero == kInvalidNode &&
                       a->shift == kInvalidNode && b->shift == kInvalidNode;
    const bool blocks = b->scale == kInvalidNode || product.shape.back().is(b->lines) ||
                        (b->lines > 0 && b->lines % kPromoted == 0);
    if (product.dtype != DType::kF32 || !plain || !blocks) return std::nullopt;
    if (a->is_scaled() || b->is_scaled())
      if (product.shape.size() != 2 || !a->depth_inner || !b->depth_inner) return std::nullopt;
    return has_groups_of(*a, kPromoted) && has_groups_of(*b, kPromoted)
               ? std::optional(std::move(found))
               : std::nullopt;
  }
  if (is_f8(left) || is_f8(right) || a->is_scaled() || b->is_scaled()) return std::nullopt;
  return product.dtype == DType::kI32 ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace kiln
