#include "compiler_core/frontend/named_values.h"

#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/shape.h"

namespace kiln {

bool NamedValues::define(std::string_view name, NodeId value) {
  return entries_.try_emplace(name, Entry{value, 0, name, {}, nullptr, 0}).second;
}

bool NamedValues::define_alias(std::string_view name, NodeId value, std::string_view parent,
                               const ExportedNode* view, size_t output) {
  const auto of = entries_.find(parent);
  CHECK(of != entries_.end(), "the tensor of a view is defined");
  const std::string_view root = of->second.root;
  const int version = entries_.at(root).version;
  return entries_.try_emplace(name, Entry{value, version, root, parent, view, output}).second;
}

std::string_view NamedValues::root_of(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? name : found->second.root;
}

std::vector<NamedValues::Entry*> NamedValues::chain_to(std::string_view name) {
  std::vector<Entry*> chain;
  for (Entry* entry = &entries_.at(name); !entry->parent.empty();
       entry = &entries_.at(entry->parent))
    chain.push_back(entry);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

NodeId NamedValues::apply(const Entry& entry, NodeId parent) {
  if (entry.view == nullptr || !b_.ok()) return parent;
  const std::vector<NodeId> outputs = replay_(*entry.view, parent);
  return entry.output < outputs.size() ? outputs[entry.output] : kInvalidNode;
}

NodeId NamedValues::find(std::string_view name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return kInvalidNode;
  Entry& entry = found->second;
  const Entry& root = entries_.at(entry.root);
  if (entry.version == root.version) return entry.value;
  NodeId value = root.value;
  for (Entry* each : chain_to(name)) {
    if (each->version != root.version) {
      each->value = apply(*each, value);
      each->version = root.version;
    }
    value = each->value;
  }
  return value;
}

NodeId NamedValues::written_through(Entry& root, std::string_view name, NodeId value) {
  const std::vector<Entry*> chain = chain_to(name);
  const bool whole = std::all_of(chain.begin(), chain.end(),
                                 [](const Entry* each) { return each->view == nullptr; });
  if (whole || !b_.ok()) return value;
  // Where each element that the alias shows lies: the same views, of positions.
  const Shape shape = b_.shape(root.value);
  const NodeId positions = b_.iota(DType::kI64, numel(shape));
  NodeId at = b_.reshape(positions, shape);
  for (const Entry* each : chain) at = apply(*each, at);
  if (!b_.ok()) return kInvalidNode;
  const Shape flat = {numel(b_.shape(at))};
  at = b_.reshape(at, flat);
  // Only reshaped: every element in its place.
  if (at == positions) return b_.reshape(value, shape);
  return b_.reshape(b_.scatter(b_.reshape(root.value, {numel(shape)}), at, b_.reshape(value, flat),
                               Combine::kSet),
                    shape);
}

void NamedValues::overwrite(std::string_view name, NodeId value) {
  Entry& entry = entries_.at(name);
  Entry& root = entries_.at(entry.root);
  root.value = written_through(root, name, value);
  ++root.version;
  entry.value = value;
  entry.version = root.version;
}

}  // namespace kiln
