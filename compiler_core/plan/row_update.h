// Row updates: kernels whose outputs are inputs with one row along an axis replaced, where an index says
// which. A step of decoding writes its cache of keys and values so. The buffer of such an output holds
// what the input does when the kernel begins (Recipe::kept): the caller may give one buffer for both,
// and no other row is read or written. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln {

struct RowUpdate {
  size_t axis = 0;                 // of the outputs' shape S; not the innermost
  NodeId is_there = kInvalidNode;  // bool of shape S: the position along `axis` is `index`
  NodeId index = kInvalidNode;     // of shape S and the same everywhere
  std::vector<NodeId> bases;       // by output: an Input of shape S, which nothing else reads
};

// Finds what a kernel's graph updates: every output is Select(is_there, values, base), or a half that
// such a Select in f32 is rounded to, with one `is_there` for all.
std::optional<RowUpdate> find_row_update(const Graph& graph);

// The rows that each output of a kRowUpdate has, of which its kernels write one; 1 of another family,
// whose kernels write all there is.
Dim rows_of_update(const Workload& workload);

// What of a program's graph is best written in place.
struct RowUpdates {
  // By node: an output, given back once, whose base is an input that nothing else reads. Of less than
  // 64 KiB there are none: one launch costs more than their copy.
  std::vector<bool> outputs;
  // By node: a View that such outputs alone are made of, so that one row of it is all that is computed.
  std::vector<bool> row_views;

  bool are_all(const std::vector<NodeId>& values) const;  // among `outputs`
};
RowUpdates find_row_updates(const Graph& graph);

}  // namespace kiln
