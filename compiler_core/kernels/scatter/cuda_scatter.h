// The schedules of scattering on CUDA. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

struct CudaScatterSchedule {
  static constexpr std::string_view kTemplate = "cuda.scatter";
  static constexpr int64_t kLeastTile = 64;
  static constexpr int64_t kMostTile =
      4096;  // whose entries fit the shared memory that needs no asking

  int lanes = 4;      // elements a vector; divides a row
  int threads = 256;  // a block that combines
  int tile = 1024;    // updates that a block sorts by their row; a power of two

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("threads", s.threads, powers_of_two(32, 1024));
    f("tile", s.tile, powers_of_two(kLeastTile, kMostTile));
  }
};

// REQUIRES: workload.family is kScatter, its sizes are constants.
std::vector<Schedule> cuda_scatter_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kScatter.
Result<Source> print_cuda_scatter(const Graph& graph, const CudaScatterSchedule& schedule);

// "cuda.scatter".
const KernelTemplate& cuda_scatter();

}  // namespace kiln
