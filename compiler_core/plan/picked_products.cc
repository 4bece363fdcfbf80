#include "compiler_core/plan/picked_products.h"

#include <algorithm>

#include "compiler_core/ir/affine.h"

namespace kiln {
namespace {

constexpr int64_t kUnit = 8;    // halves in 16 bytes
constexpr int64_t kLeast = 64;  // elements of a matrix's rows and columns

bool is_whole(const Dim& size) {
  return size.constant() >= kLeast && size.constant() % kUnit == 0;
}

}  // namespace

std::optional<PickedMatrices> picked_matrices(const Graph& graph, const Node& product) {
  if (product.op != Op::kMatmul || product.shape.size() != 3) return std::nullopt;
  const NodeId gather = product.operands[1];
  const Node& picked = graph.node(gather);
  if (picked.op != Op::kGather) return std::nullopt;
  const PickedMatrices found{gather, picked.operands[0], picked.operands[1]};
  if (graph.node(found.table).shape.size() != 3 || graph.node(found.index).shape.size() != 1)
    return std::nullopt;
  return found;
}

bool is_picked_product(const Graph& graph, const Node& product) {
  const auto picked = picked_matrices(graph, product);
  if (!picked) return false;
  const Node &a = graph.node(product.operands[0]), &table = graph.node(picked->table);
  if (!is_constant(a.shape) || !is_constant(table.shape)) return false;
  if (numel(product.shape).is(0) || table.shape[0].is(0)) return false;
  constexpr int64_t kMost = int64_t{1} << 30;  // rows are counted in 32 bits
  return is_16_bit_float(a.dtype) && a.dtype == table.dtype && product.dtype == DType::kF32 &&
         is_whole(table.shape[1]) && is_whole(table.shape[2]) &&
         a.shape[0].constant() < kMost / a.shape[1].constant() && table.shape[0].constant() < kMost;
}

bool reads_in_lines(const Graph& graph, NodeId operand, bool rows) {
  const Node& x = graph.node(operand);
  std::vector<Dim> strides = contiguous_strides(x.shape);
  if (x.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(x.attr);
    if (!view.offset.is_constant() || view.offset.constant() % kUnit != 0) return false;
    strides = view.strides;
  }
  const auto is_pitch = [](const Dim& stride) {
    return stride.is_constant() && stride.constant() > 0 && stride.constant() % kUnit == 0;
  };
  const Dim &outer = strides[0], &middle = strides[1], &inner = strides[2];
  if (!rows)
    return (x.shape[0].is(1) || is_pitch(outer)) &&
           ((inner.is(1) && is_pitch(middle)) || (middle.is(1) && is_pitch(inner)));
  if (!inner.is(1)) return false;
  if (x.shape[1].is(1)) return x.shape[0].is(1) || is_pitch(outer);
  return is_pitch(middle) && (x.shape[0].is(1) || outer == middle * x.shape[1]);
}

}  // namespace kiln
