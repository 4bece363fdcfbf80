#include "compiler_core/kernels/row_reduction/cuda_row_loops.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Whether rows end within a vector; peeled ones do.
bool has_tail(const RowLayout& layout) {
  return !is_multiple(layout.shape.row, layout.schedule.lanes);
}

// How many of a member's vectors end in the row, whoever it is. Vector v ends at (v + 1) * lanes at
// most, peeled or not.
int64_t whole_vectors(const RowLayout& layout) {
  const int lanes = layout.schedule.lanes;
  if (!layout.rereads()) return layout.shape.elements() / lanes / layout.step;
  const bool even =
      !layout.is_cut() && is_multiple(layout.shape.row, lanes * layout.step * layout.vectors);
  return even ? layout.vectors : 0;
}

// The condition that all lanes of the vector exist, "" where it is known.
std::string inside_text(const RowLayout& layout, const std::string& first) {
  const int lanes = layout.schedule.lanes;
  const Dim& elements = layout.shape.row;
  const int64_t whole = whole_vectors(layout);
  // A shifted load needs one more vector than it uses: it stops where an aligned one would.
  const std::string begin = layout.peels() ? first + " + phase" : first;
  std::string inside;
  if (whole < layout.vectors) {
    inside = has_tail(layout) ? fmt::format("{} + {} <= {}", begin, lanes, elements)
                              : fmt::format("{} < {}", begin, elements);
    if (layout.is_cut())
      inside =
          fmt::format("{} < end * {}", begin, lanes) + (has_tail(layout) ? " && " + inside : "");
    if (whole > 0) inside = fmt::format("u < {} || {}", whole, inside);
  }
  if (!layout.peels()) return inside;
  const std::string begins = fmt::format("(u > 0 || {} >= 0)", first);
  return inside.empty() ? begins : fmt::format("{} && ({})", begins, inside);
}

}  // namespace

std::string phase_text(const RowLayout& layout) {
  if (!layout.peels()) return "";
  const int lanes = layout.schedule.lanes;
  return fmt::format("  const int phase = static_cast<int>(row % {0} * {1} % {0});\n", lanes,
                     layout.shape.elements() % lanes);
}

std::string vector_text(const RowLayout& layout, const std::string& vector,
                        const std::string& first, const std::string& coordinates,
                        const std::string& body, int indent) {
  const int lanes = layout.schedule.lanes;
  const Dim& elements = layout.shape.row;
  std::string text;
  const auto line = [&](int more, const std::string& statement) {
    text += fmt::format("{:{}}{}\n", "", indent + more, statement);
  };
  line(0, fmt::format("const index_t {} = ({}) * {}{};", first, vector, lanes,
                      layout.peels() ? " - phase" : ""));
  text += coordinates;
  const std::string inside = inside_text(layout, first);
  line(0, inside.empty() ? "{" : fmt::format("if ({}) {{", inside));
  line(2, "const AllLanes live;");
  text += body;
  if (!inside.empty() && has_tail(layout)) {
    const std::string some = fmt::format("{} < {}", first, elements);
    const std::string begin = layout.peels() ? first + " + phase" : first;
    line(0, fmt::format("}} else if ({}{}) {{", some,
                        layout.is_cut() ? fmt::format(" && {} < end * {}", begin, lanes) : ""));
    line(2, layout.peels()
                ? fmt::format("const LanesWithin live{{-{0}, {1} - {0}, 0}};", first, elements)
                : fmt::format("const SomeLanes live{{{} - {}}};", elements, first));
    text += body;
  }
  line(0, "}");
  return text;
}

}  // namespace kiln
