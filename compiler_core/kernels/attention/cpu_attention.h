// The schedules of attention kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuAttentionSchedule {
  int lanes = 16;            // elements a vector
  int mr = 12, vectors = 2;  // register tile: rows, vectors of columns
  int64_t queries = 96;      // rows of a block of the grid; whole register tiles
  int64_t keys = 128;        // keys whose scores are known at a time; whole register tiles

  // kInvalidArgument for another family's schedule, or a value that no kernel can be written for.
  static Result<CpuAttentionSchedule> from(const Schedule& schedule);
  Schedule to_schedule() const;
};

// REQUIRES: workload.family is kAttention.
std::vector<Schedule> cpu_attention_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_printable(graph), the guarantees of kAttention.
Result<Source> print_cpu_attention(const Graph& graph, const CpuAttentionSchedule& schedule);

// "cpu.attention".
const KernelTemplate& cpu_attention();

}  // namespace kiln
