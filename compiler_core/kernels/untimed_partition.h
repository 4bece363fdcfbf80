// The partition of programs whose kernels nobody times: what this build's kernels for a target want
// between one another, and, of the partitions between which estimates can decide (plan/alternatives.h),
// the one that is expected to take the least time. Pure functions.
#pragma once

#include "compiler_core/plan/alternatives.h"
#include "compiler_core/program/target.h"

namespace kiln {

// The rules by which programs for `target` are partitioned where nothing is measured. Channels last:
// where convolutions run as products on wgmma, whose results lie so for nothing. Matrices are picked
// where products on wgmma read them in place. Products of one first operand are joined on CUDA, of
// many rows only where they run on wgmma. On CUDA, attention of few rows computes its keys and values.
PartitionRules partition_rules(const Target& target);

// Microseconds that one run of `plan` is expected to take at the sizes that it would be tuned at: each
// launch's roofline bound, over the part of it that the best guess of the templates of this build
// reaches (KernelTemplate::expected_efficiency), and what beginning it costs. Estimates of plans of one
// graph may be compared, no others. kUnsupported where no template has a kernel for a workload.
// REQUIRES: a target of the CUDA backend.
Result<double> expected_us(const Plan& plan, const Target& target);

// The partition that `default` mode compiles: by rules, where no other partition is expected to be faster, or where
// the others need kernels that nothing is written for; on CPUs always. Errors as for plan().
Result<PlanAlternative> untimed_partition(const Graph& canonical, const Target& target);

}  // namespace kiln
