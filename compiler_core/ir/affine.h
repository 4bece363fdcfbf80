// Composition of Views. A View reads flat(x)[offset + sum i_k * stride_k]; when x is itself a View
// of some source, the two are one View of the source if the flat index splits exactly into the
// coordinates of x.
#pragma once

#include <optional>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The View of x's operand that equals `outer` (of shape `shape`) applied to the View node `inner`;
// nothing when no single View does.
std::optional<ViewAttr> compose_views(const Node& inner, const Shape& shape, const ViewAttr& outer);

// Strides of axes of size 1 set to 0: they say nothing.
ViewAttr canonical_view(const Shape& shape, ViewAttr view);

// Whether the view reads every element of `operand` once and in order: a reshape.
bool reads_in_order(const Shape& operand, const Shape& shape, const ViewAttr& view);

// Whether it does so in the operand's own shape.
bool is_identity_view(const Shape& operand, const Shape& shape, const ViewAttr& view);

// A proven lower bound of `dim` over all values of the symbols; INT64_MIN when none is known.
int64_t lower_bound(const Dim& dim, std::span<const Symbol> symbols);
// The same from above; INT64_MAX when none is known.
int64_t upper_bound(const Dim& dim, std::span<const Symbol> symbols);

}  // namespace kiln
