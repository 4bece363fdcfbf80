#include "compiler_core/plan/partition.h"

#include <algorithm>
#include <map>

#include "compiler_core/plan/fusion/fuse.h"
#include "compiler_core/plan/fusion/materialised_values.h"

namespace kiln {
namespace {

class SeamFinder {
 public:
  explicit SeamFinder(const Partition& parts) : parts_(parts) {}

  std::vector<FusionBoundary> run() {
    std::map<NodeId, std::vector<int>> readers;
    for (size_t k = 0; k < parts_.kernels.size(); ++k)
      for (NodeId id : parts_.kernels[k].inputs) readers[id].push_back(static_cast<int>(k));
    std::vector<FusionBoundary> boundaries;
    for (size_t k = 0; k < parts_.kernels.size(); ++k)
      for (NodeId id : parts_.kernels[k].outputs) {
        const auto read = readers.find(id);
        if (read == readers.end()) continue;  // an output of the program and nothing more
        FusionBoundary boundary{id, static_cast<int>(k), read->second, ""};
        boundary.reason = reason(boundary);
        boundaries.push_back(std::move(boundary));
      }
    return boundaries;
  }

 private:
  const FusedKernel& kernel(int k) const { return parts_.kernels[static_cast<size_t>(k)]; }
  const Node& node(NodeId id) const { return parts_.graph.node(id); }

  // The node that makes a kernel what it is: a contraction, or a single-op kernel's op.
  const Node* main_node(int k) const {
    for (NodeId id : kernel(k).computed)
      if (traits(node(id).op).kind == OpKind::kContract || stands_alone(node(id).op))
        return &node(id);
    return nullptr;
  }
  const Node* reduction(int k) const {
    for (NodeId id : kernel(k).computed)
      if (traits(node(id).op).kind == OpKind::kReduce) return &node(id);
    return nullptr;
  }

  std::string reason(const FusionBoundary& boundary) const {
    const auto& outputs = parts_.graph.outputs();
    if (std::find(outputs.begin(), outputs.end(), boundary.value) != outputs.end())
      return "an output of the program";
    if (const auto refused = parts_.taken_apart.find(boundary.value);
        refused != parts_.taken_apart.end())
      return "fused kernel taken apart: " + refused->second;
    std::string why;
    if (boundary.readers.size() > 1)
      why = "read by " + std::to_string(boundary.readers.size()) + " kernels";
    for (int reader : boundary.readers) {
      const std::string one = against(boundary, reader);
      if (why.find(one) == std::string::npos) why += (why.empty() ? "" : "; ") + one;
    }
    return why;
  }

  std::string against(const FusionBoundary& boundary, int reader) const {
    const Node* reads = main_node(reader);
    const Node* writes = main_node(boundary.writer);
    if (reads != nullptr && feeds(boundary.value, *reads))
      return std::string(to_string(reads->op)) + " operands are stored";
    if (reads != nullptr && writes != nullptr)
      return "each has a " + std::string(to_string(writes->op)) + " of its own";
    if (writes != nullptr && stands_alone(writes->op))
      return std::string(to_string(writes->op)) + " has a kernel of its own";
    if (reads != nullptr && stands_alone(reads->op))
      return std::string(to_string(reads->op)) + " has a kernel of its own";
    const Node *first = reduction(boundary.writer), *second = reduction(reader);
    if (first != nullptr && second != nullptr && !same_space(*first, *second))
      return "a reduction over other axes";
    if (writes != nullptr && second != nullptr)
      return "a reduction reads the " + std::string(to_string(writes->op)) + "'s result";
    if (reads != nullptr && first != nullptr)
      return "a reduction's result, read beside a " + std::string(to_string(reads->op));
    return trial(boundary, reader);
  }

  // Whether `value` is an operand of `main`, perhaps through Views.
  bool feeds(NodeId value, const Node& main) const {
    return std::any_of(main.operands.begin(), main.operands.end(), [&](NodeId id) {
      while (id != value && node(id).op == Op::kView) id = node(id).operands[0];
      return id == value;
    });
  }

  bool same_space(const Node& a, const Node& b) const {
    const bool known =
        is_constant(node(a.operands[0]).shape) && is_constant(node(b.operands[0]).shape);
    return !known || reduction_sizes(parts_.graph, a) == reduction_sizes(parts_.graph, b);
  }

  // Tries the two as one kernel and returns the families' objection.
  std::string trial(const FusionBoundary& boundary, int reader) const {
    const FusedKernel &from = kernel(boundary.writer), &to = kernel(reader);
    MaterialisedValues values = parts_.stored;
    values.stored[static_cast<size_t>(boundary.value)] = false;
    KernelOutputs outputs = to.outputs;
    for (NodeId id : from.outputs)
      if (id != boundary.value) outputs.push_back(id);
    std::sort(outputs.begin(), outputs.end());
    const auto cut = extract_kernel(parts_.graph, values, outputs);
    if (!cut) return "the two do not share an iteration space";
    const auto made = make_workload(cut->graph);
    if (!made) return made.error().message;
    if (costs_divisions(made->workload.graph))
      return "the value is read in another shape, which would cost divisions";
    return "computed once rather than wherever it is read";
  }

  using KernelOutputs = std::vector<NodeId>;
  const Partition& parts_;
};

}  // namespace

std::vector<FusionBoundary> find_fusion_boundaries(const Partition& partition) {
  return SeamFinder(partition).run();
}

}  // namespace kiln
