// The templates of row updates, for both backends: a row is too small for many ways to walk it.
#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/pointwise/cpu_pointwise.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/plan/row_update.h"

namespace kiln {
namespace {

Status check_row_update(const Workload& workload) {
  if (find_row_update(workload.graph)) return {};
  return fail(Code::kUnsupported, "the workload updates no row");
}

// 16 bytes of the widest output, where as many divide its innermost axis.
std::vector<Schedule> cuda_candidates(const Workload& workload, const Target&) {
  const Graph& graph = workload.graph;
  int64_t bytes = 1;
  for (const NodeId id : graph.outputs()) bytes = std::max(bytes, size_of(graph.node(id).dtype));
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  const int64_t columns = shape.empty() ? 1 : std::max<int64_t>(shape.back().constant(), 1);
  const int lanes = static_cast<int>(std::min<int64_t>(16 / bytes, columns & -columns));
  std::vector<Schedule> space;
  for (const CudaRowUpdateSchedule& each : {CudaRowUpdateSchedule{lanes, 128},
                                            {lanes, 64},
                                            {std::max(lanes / 2, 1), 128},
                                            {lanes, 256}})
    add_unless_present(space, to_schedule(each));
  return space;
}

std::vector<Schedule> cpu_candidates(const Workload& workload, const Target& target) {
  std::vector<Schedule> space;
  for (const int lanes : lane_choices(workload.graph, target))
    for (const int64_t block : {4096, 1024})
      add_unless_present(space, to_schedule(CpuRowUpdateSchedule{lanes, block}));
  return space;
}

}  // namespace

const KernelTemplate& cuda_row_update() {
  static const PrintedTemplate<CudaRowUpdateSchedule> made({
      .version = 3,
      .backend = Backend::kCuda,
      .family = Family::kRowUpdate,
      .check = check_row_update,
      .candidates = cuda_candidates,
      .print = print_cuda_row_update,
  });
  return made;
}

const KernelTemplate& cpu_row_update() {
  static const PrintedTemplate<CpuRowUpdateSchedule> made({
      .version = 1,
      .backend = Backend::kCpu,
      .family = Family::kRowUpdate,
      .check = check_row_update,
      .candidates = cpu_candidates,
      .print = print_cpu_row_update,
  });
  return made;
}

}  // namespace kiln
