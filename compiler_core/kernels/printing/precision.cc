#include "compiler_core/kernels/printing/precision.h"

#include <algorithm>

namespace kiln {
namespace {

// Whether a result jumps where an operand moves a little.
bool is_step(Op op) {
  switch (op) {
    case Op::kSign:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound:
    case Op::kRem:
      return true;
    default:
      return traits(op).kind == OpKind::kCompare;
  }
}

// A node is found where each of its readers is, or `ends` at that reader; a reader that is a step or no
// float is never found, and an output only where it is a half.
template <class Ends>
std::vector<bool> find_from_outputs_back(const Graph& graph, Ends ends) {
  std::vector<bool> found(static_cast<size_t>(graph.size()), true);
  for (NodeId id : graph.outputs())
    found[static_cast<size_t>(id)] = is_16_bit_float(graph.node(id).dtype);
  const std::vector<std::vector<NodeId>> users = users_of(graph);
  for (NodeId id = graph.size(); id-- > 0;) {
    const auto& readers = users[static_cast<size_t>(id)];
    const bool all = std::ranges::all_of(readers, [&](NodeId user) {
      const Node& reader = graph.node(user);
      return is_float(reader.dtype) && !is_step(reader.op) &&
             (ends(reader) || found[static_cast<size_t>(user)]);
    });
    found[static_cast<size_t>(id)] = found[static_cast<size_t>(id)] && all;
  }
  return found;
}

}  // namespace

std::vector<bool> find_plain_nans(const Graph& graph) {
  std::vector<bool> plain;
  for (const Node& node : graph.nodes()) {
    const bool wide = is_float(node.dtype) && node.dtype != DType::kBF16;
    plain.push_back(!(node.op == Op::kInput && wide) &&
                    std::all_of(node.operands.begin(), node.operands.end(),
                                [&](NodeId id) { return plain[static_cast<size_t>(id)]; }));
  }
  return plain;
}

std::vector<bool> find_ending_in_halves(const Graph& graph) {
  return find_from_outputs_back(graph,
                                [](const Node& reader) { return is_16_bit_float(reader.dtype); });
}

std::vector<bool> find_stored_as_halves(const Graph& graph) {
  return find_from_outputs_back(graph, [](const Node&) { return false; });
}

}  // namespace kiln
