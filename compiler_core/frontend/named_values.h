// NamedValues: the values behind the tensor names of one exported graph. Before decomposition a
// graph may change tensors in place; a name then stands for the changed value from there on, and so
// does every view of the same tensor. One owner, one thread.
//
// Invariants:
//  1. A name is a root, or an alias: output `output` of a view op applied to its parent, which was
//     defined before it (so that chains end).
//  2. All names of one root share its version; a change in place raises it. A value that is older
//     than its root's is stale and is made again from its parent when it is needed.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

// The outputs of the view op `node` with `self` in place of the tensor that it looks at.
using ReplayView = std::function<std::vector<NodeId>(const ExportedNode& node, NodeId self)>;

class NamedValues {
 public:
  NamedValues(GraphBuilder& builder, ReplayView replay) : b_(builder), replay_(std::move(replay)) {}

  // False when the name is defined already.
  bool define(std::string_view name, NodeId value);
  // `name` is output `output` of `view` on `parent`; a null view is the parent itself.
  // REQUIRES: `parent` is defined.
  bool define_alias(std::string_view name, NodeId value, std::string_view parent,
                    const ExportedNode* view, size_t output);

  // The scalar behind a number that an op took out of a tensor; kInvalidNode for a name that is none.
  void define_number(std::string_view name, NodeId scalar) {
    numbers_.insert_or_assign(name, scalar);
  }
  NodeId find_number(std::string_view name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? kInvalidNode : found->second;
  }

  bool contains(std::string_view name) const { return entries_.contains(name); }
  // The current value; kInvalidNode for a name that nothing defines.
  NodeId find(std::string_view name);

  // `name` and every alias of its tensor see `value`, of the same dtype and shape, from here on.
  // REQUIRES: `name` is defined.
  void overwrite(std::string_view name, NodeId value);
  // The name whose tensor `name` is a view of; itself for a root.
  std::string_view root_of(std::string_view name) const;

 private:
  struct Entry {
    NodeId value = kInvalidNode;
    int version = 0;
    std::string_view root;
    std::string_view parent;             // empty for a root
    const ExportedNode* view = nullptr;  // null: the parent itself
    size_t output = 0;
  };

  // The aliases from just below the root down to `name`.
  std::vector<Entry*> chain_to(std::string_view name);
  NodeId apply(const Entry& entry, NodeId parent);
  // The root's value after the elements that `name` shows became `value`.
  NodeId written_through(Entry& root, std::string_view name, NodeId value);

  GraphBuilder& b_;
  ReplayView replay_;
  std::unordered_map<std::string_view, Entry> entries_;
  std::unordered_map<std::string_view, NodeId> numbers_;
};

}  // namespace kiln
