#include "compiler_core/kernels/printing/coordinates.h"

#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// `inner`: elements of the axes inside this one.
std::string quotient_text(std::string_view flat, const Dim& inner) {
  const bool is_first = inner.is_constant() && inner.constant() <= 1;
  return is_first ? std::string(flat) : fmt::format("{} / {}", flat, inner);
}

}  // namespace

std::vector<NamedAxis> named_axes(const Shape& sizes, const std::vector<size_t>& axes,
                                  std::string_view suffix) {
  std::vector<NamedAxis> named;
  for (const size_t k : axes) named.push_back({fmt::format("i{}{}", k, suffix), sizes[k]});
  return named;
}

std::vector<NamedAxis> named_axes(const Shape& sizes, size_t begin, size_t end) {
  std::vector<NamedAxis> named;
  for (size_t k = begin; k < end; ++k) named.push_back({fmt::format("i{}", k), sizes[k]});
  return named;
}

std::string coordinate_text(std::string_view flat, const Shape& sizes, size_t axis) {
  Dim inner = 1;
  for (size_t k = sizes.size(); --k > axis;) inner = inner * sizes[k];
  const std::string text = quotient_text(flat, inner);
  return axis == 0 ? text : fmt::format("{} % {}", text, sizes[axis]);
}

std::string declare_coordinates(std::string_view type, std::string_view flat,
                                const std::vector<NamedAxis>& axes, int indent) {
  std::string text;
  Dim inner = 1;
  for (size_t n = axes.size(); n-- > 0;) {
    text += fmt::format("{:{}}const {} {} = {}", "", indent, type, axes[n].name,
                        quotient_text(flat, inner));
    text += n > 0 ? fmt::format(" % {};\n", axes[n].size) : ";\n";
    inner = inner * axes[n].size;
  }
  return text;
}

}  // namespace kiln
