#include "compiler_core/codegen/lower.h"

#include <fmt/core.h>

#include "compiler_core/codegen/cpu/attention.h"
#include "compiler_core/codegen/cpu/column_reduction.h"
#include "compiler_core/codegen/cpu/convolution.h"
#include "compiler_core/codegen/cpu/matmul.h"
#include "compiler_core/codegen/cpu/pointwise.h"
#include "compiler_core/codegen/cpu/row_reduction.h"
#include "compiler_core/codegen/cpu/scan.h"
#include "compiler_core/codegen/cpu/scatter.h"
#include "compiler_core/codegen/cpu/sort.h"
#include "compiler_core/codegen/cuda/attention.h"
#include "compiler_core/codegen/cuda/column_reduction.h"
#include "compiler_core/codegen/cuda/convolution.h"
#include "compiler_core/codegen/cuda/matmul.h"
#include "compiler_core/codegen/cuda/needed_text.h"
#include "compiler_core/codegen/cuda/pointwise.h"
#include "compiler_core/codegen/cuda/row_reduction.h"
#include "compiler_core/codegen/cuda/scan.h"
#include "compiler_core/codegen/cuda/scatter.h"
#include "compiler_core/codegen/cuda/sort.h"
#include "compiler_core/codegen/cuda/symbolic_columns.h"
#include "compiler_core/codegen/cuda/symbolic_pointwise.h"
#include "compiler_core/codegen/cuda/symbolic_rows.h"
#include "compiler_core/codegen/custom.h"
#include "compiler_core/codegen/embedded.h"
#include "compiler_core/codegen/expression.h"
#include "compiler_core/tune/cpu/space_pointwise.h"
#include "compiler_core/tune/cpu/space_row_reduction.h"
#include "compiler_core/tune/cpu/vector_width.h"
#include "compiler_core/tune/cuda/device_limits.h"
#include "compiler_core/tune/cuda/row_shape.h"

namespace kiln {

namespace {

tl::unexpected<Error> no_kernels(const Workload& workload) {
  return fail(Code::kUnsupported, "no kernels are written for the family " +
                                      std::string(to_string(workload.family)) + " yet");
}

Result<Source> lower_cpu(const Workload& workload, const Schedule& schedule) {
  switch (workload.family) {
    case Family::kPointwise: {
      TRY(const PointwiseSchedule decisions, PointwiseSchedule::from(schedule));
      return lower_pointwise(workload.graph, decisions);
    }
    case Family::kMatmul: {
      TRY(const MatmulSchedule decisions, MatmulSchedule::from(schedule));
      return lower_matmul(workload.graph, decisions);
    }
    case Family::kRowReduction: {
      TRY(const RowReductionSchedule decisions, RowReductionSchedule::from(schedule));
      return lower_row_reduction(workload.graph, decisions);
    }
    case Family::kColumnReduction: {
      TRY(const ColumnReductionSchedule decisions, ColumnReductionSchedule::from(schedule));
      return lower_column_reduction(workload.graph, decisions);
    }
    case Family::kScan: {
      TRY(const ScanSchedule decisions, ScanSchedule::from(schedule));
      return lower_scan(workload.graph, decisions);
    }
    case Family::kSort: {
      TRY(const SortSchedule decisions, SortSchedule::from(schedule));
      return lower_sort(workload.graph, decisions);
    }
    case Family::kScatter: {
      TRY(const ScatterSchedule decisions, ScatterSchedule::from(schedule));
      return lower_scatter(workload.graph, decisions);
    }
    case Family::kConvolution: {
      TRY(const ConvolutionSchedule decisions, ConvolutionSchedule::from(schedule));
      return lower_convolution(workload.graph, decisions);
    }
    case Family::kAttention: {
      TRY(const AttentionSchedule decisions, AttentionSchedule::from(schedule));
      return lower_attention(workload.graph, decisions);
    }
    case Family::kCustom:
      break;
  }
  return no_kernels(workload);
}

// Whether kernels of constant sizes and of others are written by one piece of code.
bool is_written_once(Family family) {
  switch (family) {
    case Family::kPointwise:
    case Family::kRowReduction:
    case Family::kColumnReduction:
      return false;
    default:
      return true;
  }
}

// Those whose kernels of sizes with symbols are plainer ones.
Result<Source> lower_cuda_symbolic(const Workload& workload, const Schedule& schedule,
                                   const Target& target) {
  switch (workload.family) {
    case Family::kPointwise: {
      TRY(const CudaPointwiseSchedule decisions, CudaPointwiseSchedule::from(schedule));
      return lower_cuda_symbolic_pointwise(workload.graph, decisions);
    }
    case Family::kRowReduction: {
      TRY(const CudaRowReductionSchedule decisions, CudaRowReductionSchedule::from(schedule));
      if (has_constant_rows(workload.graph))
        return lower_cuda_row_reduction(workload.graph, decisions, target);
      return lower_cuda_symbolic_rows(workload.graph, decisions);
    }
    case Family::kColumnReduction: {
      TRY(const CudaColumnReductionSchedule decisions, CudaColumnReductionSchedule::from(schedule));
      return lower_cuda_symbolic_columns(workload.graph, decisions);
    }
    default:
      return no_kernels(workload);
  }
}

Result<Source> lower_cuda(const Workload& workload, const Schedule& schedule,
                          const Target& target) {
  if (!workload.graph.symbols().empty() && !is_written_once(workload.family))
    return lower_cuda_symbolic(workload, schedule, target);
  switch (workload.family) {
    case Family::kPointwise: {
      TRY(const CudaPointwiseSchedule decisions, CudaPointwiseSchedule::from(schedule));
      return lower_cuda_pointwise(workload.graph, decisions);
    }
    case Family::kConvolution: {
      TRY(const CudaMatmulSchedule decisions, cuda_convolution_schedule(schedule));
      return lower_cuda_convolution(workload.graph, decisions);
    }
    case Family::kMatmul: {
      TRY(const CudaMatmulSchedule decisions, CudaMatmulSchedule::from(schedule));
      return lower_cuda_matmul(workload.graph, decisions);
    }
    case Family::kRowReduction: {
      TRY(const CudaRowReductionSchedule decisions, CudaRowReductionSchedule::from(schedule));
      return lower_cuda_row_reduction(workload.graph, decisions, target);
    }
    case Family::kColumnReduction: {
      TRY(const CudaColumnReductionSchedule decisions, CudaColumnReductionSchedule::from(schedule));
      return lower_cuda_column_reduction(workload.graph, decisions, target);
    }
    case Family::kScan: {
      TRY(const CudaScanSchedule decisions, CudaScanSchedule::from(schedule));
      return lower_cuda_scan(workload.graph, decisions);
    }
    case Family::kSort: {
      TRY(const CudaSortSchedule decisions, CudaSortSchedule::from(schedule));
      return lower_cuda_sort(workload.graph, decisions);
    }
    case Family::kScatter: {
      TRY(const CudaScatterSchedule decisions, CudaScatterSchedule::from(schedule));
      return lower_cuda_scatter(workload.graph, decisions);
    }
    case Family::kAttention: {
      TRY(const CudaAttentionSchedule decisions, CudaAttentionSchedule::from(schedule));
      return lower_cuda_attention(workload.graph, decisions);
    }
    case Family::kCustom:
      break;
  }
  return no_kernels(workload);
}

}  // namespace

Result<Source> lower(const Workload& workload, const Schedule& schedule, const Target& target) {
  const bool cuda = target.backend == Backend::kCuda && sm_number(target) >= 80;
  if (workload.family == Family::kCustom && (cuda || vector_bytes(target) > 0))
    return lower_custom(workload, schedule, target);
  TRY_STATUS(check_printable(workload.graph));
  if (cuda) {
    TRY(Source source, lower_cuda(workload, schedule, target));
    source.text = needed_text(source.text);
    return source;
  }
  if (vector_bytes(target) == 0)
    return fail(Code::kUnsupported, "no kernels are written for " + target.to_string());
  return lower_cpu(workload, schedule);
}

Recipe argument_recipe(const Graph& graph) {
  Recipe recipe;
  const auto spec = [&](NodeId id) {
    const Node& node = graph.node(id);
    return TensorSpec{node.dtype, node.shape};
  };
  for (NodeId id : graph.inputs()) recipe.inputs.push_back(spec(id));
  for (NodeId id : graph.outputs()) recipe.outputs.push_back(spec(id));
  return recipe;
}

const Digest& codegen_identity() {
  static const Digest identity = Digest::of(generator_hash());
  return identity;
}

}  // namespace kiln
