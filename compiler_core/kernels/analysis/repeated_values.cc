#include "compiler_core/kernels/analysis/repeated_values.h"

#include <fmt/core.h>

#include <unordered_set>
#include <vector>

#include "compiler_core/ir/op.h"

namespace kiln {
namespace {

// A place is a number: where the outputs are stored, or one that follows from another.
using Places = std::unordered_set<uint64_t>;

uint64_t follows(uint64_t place, NodeId reader, size_t operand) {
  // The finaliser of splitmix64: a collision in 64 bits would only count too little.
  uint64_t x = place * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(reader) * 31 + operand + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Whether its operands are printed where it is, at other indices; other nodes are computed once.
bool reads_elsewhere(Op op) {
  return op == Op::kView || op == Op::kPad || op == Op::kConcat || op == Op::kGather;
}

}  // namespace

int64_t printed_values(const Graph& graph, int64_t most) {
  constexpr uint64_t kStored = 0;
  std::vector<Places> places(graph.nodes().size());
  for (const NodeId output : graph.outputs()) places[static_cast<size_t>(output)].insert(kStored);
  int64_t printed = 0;
  for (size_t i = places.size(); i-- > 0 && printed <= most;) {
    const Node& node = graph.nodes()[i];
    printed += std::ssize(places[i]);
    if (places[i].empty()) continue;
    for (size_t k = 0; k < node.operands.size() && printed <= most; ++k) {
      Places& read = places[static_cast<size_t>(node.operands[k])];
      if (!is_elementwise(node.op) && !reads_elsewhere(node.op)) {
        read.insert(follows(kStored, static_cast<NodeId>(i), k));
        continue;
      }
      for (const uint64_t place : places[i])
        read.insert(is_elementwise(node.op) ? place : follows(place, static_cast<NodeId>(i), k));
    }
    places[i] = {};
  }
  return printed;
}

Status check_repeated_values(const Graph& graph) {
  constexpr int64_t kMostAnyway = 4096, kMostANode = 16;
  const int64_t most = kMostAnyway + kMostANode * std::ssize(graph.nodes());
  if (printed_values(graph, most) <= most) return {};
  return fail(Code::kUnsupported,
              fmt::format("a kernel of {} operations would compute more than {} values: concats, "
                          "slices or gathers read each other's results again and again; compile "
                          "the parts as programs of their own",
                          graph.nodes().size(), most));
}

}  // namespace kiln
