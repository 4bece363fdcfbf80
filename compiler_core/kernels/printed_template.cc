#include "compiler_core/kernels/printed_template.h"

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/repeated_reads.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

// Whether this build prints kernels for the target's ISA.
bool is_printed_for(const Target& target) {
  return target.backend == Backend::kCuda ? sm_number(target) >= 80 : vector_bytes(target) > 0;
}

// An SM divides its memory between a cache and what blocks share, and divides it anew while no block
// runs. A kernel that begins beside the end of one that shares much is left with little cache: what
// that costs (tests/gpu/LOG.md), against the microsecond that it gains.
bool may_begin_early(const Workload& workload) {
  constexpr int64_t kMostBytes = 4 << 20;  // of the L2 in that microsecond
  return bytes_read_again(workload.graph) <= kMostBytes;
}

}  // namespace

bool PrintedTemplateBase::covers(const Workload& workload, const Target& target) const {
  if (workload.family != covered_.family || target.backend != covered_.backend) return false;
  const bool is_its_isa =
      covered_.isa.empty() ? is_printed_for(target) : target.isa == covered_.isa;
  return is_its_isa && (covered_.check == nullptr || covered_.check(workload).has_value());
}

Result<Buildable> PrintedTemplateBase::instantiate(const Workload& workload,
                                                   const Schedule& schedule,
                                                   const Target& target) const {
  TRY(Source source, print(workload.graph, schedule, target));
  if (covered_.backend != Backend::kCuda) return source;
  source.text = needed_text(source.text);
  // Kernels wait for the ones before them themselves (cuda_kernel_text.h).
  if (sm_number(target) >= 90 && may_begin_early(workload))
    for (Phase& phase : source.recipe.phases) phase.dependent_launch = DependentLaunch::kAtOnce;
  return source;
}

Recipe argument_recipe(const Graph& graph) {
  Recipe recipe;
  const auto spec = [&](NodeId id) {
    const Node& node = graph.node(id);
    return TensorSpec{node.dtype, node.shape};
  };
  for (NodeId id : graph.inputs()) recipe.inputs.push_back(spec(id));
  for (NodeId id : graph.outputs()) recipe.outputs.push_back(spec(id));
  return recipe;
}

}  // namespace kiln
