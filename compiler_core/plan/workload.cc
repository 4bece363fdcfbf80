#include "compiler_core/plan/workload.h"

#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/passes.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/rewrites/kernel_rewrites.h"
#include "compiler_core/plan/row_update.h"

namespace kiln {

bool widens_8_bits(DType from, DType to) {
  if (size_of(from) != 1 || from == DType::kBool || size_of(to) < 2) return false;
  return is_float(to) || is_integer(from);
}

NodeId stored_operand(const Graph& graph, NodeId operand) {
  NodeId at = operand;
  while (graph.node(at).op == Op::kCast && size_of(graph.node(at).dtype) > 1)
    at = graph.node(at).operands[0];
  // Each Cast on the way holds what has 8 bits.
  for (NodeId cast = operand; cast != at; cast = graph.node(cast).operands[0])
    if (!widens_8_bits(graph.node(at).dtype, graph.node(cast).dtype)) return operand;
  return at;
}

Result<WorkloadBinding> make_workload(const Graph& subgraph) {
  // The passes of normalise, except that broadcasts go all the way down: within a kernel every
  // value is computed where it is used.
  TRY(Graph graph, pointwise_convolutions(subgraph));
  TRY(graph, expand_half(graph));
  TRY(graph, simplify(graph));
  const bool is_of_a_row = find_row_update(graph).has_value();
  TRY(graph,
      sink_views(graph, is_of_a_row ? SinkLimit::kRecompute : SinkLimit::kRecomputePointwise));
  TRY(graph, simplify(graph));
  if (find_attention(graph)) {
    TRY(graph, arrange_attention(graph));
  } else {
    TRY(graph, merge_axes(graph));
  }
  TRY(Canonical canonical, canonicalise(graph, UnusedInputs::kDrop));
  TRY(const Family family, classify(canonical.graph));

  WorkloadBinding binding;
  binding.workload = with_family({std::move(canonical.graph), family, {}}, family);
  binding.input_order = std::move(canonical.input_order);
  for (const SymbolId symbol : canonical.symbol_order) binding.dims.push_back(Dim::symbol(symbol));
  return binding;
}

Workload with_family(Workload workload, Family family) {
  workload.digest = digest_of(workload.graph, "kiln.workload." + std::string(to_string(family)));
  workload.family = family;
  return workload;
}

}  // namespace kiln
