// ReferenceSlices: which nodes of a graph the device's reference never holds whole, and in what
// pieces it computes them.
//
// The scores of an attention over 4096 tokens are 17 GB in doubles, and a reference holds several
// such values at once. Nodes above a limit are therefore computed a slice at a time, for a slice of
// the node that reads them; so is what depends on them, until a node that is held whole again: an
// output of the graph, a small product, or an op that cannot tell which elements it reads.
// Immutable, pure.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln::runner {

// Elements [begin, end) of a tensor in row-major order.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

class ReferenceSlices {
 public:
  using Sizes = std::vector<int64_t>;

  // A part of a node that is held whole.
  struct Slice {
    Interval part;
    // The nodes that have to be computed before, in this order, of nodes that are not held whole.
    std::vector<std::pair<NodeId, Interval>> before;
  };

  // `sizes`: of every node. `symbols`: of the graph. `limit`: elements above which a node is not
  // held whole, where its readers allow. Slices of a node stay below it.
  static Result<ReferenceSlices> plan(const Graph& graph, std::vector<Sizes> sizes,
                                      std::span<const int64_t> symbols, int64_t limit);

  bool whole(NodeId id) const { return !sliced_[static_cast<size_t>(id)]; }
  // Together they cover the node, which is held whole. One, if nothing before it is sliced.
  const std::vector<Slice>& slices(NodeId id) const { return slices_[static_cast<size_t>(id)]; }

 private:
  struct View {
    Sizes strides;
    int64_t offset = 0;
  };

  ReferenceSlices(const Graph& graph, std::vector<Sizes> sizes, int64_t limit)
      : graph_(&graph), sizes_(std::move(sizes)), limit_(limit) {}

  int64_t count(NodeId id) const;
  void choose(const std::vector<bool>& kept);
  NodeId cut(NodeId id, Interval part, std::vector<Slice>& slices) const;
  Slice slice(NodeId id, Interval part) const;
  Interval read(NodeId id, Interval part, size_t operand) const;

  const Graph* graph_;
  std::vector<Sizes> sizes_;
  std::vector<View> views_;  // of nodes that are views
  int64_t limit_;
  std::vector<bool> sliced_;
  std::vector<std::vector<Slice>> slices_;
};

}  // namespace kiln::runner
