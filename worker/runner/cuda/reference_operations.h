// ReferenceOperations: plans the launches that compute a node, or a part of one, in f64 and i64, with
// the kernels of worker/runner/cuda/kernels. One thread.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "worker/runner/cuda/reference_values.h"

namespace kiln::runner {

class ReferenceOperations {
 public:
  // `values` outlives this. `inputs`: of the graph, in its order.
  ReferenceOperations(ReferenceValues& values, const Graph& graph, Precision precision,
                      std::span<const DevicePtr> inputs)
      : values_(values),
        graph_(graph),
        high_(precision == Precision::kHigh ? 1 : 0),
        inputs_(inputs) {}

  // Room for every list there can be. kUnavailable: no memory.
  Status reserve_lists(const ReferenceSlices& slices);
  // REQUIRES: what the node reads is planned and held; `part` of a node that is computed whole is
  // all of it. kUnavailable: no memory for what a node needs beside its result.
  Status plan(NodeId id, Interval part);
  // The node as the graph's output, in its own type.
  void store(NodeId id, DevicePtr output);

 private:
  using Sizes = ReferenceValues::Sizes;

  void source(NodeId id, Interval part);
  // The bits of a constant are those of a node's element.
  void constant(const ConstantAttr& attr, int64_t to, int64_t count);
  void elementwise(NodeId id, Interval part);
  Status view(NodeId id, Interval part);
  Status join(NodeId id);  // a pad or a concatenation
  Status reduce(NodeId id, Interval part);
  Status scan(NodeId id);
  Status scan_lines(int64_t x, int64_t out, int64_t outer, int64_t size, int64_t inner,
                    DType rounding, bool floats);
  void contract(NodeId id, Interval part);
  void convolution(NodeId id);
  void scatter(NodeId id);
  Status argsort(NodeId id);
  void gather(NodeId id);

  const Sizes& sizes(NodeId id) const { return values_.sizes(id); }
  int64_t at(NodeId id, int64_t first = 0) const { return values_.at(id, first); }
  void add(const char* entry, int64_t work, std::vector<int64_t> arguments) {
    values_.launches().add(entry, work, std::move(arguments));
  }
  int64_t list(const Sizes& sizes, const Sizes& strides) {
    return values_.launches().list(ReferenceLaunches::merged(sizes, strides));
  }

  ReferenceValues& values_;
  const Graph& graph_;
  const int64_t high_;  // the kernels' flag: results are not rounded to the node's type
  const std::span<const DevicePtr> inputs_;
};

}  // namespace kiln::runner
