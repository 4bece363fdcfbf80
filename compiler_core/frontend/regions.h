// Regions: higher-order ops, whose bodies stand in the archive as graphs of their own: conditions,
// wrappers that change nothing about what is computed, and loops. A core graph has no loops: those whose
// number of steps is known are unrolled. Pure but for the builder.
#pragma once

#include <functional>

#include "compiler_core/frontend/lowering.h"

namespace kiln {

// How a region reaches what is around it.
struct RegionContext {
  GraphBuilder& b;
  // The value of a tensor of the graph that the region stands in; kInvalidNode when nothing defines it.
  std::function<NodeId(std::string_view name)> find;
  // The outputs of a body for these operands, `autocast` when it stands under torch.autocast.
  std::function<Result<Values>(const ExportedGraph& body, const Values& operands, bool autocast)>
      run;
};

// The region's outputs. kUnsupported: a form that is not covered, and what to do.
Result<Values> lower_region(const RegionContext& context, const ExportedNode& node);

// Whether torch.autocast casts the op's floating operands to the dtype of its result: inside such a
// region the archive declares the result and does not show the casts.
bool is_autocast_op(std::string_view op);

}  // namespace kiln
