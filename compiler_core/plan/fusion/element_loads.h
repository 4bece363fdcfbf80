// ElementLoads: how many loads one element of a value takes where it is computed in place. A value that
// is read at several places, as the windows of a pool read it, is computed anew at each; windows of
// windows multiply, and so does the text that a compiler gets.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

class ElementLoads {
 public:
  // A kernel with more loads an element has a value stored instead: a pool of a pool of a join of four
  // has 144, and kept a compiler busy for a minute.
  static constexpr int64_t kMost = 64;

  // `is_buffer`: whether a node lies in memory, by now. Keeps a reference to the graph.
  ElementLoads(const Graph& graph, std::function<bool(NodeId)> is_buffer);

  // Loads of an element of `id`, an element-wise node whose operands have been visited so.
  int64_t visit(NodeId id);
  // The value that would save most loads if it lay in memory, among those that `id` reads at several
  // places; kInvalidNode: none would save any. REQUIRES: visit(id).
  NodeId costliest(NodeId id) const;

 private:
  using Memo = std::unordered_map<NodeId, int64_t>;

  bool is_place(NodeId id) const;  // reads its operand elsewhere than at its own coordinates
  void add_places(NodeId operand, std::vector<NodeId>& places) const;
  int64_t loads(NodeId id, Memo& memo) const;
  NodeId source_of(NodeId place) const;

  const Graph& graph_;
  const std::function<bool(NodeId)> is_buffer_;
  // By element-wise node: the buffers and the places that it reads through arithmetic alone.
  std::vector<std::vector<NodeId>> places_;
};

}  // namespace kiln
