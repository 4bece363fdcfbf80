#include "compiler_core/ir/graph.h"

#include <array>
#include <bit>

#include "compiler_core/ir/custom_call.h"

namespace kiln {

double ConstantAttr::as_double() const {
  return std::bit_cast<double>(bits);
}

namespace {
constexpr std::array<std::string_view, 5> kCombineNames = {"set", "add", "mul", "max", "min"};
}  // namespace

std::string_view to_string(Combine combine) {
  return kCombineNames[static_cast<size_t>(combine)];
}

Result<Combine> parse_combine(std::string_view name) {
  for (size_t i = 0; i < kCombineNames.size(); ++i)
    if (kCombineNames[i] == name) return static_cast<Combine>(i);
  return fail(Code::kInvalidArgument,
              "unknown way to combine '" + std::string(name.substr(0, 32)) + "'");
}

bool CustomAttr::operator==(const CustomAttr& other) const {
  return call == other.call || *call == *other.call;
}

bool Graph::operator==(const Graph& other) const {
  return nodes_ == other.nodes_ && inputs_ == other.inputs_ && outputs_ == other.outputs_ &&
         symbols_ == other.symbols_;
}

std::vector<std::vector<NodeId>> users_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> users(static_cast<size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id)
    for (NodeId operand : graph.node(id).operands)
      users[static_cast<size_t>(operand)].push_back(id);
  return users;
}

}  // namespace kiln
