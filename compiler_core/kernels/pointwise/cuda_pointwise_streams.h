// PointwiseStreams: how what a pointwise workload reads and writes lies in memory against its
// iteration space: which vectors are worth while, and what would be read across its grain. A value.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

struct PointwiseStreams {
  int64_t rows = 1, columns = 1;              // of the space: the innermost axis is the columns
  int64_t bytes_read = 0, bytes_written = 0;  // of buffers, each once
  // Element sizes of what is as large as the space.
  int narrowest_bytes = 16, widest_bytes = 1;
  // The greatest power of two, at most 16, of elements at whose multiples the rows of everything
  // contiguous begin, and the parts of Concats along them.
  int64_t alignment = 16;
  bool rows_differ = false;  // some operand is neither the space itself nor repeated along all rows
  bool repeats_rows = false;  // some operand is the same in all rows
  int arithmetic = 0;         // elementwise nodes
  int joined = 0;             // operands of Concats
  // Views of inputs whose contiguous axis is `across_axis` and not the innermost one; read at the
  // outputs' own indices only.
  std::vector<NodeId> across;
  int across_axis = -1;
  int64_t across_size = 1;  // of that axis
};

// REQUIRES: the guarantees of kPointwise, sizes that are constants.
PointwiseStreams pointwise_streams(const Graph& graph);

// The nodes whose values are needed at the outputs' own indices: not only below a View, Pad, Concat
// or Gather.
std::vector<bool> nodes_in_space(const Graph& graph);

}  // namespace kiln
