#include "compiler_core/kernels/layout_preference.h"

namespace kiln {

PartitionRules partition_rules(const Target& target) {
  PartitionRules rules;
  const bool has_wgmma = target.backend == Backend::kCuda && target.isa == "sm_90a";
  rules.channels_last = rules.picks_matrices = has_wgmma;
  return rules;
}

}  // namespace kiln
