// Alternatives: partitions of a graph into kernels between which the rules cannot decide.
// Tuned like others and chosen by their times; `default` mode, which times nothing, chooses among
// few of them by estimates (kernels/untimed_partition.h). Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler_core/plan/plan.h"

namespace kiln {

struct PlanAlternative {
  std::string name;  // "attention in three kernels"; of the first: "by rules"
  PartitionRules rules;
  Plan plan;
};

// Whether times decide or estimates. Times can tell all alternatives apart; estimates only those that
// differ in how operands of 8 bits are read.
enum class ChosenBy : uint8_t { kTimes, kEstimates };

// The plan by rules first, then those that differ from it in their kernels; four at most. Where
// the choice is not clear:
//  - attention in one kernel, or in three: for few rows of many keys, reading keys and values is
//    all that counts, and three kernels may share them out over more blocks;
//  - a cheap value that several kernels need: stored, or computed by each of them, where it is so
//    large that it goes through memory;
//  - operands of a product that are dequantised from 8 bits (plan/dequantised.h): stored as they are
//    multiplied, or read as they are stored, where there are kernels for that.
// `rules`: of the first, which the others share but for what they differ in. Errors as for plan().
Result<std::vector<PlanAlternative>> plan_alternatives(const Graph& canonical,
                                                       const PartitionRules& rules = {},
                                                       ChosenBy chosen_by = ChosenBy::kTimes);

// Which of them a compiled program is, by the workloads of its kernels in order; 0, the one by
// rules, where it is none of them.
size_t alternative_with(const std::vector<PlanAlternative>& all, std::span<const Digest> workloads);

}  // namespace kiln
