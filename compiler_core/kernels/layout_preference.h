// The layouts that this build's kernels for a target want between one another. Pure.
#pragma once

#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/program/target.h"

namespace kiln {

// The rules by which programs for `target` are partitioned where nothing is measured. Channels last:
// where convolutions run as products on wgmma, whose results lie so for nothing. Matrices are picked
// where products on wgmma read them in place.
PartitionRules partition_rules(const Target& target);

}  // namespace kiln
