#include "compiler_core/plan/workload.h"

#include "compiler_core/passes/canonicalise.h"
#include "compiler_core/passes/expand_half.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/simplify.h"
#include "compiler_core/passes/sink_views.h"
#include "compiler_core/plan/attention.h"
#include "compiler_core/plan/merge_axes.h"
#include "compiler_core/plan/pointwise_convolutions.h"

namespace kiln {

std::string_view to_string(Family family) {
  switch (family) {
    case Family::kPointwise:
      return "pointwise";
    case Family::kRowReduction:
      return "row_reduction";
    case Family::kColumnReduction:
      return "column_reduction";
    case Family::kMatmul:
      return "matmul";
    case Family::kScan:
      return "scan";
    case Family::kSort:
      return "sort";
    case Family::kScatter:
      return "scatter";
    case Family::kConvolution:
      return "convolution";
    case Family::kAttention:
      return "attention";
    case Family::kCustom:
      return "custom";
  }
  return "unknown";
}

Result<Family> parse_family(std::string_view name) {
  for (const Family family : {Family::kPointwise, Family::kRowReduction, Family::kColumnReduction,
                              Family::kMatmul, Family::kScan, Family::kSort, Family::kScatter,
                              Family::kConvolution, Family::kAttention, Family::kCustom})
    if (to_string(family) == name) return family;
  return fail(Code::kInvalidArgument, "unknown family '" + std::string(name.substr(0, 32)) + "'");
}

Result<WorkloadBinding> make_workload(const Graph& subgraph) {
  // The passes of normalise, except that broadcasts go all the way down: within a kernel every
  // value is computed where it is used.
  TRY(Graph graph, pointwise_convolutions(subgraph));
  TRY(graph, expand_half(graph));
  TRY(graph, simplify(graph));
  TRY(graph, sink_views(graph, SinkLimit::kRecomputePointwise));
  TRY(graph, simplify(graph));
  if (find_attention(graph)) {
    TRY(graph, arrange_attention(graph));
  } else {
    TRY(graph, merge_axes(graph));
  }
  TRY(Canonical canonical, canonicalise(graph, UnusedInputs::kDrop));
  TRY(const Family family, classify(canonical.graph));

  WorkloadBinding binding;
  binding.workload.digest =
      digest_of(canonical.graph, "kiln.workload." + std::string(to_string(family)));
  binding.workload.graph = std::move(canonical.graph);
  binding.workload.family = family;
  binding.input_order = std::move(canonical.input_order);
  for (const SymbolId symbol : canonical.symbol_order) binding.dims.push_back(Dim::symbol(symbol));
  return binding;
}

}  // namespace kiln
