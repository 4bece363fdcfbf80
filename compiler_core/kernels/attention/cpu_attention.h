// The schedules of attention kernels. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuAttentionSchedule {
  static constexpr std::string_view kTemplate = "cpu.attention";

  int lanes = 8;            // elements a vector
  int mr = 6, vectors = 2;  // register tile: rows, vectors of columns
  int64_t queries = 96;     // rows of a block of the grid; whole register tiles
  int64_t keys = 128;       // keys whose scores are known at a time; whole register tiles

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("mr", s.mr, between(1, 32));
    f("vectors", s.vectors, between(1, 64));
    f("queries", s.queries, between(1, 4096));
    f("keys", s.keys, between(1, 4096));
  }
  bool go_together() const {
    return mr * vectors <= 64 && queries % mr == 0 && keys % (int64_t{lanes} * vectors) == 0;
  }
};

// REQUIRES: workload.family is kAttention.
std::vector<Schedule> cpu_attention_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kAttention.
Result<Source> print_cpu_attention(const Graph& graph, const CpuAttentionSchedule& schedule);

// "cpu.attention".
const KernelTemplate& cpu_attention();

}  // namespace kiln
