#include "compiler_core/tune/search_space.h"

#include "compiler_core/tune/cpu/space_column_reduction.h"
#include "compiler_core/tune/cpu/space_matmul.h"
#include "compiler_core/tune/cpu/space_pointwise.h"
#include "compiler_core/tune/cpu/space_row_reduction.h"
#include "compiler_core/tune/cpu/vector_width.h"

namespace kiln {

Result<std::vector<Schedule>> search_space(const Workload& workload, const Target& target) {
  if (vector_bytes(target) == 0)
    return fail(Code::kUnsupported,
                "no kernels are written for " + target.to_string() + " (cpu:x86-64-v3 and up are)");
  for (const Node& node : workload.graph.nodes())
    if (!is_constant(node.shape))
      return fail(Code::kUnsupported, "a kernel with sizes that are known only at run time");
  switch (workload.family) {
    case Family::kPointwise:
      return pointwise_space(workload, target);
    case Family::kMatmul:
      return matmul_space(workload, target);
    case Family::kRowReduction:
      return row_reduction_space(workload, target);
    case Family::kColumnReduction:
      return column_reduction_space(workload, target);
  }
  return fail(Code::kInvalidArgument, "a workload of no known family");
}

}  // namespace kiln
