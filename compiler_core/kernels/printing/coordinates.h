// Coordinates in generated code: the place of an element in a space of several axes, from its
// number. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct NamedAxis {
  std::string name;  // of the variable that is the coordinate
  Dim size = 1;
};

// i{axis}{suffix}, for each of `axes` of a space of these sizes.
std::vector<NamedAxis> named_axes(const Shape& sizes, const std::vector<size_t>& axes,
                                  std::string_view suffix = "");
// The same for the axes [begin, end).
std::vector<NamedAxis> named_axes(const Shape& sizes, size_t begin, size_t end);

// "flat / 12 % 3": coordinate `axis` of element number `flat` of the space of `sizes`.
std::string coordinate_text(std::string_view flat, const Shape& sizes, size_t axis);

// Statements that declare the coordinates of element number `flat`, for axes outermost first:
//   const index_t i1 = f % 8;
//   const index_t i0 = f / 8;
std::string declare_coordinates(std::string_view type, std::string_view flat,
                                const std::vector<NamedAxis>& axes, int indent);

}  // namespace kiln
