// Rows that are written in place: a kernel whose outputs are inputs with one row along an axis replaced,
// where an index says which. A step of decoding writes its cache of keys and values so. The buffer
// of such an output holds what the input does when the kernel begins (Recipe::kept): the caller may
// give one buffer for both, and no other row is read or written.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct RowUpdate {
  size_t axis = 0;                 // of the outputs' shape S; not the innermost
  NodeId is_there = kInvalidNode;  // bool of shape S: the position along `axis` is `index`
  NodeId index = kInvalidNode;     // of shape S and the same everywhere
  std::vector<NodeId> bases;       // by output: an Input of shape S, which nothing else reads
};

// Of a kernel's graph, where every output is Select(is_there, values, base), or a half that such a
// Select in f32 is rounded to, with one `is_there` for all.
std::optional<RowUpdate> find_row_update(const Graph& graph);

// Which values of a program's graph are best written in place: outputs, each of them once, whose bases
// are inputs that nothing else reads and that are no outputs. Of less than 64 KiB there are none: one
// launch costs more than their copy.
std::vector<bool> row_updates(const Graph& graph);

}  // namespace kiln
