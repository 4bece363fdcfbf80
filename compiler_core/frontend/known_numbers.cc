#include "compiler_core/frontend/known_numbers.h"

#include <algorithm>
#include <map>

#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

constexpr size_t kMostNodes = 256;  // on the way to one number

}  // namespace

void KnownNumbers::define(std::string_view name, const GraphBuilder& b, NodeId value) {
  if (!b.ok() || value == kInvalidNode) return;
  if (const auto found = evaluate(b, value)) known_.insert_or_assign(name, *found);
}

std::optional<KnownNumbers::Number> KnownNumbers::evaluate(const GraphBuilder& b, NodeId value) {
  // Ascending, so that operands come before their readers.
  std::map<NodeId, NodeId> copies;
  std::vector<NodeId> met = {value};
  while (!met.empty()) {
    const NodeId id = met.back();
    met.pop_back();
    if (!copies.emplace(id, kInvalidNode).second) continue;
    const Node& node = b.node(id);
    if (node.op == Op::kCustomCall || !is_constant(node.shape) || copies.size() > kMostNodes)
      return std::nullopt;
    elements_left_ -= std::max<int64_t>(1, numel(node.shape).constant());
    if (elements_left_ < 0) return std::nullopt;
    met.insert(met.end(), node.operands.begin(), node.operands.end());
  }
  GraphBuilder alone;
  std::vector<Tensor> constants;
  for (auto& [id, copy] : copies) {
    Node node = b.node(id);
    if (node.op == Op::kInput) {
      std::optional<Tensor> constant = constant_(id);
      if (!constant) return std::nullopt;
      constants.push_back(*std::move(constant));
      copy = alone.input(node.dtype, node.shape);
      continue;
    }
    for (NodeId& operand : node.operands) operand = copies.at(operand);
    copy = alone.add(std::move(node));
  }
  const bool is_real = is_float(b.dtype(value));
  const NodeId result =
      alone.cast(alone.reshape(copies.at(value), {}), is_real ? DType::kF64 : DType::kI64);
  const Result<Graph> graph = alone.finish({result});
  if (!graph) return std::nullopt;
  std::vector<const Tensor*> inputs;
  for (const Tensor& constant : constants) inputs.push_back(&constant);
  const auto outputs = interpret(*graph, inputs);
  if (!outputs) return std::nullopt;
  if (is_real) return (*outputs)[0].as<double>()[0];
  return (*outputs)[0].as<int64_t>()[0];
}

const ExportedNode& KnownNumbers::resolved(const ExportedNode& node) {
  ExportedNode* changed = nullptr;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    std::optional<Argument> constant = constant_of(node.inputs[i].value);
    if (!constant) continue;
    if (changed == nullptr) changed = &resolved_.emplace_back(node);
    changed->inputs[i].value = *std::move(constant);
  }
  return changed != nullptr ? *changed : node;
}

const KnownNumbers::Number* KnownNumbers::find(const NumberName& number) const {
  const auto found = known_.find(number.name);
  return found == known_.end() ? nullptr : &found->second;
}

std::optional<Argument> KnownNumbers::constant_of(const Argument& argument) const {
  if (const auto* name = std::get_if<NumberName>(&argument)) {
    const Number* number = find(*name);
    if (number == nullptr) return std::nullopt;
    if (const auto* real = std::get_if<double>(number)) return Argument(*real);
    return Argument(Dim(std::get<int64_t>(*number)));
  }
  const auto* list = std::get_if<UncoveredSize>(&argument);
  if (list == nullptr || list->items.empty()) return std::nullopt;
  std::vector<Dim> sizes;
  for (const auto& item : list->items) {
    if (const auto* size = std::get_if<Dim>(&item)) {
      sizes.push_back(*size);
      continue;
    }
    const Number* number = find(std::get<NumberName>(item));
    if (number == nullptr || !std::holds_alternative<int64_t>(*number)) return std::nullopt;
    sizes.emplace_back(std::get<int64_t>(*number));
  }
  return Argument(std::move(sizes));
}

}  // namespace kiln
