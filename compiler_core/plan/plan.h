// Plan: a canonical graph divided into kernels, with the buffers between them. Pure: the same graph
// gives the same plan.
#pragma once

#include <vector>

#include "compiler_core/plan/partition.h"
#include "compiler_core/program/program.h"

namespace kiln {

struct Plan {
  std::vector<Workload> kernels;  // distinct
  std::vector<Buffer> buffers;
  std::vector<Launch> launches;  // kernel: an index into kernels
  std::vector<int> output_buffers;
  Dim arena_bytes;  // offsets and size hold for every value of the symbols
  std::vector<ProgramSymbol> symbols;
};

// kUnsupported names the op that no kernel family covers; kInvalidArgument a symbol that is a size
// of no input.
Result<Plan> plan(const Graph& canonical, const PartitionRules& rules = {});
// The same for a graph that is partitioned already: launch i is of partition.kernels[i].
Result<Plan> plan(Partition partition);

// The program of `plan`, but for its identity and kernels.
Program program_of(Plan plan);

}  // namespace kiln
