#include "compiler_core/kernels/layout_preference.h"

namespace kiln {

PartitionRules partition_rules(const Target& target) {
  PartitionRules rules;
  rules.channels_last = target.backend == Backend::kCuda && target.isa == "sm_90a";
  return rules;
}

}  // namespace kiln
