#include "compiler_core/ir/graph.h"

#include <bit>

namespace kiln {

double ConstantAttr::as_double() const {
  return std::bit_cast<double>(bits);
}

std::vector<std::vector<NodeId>> users_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> users(static_cast<size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id)
    for (NodeId operand : graph.node(id).operands)
      users[static_cast<size_t>(operand)].push_back(id);
  return users;
}

}  // namespace kiln
