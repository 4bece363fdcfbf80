// Partition: a graph divided into kernels, in the order in which they run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/plan/workload.h"

namespace kiln {

struct FusedKernel {
  Workload workload;
  std::vector<NodeId>
      inputs;             // the input of the graph or materialised value of each workload input
  std::vector<Dim> dims;  // the values of the workload's symbols, in the graph's
  std::vector<NodeId> outputs;   // the materialised values, in the order of the workload's outputs
  std::vector<NodeId> computed;  // every node that the kernel computes, ascending
};

struct Partition {
  Graph graph;  // the canonical graph after the rewrites; all NodeIds here are of this graph
  std::vector<FusedKernel> kernels;
  MaterialisedValues stored;  // what the kernels pass to one another
  // The values among those that are stored only because a fused kernel kept no family's rules, each with
  // the rule that stood against it.
  std::map<NodeId, std::string> taken_apart;
};

struct PartitionOptions {
  // False: what one op of the user's program passes to another is stored, as when ops run one by
  // one. To measure what fusion is worth.
  bool fuse = true;
  PassObserver after;
  // With fuse false: each op of the graph is stored, not each op of the user's program.
  bool core_ops = false;
  PartitionRules rules = {};
};

// kUnsupported names the op that no kernel family covers.
Result<Partition> partition(const Graph& canonical, const PartitionOptions& options = {});

// A value that one kernel stores and others read, and why it is not computed where it is read.
struct FusionBoundary {
  NodeId value = kInvalidNode;  // of the partition's graph
  int writer = 0;               // kernels, by position
  std::vector<int> readers;     // ascending
  std::string reason;           // "read by 2 kernels, and one of them is a matmul"
};
// The reasons are found after the fact, from the partition. In the order of the kernels that write
// the values.
std::vector<FusionBoundary> find_fusion_boundaries(const Partition& partition);

}  // namespace kiln
