#include "compiler_core/base/check.h"
#include "compiler_core/ir/custom_call.h"
#include "worker/runner/cuda/cuda_evaluation_device.h"
#include "worker/runner/cuda/reference_operations.h"

namespace kiln::runner {
namespace {

// By node: the last node held whole that reads it, also by way of nodes in slices; kInvalidNode of
// outputs.
std::vector<NodeId> last_uses(const Graph& graph, const ReferenceSlices& slices,
                              const ReferenceValues& values) {
  std::vector<NodeId> last(static_cast<size_t>(graph.size()), kInvalidNode);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!slices.whole(id)) continue;
    const auto use = [&](NodeId node) {
      for (const NodeId operand : graph.node(node).operands) {
        last[static_cast<size_t>(operand)] = id;
        if (!values.in_place(operand)) continue;
        for (const NodeId below : graph.node(operand).operands)
          last[static_cast<size_t>(below)] = id;
      }
    };
    use(id);
    for (const auto& slice : slices.slices(id))
      for (const auto& [node, part] : slice.before) use(node);
  }
  for (const NodeId id : graph.outputs()) last[static_cast<size_t>(id)] = kInvalidNode;
  return last;
}

// Computes nodes in the graph's order; those that are too large for the whole in slices, for a slice
// of the node that reads them.
Status evaluate_plain(CudaEvaluationDevice& device, const Graph& graph,
                      std::span<const int64_t> symbols, Precision precision,
                      std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs) {
  ReferenceValues values(device, graph, symbols);
  ReferenceOperations operations(values, graph, precision, inputs);
  TRY(auto sizes, values.evaluate_sizes());
  TRY(const ReferenceSlices slices,
      ReferenceSlices::plan(graph, std::move(sizes), symbols, device.policy().reference_elements));
  TRY_STATUS(operations.reserve_lists(slices));
  const std::vector<NodeId> last_use = last_uses(graph, slices, values);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!slices.whole(id) || values.in_place(id)) continue;
    TRY_STATUS(values.hold(id, {0, values.elements(id)}));
    for (const auto& slice : slices.slices(id)) {
      for (const auto& [node, part] : slice.before) {
        TRY_STATUS(values.hold(node, part));
        TRY_STATUS(operations.plan(node, part));
      }
      TRY_STATUS(operations.plan(id, slice.part));
      for (const auto& [node, part] : slice.before) values.release(node);
    }
    for (NodeId node = 0; node < id; ++node)
      if (last_use[static_cast<size_t>(node)] == id) values.release(node);
  }
  for (size_t i = 0; i < outputs.size(); ++i) operations.store(graph.outputs()[i], outputs[i]);
  return values.launches().launch();
}

}  // namespace

Status CudaEvaluationDevice::evaluate(const Graph& graph, std::span<const int64_t> symbols,
                                      Precision precision, std::span<const DevicePtr> inputs,
                                      std::span<const DevicePtr> outputs) {
  CHECK(inputs.size() == graph.inputs().size() && outputs.size() == graph.outputs().size(),
        "the graph's inputs and outputs");
  if (has_custom_calls(graph)) {
    TRY(const Graph plain, inline_custom_calls(graph));
    return evaluate_plain(*this, plain, symbols, precision, inputs, outputs);
  }
  return evaluate_plain(*this, graph, symbols, precision, inputs, outputs);
}

}  // namespace kiln::runner
