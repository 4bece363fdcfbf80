// Partition: a graph cut into kernels, in the order in which they run.
#pragma once

#include <vector>

#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/stored_values.h"
#include "compiler_core/plan/workload.h"

namespace kiln {

struct FusedKernel {
  Workload workload;
  std::vector<NodeId>
      inputs;             // what each workload input is: an input of the graph or a stored value
  std::vector<Dim> dims;  // the values of the workload's symbols, in the graph's
  std::vector<NodeId> outputs;   // the stored values, in the order of the workload's outputs
  std::vector<NodeId> computed;  // every node that the kernel computes, ascending
};

struct Partition {
  Graph graph;  // what NodeIds refer to: the canonical graph, prepared for cutting
  std::vector<FusedKernel> kernels;
  StoredValues stored;  // what the kernels hand each other
};

struct PartitionOptions {
  // False: what one op of the user's program gives another is stored, as when ops run one by one.
  // To measure what fusion is worth.
  bool fuse = true;
  PassObserver after;
  // With fuse false: each op of the graph is stored, not each op of the user's program.
  bool core_ops = false;
  CutRules rules = {};
};

// kUnsupported names the op that no kernel family covers.
Result<Partition> partition(const Graph& canonical, const PartitionOptions& options = {});

}  // namespace kiln
