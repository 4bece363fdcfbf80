// Pointwise kernels on CUDA: their schedules. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Which element of the iteration space (rows x columns, the innermost axis being the columns) a
// thread's vectors hold. Persisted; never renumbered.
enum class PointwiseMap : uint8_t {
  kRows = 0,  // neighbouring threads take neighbouring vectors of a row, and go on in the next one
  // As if there were no rows: a vector may begin in one row and end in the next. Whatever lies in
  // memory as the space does keeps its alignment where rows have an odd length.
  kFlat = 1,
  kDown = 2,  // the vectors of a thread stand one below the other: what rows share is read once
};

struct CudaPointwiseSchedule {
  static constexpr std::string_view kTemplate = "cuda.pointwise";

  int lanes = 4;      // elements a vector; rows that it does not divide are kFlat
  int threads = 256;  // a block
  int unroll = 1;     // vectors a thread holds at a time
  PointwiseMap map = PointwiseMap::kRows;
  // 0, or the side of a square that a block brings through shared memory, from inputs that lie
  // across the space (transposes). `unroll` and `map` mean nothing then.
  int tile = 0;
  bool stream = false;  // what is stored is the first to leave the L2

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("threads", s.threads, powers_of_two(32, 1024));
    f("unroll", s.unroll, powers_of_two(1, 16));
    f("map", s.map, between(0, 2));
    f("tile", s.tile, between(0, 128));
    f("stream", s.stream);
  }
  bool go_together() const {
    return tile == 0 || (is_power_of_two(tile) && tile >= 16 && tile * tile >= lanes * threads);
  }
};

// REQUIRES: workload.family is kPointwise, its sizes are constants.
std::vector<Schedule> cuda_pointwise_candidates(const Workload& workload, const Target& target);

// REQUIRES: the guarantees of kPointwise.
Result<Source> print_cuda_pointwise(const Graph& graph, const CudaPointwiseSchedule& schedule);

// Tiles, for workloads that read some inputs across their grain (a transpose): a block brings a square
// of each through shared memory, so that global memory is read and written along what is contiguous
// on both sides.
//
// Whether the schedule wants tiles, and the graph has something to tile whose two axes `lanes`
// divides.
bool can_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);
// REQUIRES: can_tile(), and what print_cuda_pointwise() does.
Result<Source> print_cuda_pointwise_tile(const Graph& graph, const CudaPointwiseSchedule& schedule);

// "cuda.pointwise".
const KernelTemplate& cuda_pointwise();

// One row of the outputs, whose elements threads take as those of a space that is a row thick.
struct CudaRowUpdateSchedule {
  static constexpr std::string_view kTemplate = "cuda.row_update";

  int lanes = 4;      // elements a vector; 1 where it does not divide the innermost axis
  int threads = 128;  // a block

  static void fields(auto& f, auto& s) {
    f("lanes", s.lanes, powers_of_two(1, 16));
    f("threads", s.threads, powers_of_two(32, 1024));
  }
};

// REQUIRES: the guarantees of kRowUpdate.
Result<Source> print_cuda_row_update(const Graph& graph, const CudaRowUpdateSchedule& schedule);

// "cuda.row_update".
const KernelTemplate& cuda_row_update();

}  // namespace kiln
