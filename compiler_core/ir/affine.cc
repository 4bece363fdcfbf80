#include "compiler_core/ir/affine.h"

#include <algorithm>

namespace kiln {
namespace {

// One axis of a View after merging neighbouring axes that are traversed with one stride.
struct Axis {
  Dim size;
  Dim flat_stride;    // in the flattening of the view's result
  Dim source_stride;  // in the view's operand
  Dim base = 0;       // constant part of the coordinate
  Dim low = 0;        // sum of the negative excursions
  Dim high = 0;       // sum of the positive ones
};

std::vector<Axis> merged_axes(const Node& view_node) {
  const auto& view = std::get<ViewAttr>(view_node.attr);
  const std::vector<Dim> flat = contiguous_strides(view_node.shape);
  std::vector<Axis> axes;
  for (size_t i = 0; i < view_node.shape.size(); ++i) {
    if (view_node.shape[i].is(1)) continue;
    if (!axes.empty() && axes.back().source_stride == view.strides[i] * view_node.shape[i] &&
        axes.back().flat_stride == flat[i] * view_node.shape[i]) {
      axes.back().size = axes.back().size * view_node.shape[i];
      axes.back().source_stride = view.strides[i];
      axes.back().flat_stride = flat[i];
    } else {
      axes.push_back({view_node.shape[i], flat[i], view.strides[i]});
    }
  }
  return axes;
}

// Whatever the symbols are.
bool is_never_negative(const Dim& dim) {
  return dim.is_valid() && dim.lower_bound([](SymbolId) { return SymbolRange{}; }) >= 0;
}

// Adds the constant `offset` to the coordinates, outermost axis first. False when it does not
// split.
bool split_offset(std::vector<Axis>& axes, const Dim& offset) {
  Dim rest = offset;
  for (Axis& axis : axes) {
    if (rest.is(0)) return true;
    if (rest.is_constant() && axis.flat_stride.is_constant() && axis.flat_stride.constant() > 0) {
      const int64_t quotient = rest.constant() / axis.flat_stride.constant();
      axis.base = quotient;
      rest = rest - axis.flat_stride * Dim(quotient);
    } else if (const auto exact = Dim::divide_exact(rest, axis.flat_stride)) {
      axis.base = *exact;
      rest = 0;
    }
  }
  return rest.is(0);
}

}  // namespace

std::optional<ViewAttr> compose_views(const Node& inner, const Shape& shape,
                                      const ViewAttr& outer) {
  const auto& source_view = std::get<ViewAttr>(inner.attr);
  for (const Dim& dim : shape)
    if (dim.is(0)) return std::nullopt;
  std::vector<Axis> axes = merged_axes(inner);
  if (!split_offset(axes, outer.offset)) return std::nullopt;

  ViewAttr result;
  result.strides.assign(shape.size(), Dim(0));
  for (size_t k = 0; k < shape.size(); ++k) {
    const Dim& stride = outer.strides[k];
    if (shape[k].is(1) || stride.is(0)) continue;
    bool placed = false;
    for (Axis& axis : axes) {
      const auto quotient = Dim::divide_exact(stride, axis.flat_stride);
      if (!quotient) continue;
      const bool ascends = is_never_negative(*quotient);
      if (!ascends && !is_never_negative(*quotient * -1)) return std::nullopt;
      Dim& excursion = ascends ? axis.high : axis.low;
      excursion = excursion + *quotient * (shape[k] - Dim(1));
      result.strides[k] = *quotient * axis.source_stride;
      placed = true;
      break;
    }
    if (!placed) return std::nullopt;
  }

  result.offset = source_view.offset;
  for (const Axis& axis : axes) {
    // The coordinate must stay inside the axis, or it would carry into its neighbour.
    // One that it stays at 0 of has that element, where the result has any.
    const bool stays = axis.base.is(0) && axis.low.is(0) && axis.high.is(0);
    const Dim least = axis.base + axis.low;
    const Dim room = axis.size - Dim(1) - axis.base - axis.high;
    if (!stays && (!is_never_negative(least) || !is_never_negative(room))) return std::nullopt;
    result.offset = result.offset + axis.base * axis.source_stride;
  }
  return result;
}

ViewAttr canonical_view(const Shape& shape, ViewAttr view) {
  for (size_t i = 0; i < shape.size() && i < view.strides.size(); ++i)
    if (shape[i].is(1)) view.strides[i] = 0;
  return view;
}

bool reads_in_order(const Shape& operand, const Shape& shape, const ViewAttr& view) {
  if (!view.offset.is(0) || numel(operand) != numel(shape)) return false;
  const std::vector<Dim> flat = contiguous_strides(shape);
  for (size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].is(1) && view.strides[i] != flat[i]) return false;
  return true;
}

bool is_identity_view(const Shape& operand, const Shape& shape, const ViewAttr& view) {
  return operand == shape && reads_in_order(operand, shape, view);
}

int64_t lower_bound(const Dim& dim, std::span<const Symbol> symbols) {
  if (!dim.is_valid()) return INT64_MIN;
  if (dim.is_constant()) return dim.constant();
  return dim.lower_bound([symbols](SymbolId id) {
    return static_cast<size_t>(id) < symbols.size() ? symbols[static_cast<size_t>(id)].range
                                                    : SymbolRange{};
  });
}

int64_t upper_bound(const Dim& dim, std::span<const Symbol> symbols) {
  const int64_t least = lower_bound(dim * -1, symbols);
  return least == INT64_MIN ? INT64_MAX : -least;
}

}  // namespace kiln
