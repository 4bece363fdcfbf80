// ReferenceValues: where the values of one evaluation of the reference are on the device, and the
// launches that make them, planned before they are made. Memory is taken and given back in the order
// of the plan, which is the order of the stream. One thread.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "worker/runner/cuda/reference_launches.h"
#include "worker/runner/cuda/reference_slices.h"

namespace kiln::runner {

class ReferenceValues {
 public:
  using Sizes = ReferenceSlices::Sizes;

  ReferenceValues(CudaEvaluationDevice& device, const Graph& graph,
                  std::span<const int64_t> symbols);

  // The sizes of every node; they are known from here on. kInvalidArgument where one's bytes are
  // no number.
  Result<std::vector<Sizes>> evaluate_sizes();
  Result<Sizes> evaluate(const std::vector<Dim>& dims) const;
  Result<int64_t> evaluate(const Dim& dim) const { return dim.evaluate(symbols_); }

  const Sizes& sizes(NodeId id) const { return values_[static_cast<size_t>(id)].sizes; }
  int64_t elements(NodeId id) const;
  // Where element `first` of a node is, or would be if it was held from there on.
  int64_t at(NodeId id, int64_t first = 0) const;
  // A Gather of matrices that only products read, which find them in the table: held nowhere.
  bool in_place(NodeId id) const { return in_place_[static_cast<size_t>(id)]; }

  // Planned work goes on using what was given back, so that the driver gets none of it before.
  // kUnavailable: no memory, as of hold().
  Result<PooledMemory> allocate(int64_t bytes);
  Status hold(NodeId id, Interval part);
  void release(NodeId id) { values_[static_cast<size_t>(id)].memory = {}; }

  ReferenceLaunches& launches() { return launches_; }

 private:
  struct Value {
    Sizes sizes;
    PooledMemory memory;
    Interval held;  // what is in the memory
  };

  CudaEvaluationDevice& device_;
  const Graph& graph_;
  const std::span<const int64_t> symbols_;
  ReferenceLaunches launches_;
  std::vector<Value> values_;
  const std::vector<bool> in_place_;
};

// The product of sizes; 1 where there are none.
int64_t element_count(std::span<const int64_t> sizes);

}  // namespace kiln::runner
