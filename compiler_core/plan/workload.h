// Workload: one kernel's canonical subgraph. Its inputs and outputs are dense row-major buffers;
// every view between them is part of the graph. Equal workloads have equal digests, in whatever
// model they stand.
#pragma once

#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

// Persisted by name; never renamed.
enum class Family : uint8_t {
  kPointwise = 1,        // every output element from elements of the inputs
  kRowReduction = 2,     // reductions over the innermost axes: softmax, layernorm, rmsnorm
  kColumnReduction = 3,  // reductions over outer axes, contiguous axis kept: vertical vectors
  kMatmul = 4,           // one batched matmul with an elementwise epilogue
};
std::string_view to_string(Family family);
Result<Family> parse_family(std::string_view name);

struct Workload {
  Graph graph;       // in normal form
  Family family = Family::kPointwise;
  Digest digest;     // WorkloadDigest: normaliser version, graph, family
};

// Canonicalises `subgraph` and classifies it. input_order and output order as in NormalForm:
// `input_order[i]` is the subgraph input that is workload input i.
struct WorkloadBinding {
  Workload workload;
  std::vector<int> input_order;
};
Result<WorkloadBinding> make_workload(const Graph& subgraph);

// kUnsupported when no family covers it.
Result<Family> classify(const Graph& subgraph);

}  // namespace kiln
