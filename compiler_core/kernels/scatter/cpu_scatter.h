// The schedules of scattering on the CPU. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CpuScatterSchedule {
  static constexpr std::string_view kTemplate = "cpu.scatter";
  static constexpr int64_t kMostParts = 1024;

  int lanes = 8;        // elements a vector
  int64_t parts = 1;    // the destination's rows in so many blocks
  int64_t columns = 1;  // and each row's elements in so many
  // Whether the updates are first sorted by the part that they go to; else each block looks
  // through all indices for its own.
  bool sorted = false;

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, kVectorLanes);
    f("parts", s.parts, between(1, kMostParts));
    f("columns", s.columns, between(1, kMostParts));
    f("sorted", s.sorted);
  }
};

// REQUIRES: workload.family is kScatter, its sizes are constants.
std::vector<Schedule> cpu_scatter_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kScatter.
Result<Source> print_cpu_scatter(const Graph& graph, const CpuScatterSchedule& schedule);

// "cpu.scatter".
const KernelTemplate& cpu_scatter();

}  // namespace kiln
