#include "compiler_core/frontend/known_integers.h"

#include <algorithm>
#include <map>

#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

constexpr size_t kMostNodes = 256;  // on the way to one integer

}  // namespace

void KnownIntegers::define(std::string_view name, const GraphBuilder& b, NodeId value) {
  if (!b.ok() || value == kInvalidNode || is_float(b.dtype(value))) return;
  if (const auto found = evaluate(b, value)) known_.insert_or_assign(name, *found);
}

std::optional<int64_t> KnownIntegers::evaluate(const GraphBuilder& b, NodeId value) {
  std::map<NodeId, NodeId>
      copies;  // of what the value is made of: operands come before their readers
  std::vector<NodeId> met = {value};
  while (!met.empty()) {
    const NodeId id = met.back();
    met.pop_back();
    if (!copies.emplace(id, kInvalidNode).second) continue;
    const Node& node = b.node(id);
    if (node.op == Op::kInput || node.op == Op::kCustomCall || !is_constant(node.shape) ||
        copies.size() > kMostNodes)
      return std::nullopt;
    elements_left_ -= std::max<int64_t>(1, numel(node.shape).constant());
    if (elements_left_ < 0) return std::nullopt;
    met.insert(met.end(), node.operands.begin(), node.operands.end());
  }
  GraphBuilder alone;
  for (auto& [id, copy] : copies) {
    Node node = b.node(id);
    for (NodeId& operand : node.operands) operand = copies.at(operand);
    copy = alone.add(std::move(node));
  }
  const NodeId result = alone.cast(alone.reshape(copies.at(value), {}), DType::kI64);
  const Result<Graph> graph = alone.finish({result});
  if (!graph) return std::nullopt;
  const auto outputs = interpret(*graph, {});
  if (!outputs) return std::nullopt;
  return (*outputs)[0].as<int64_t>()[0];
}

const ExportedNode& KnownIntegers::resolved(const ExportedNode& node) {
  if (known_.empty()) return node;
  ExportedNode changed = node;
  bool any = false;
  for (NamedArgument& input : changed.inputs) any = resolve(input.value) || any;
  return any ? resolved_.emplace_back(std::move(changed)) : node;
}

bool KnownIntegers::resolve(Argument& argument) const {
  const auto known = [this](const NumberName& number) {
    const auto found = known_.find(number.name);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  };
  if (const auto* number = std::get_if<NumberName>(&argument)) {
    const auto value = known(*number);
    if (value) argument = Dim(*value);
    return value.has_value();
  }
  const auto* list = std::get_if<UncoveredSize>(&argument);
  if (list == nullptr || list->items.empty()) return false;
  std::vector<Dim> sizes;
  for (const auto& item : list->items) {
    const auto* number = std::get_if<NumberName>(&item);
    const auto value = number == nullptr ? std::nullopt : known(*number);
    if (number != nullptr && !value) return false;
    sizes.push_back(value ? Dim(*value) : std::get<Dim>(item));
  }
  argument = std::move(sizes);
  return true;
}

}  // namespace kiln
