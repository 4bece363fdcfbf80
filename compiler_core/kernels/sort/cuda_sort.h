// The schedules of sorting on CUDA. Values.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaSortSchedule {
  static constexpr std::string_view kTemplate = "cuda.sort";
  static constexpr int64_t kLeastTile = 64;  // two entries a thread of a warp
  static constexpr int64_t kMostTile =
      4096;  // whose entries fit the shared memory that needs no asking

  int tile = 1024;    // entries that a block sorts at once: rows, or a piece of one; a power of two
  int threads = 256;  // a block

  static void fields(auto& f, auto& s) {
    f("tile", s.tile, powers_of_two(kLeastTile, kMostTile));
    f("threads", s.threads, powers_of_two(32, 1024));
  }
};

// REQUIRES: workload.family is kSort, its sizes are constants.
std::vector<Schedule> cuda_sort_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kSort.
Result<Source> print_cuda_sort(const Graph& graph, const CudaSortSchedule& schedule);

// "cuda.sort".
const KernelTemplate& cuda_sort();

}  // namespace kiln
