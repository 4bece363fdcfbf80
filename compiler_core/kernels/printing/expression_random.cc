// Random values of ExpressionPrinter: each depends on its place in its node's own order alone, so
// that it is computed wherever it is read.
#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

bool has_random_values(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.op == Op::kPhilox; });
}

Register ExpressionPrinter::random(const Node& node, const Index& at) {
  const Register seed = value(node.operands[0], {});
  const int64_t stream = std::get<PhiloxAttr>(node.attr).stream;
  const Level level = std::max(at.level(), seed.level);
  const bool splat = !at.varies_by_lane();
  // One block of the generator has four neighbours.
  if (dialect_ == Dialect::kCuda && !splat && !at.has_lanes() && at.lane_stride() == 1 &&
      alignment(at) >= 4)
    return define(level, false, node.dtype,
                  fmt::format("philox_run({}, {}ul, {})", seed.name, stream, at.text()));
  const std::string place = splat ? fmt::format("splat<vindex>({})", at.text()) : at.lanes_text();
  return define(level, splat, node.dtype,
                fmt::format("philox({}, {}ul, {})", seed.name, stream, place));
}

}  // namespace kiln
