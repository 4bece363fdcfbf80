// Products of fp16 and bf16 rows with matrices that an index on the device picks
// (plan/picked_products.h), on the tensor cores of compute capability 9.0 (wgmma): the experts of a
// mixture, each read where it lies by the rows that it has. Two launches: one finds the runs of rows of
// one matrix, the other multiplies tile after tile of them. Indices in any order give the right result;
// where equal ones are neighbours, a matrix is read once a tile of its rows.
#pragma once

#include <vector>

#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {

struct WgmmaPickedSchedule : WgmmaMatmulSchedule {
  static constexpr std::string_view kTemplate = "cuda.matmul.wgmma.picked";

  static void fields(auto& f, auto& s) { tile_fields(f, s); }
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kMatmul.
Status check_wgmma_picked(const Workload& workload);

// REQUIRES: check_wgmma_picked(workload).
std::vector<Schedule> wgmma_picked_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_wgmma_picked() of its workload. kInvalidArgument when the schedule does not fit.
Result<Source> print_wgmma_picked(const Graph& graph, const WgmmaPickedSchedule& schedule,
                                  const Target& target);

// "cuda.matmul.wgmma.picked".
const KernelTemplate& wgmma_picked();

}  // namespace kiln
