// WorkloadCase: one workload with the inputs it is tried on and the right outputs, made once and
// used for all its candidates. One thread.
#pragma once

#include <string_view>
#include <vector>

#include "compiler_core/program/artifact.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {

// A dense tensor, wherever its elements are.
struct TensorForm {
  DType dtype = DType::kF32;
  std::vector<int64_t> sizes;
};
// kInvalidArgument unless `recipe` takes such inputs and gives such outputs.
Status check_recipe(const Recipe& recipe, std::span<const TensorForm> inputs,
                    std::span<const TensorForm> outputs, std::span<const int64_t> symbols);

// A workload with symbols is measured at one size of each and checked at others too: a kernel that
// is right only where it was tuned is wrong.
class WorkloadCase {
 public:
  // Parses the graph, draws inputs and evaluates it in high precision (which takes as long as the
  // interpreter does). kInvalidArgument: not a graph; kUnavailable: too large for a runner.
  static Result<WorkloadCase> make(std::string_view graph_text, uint64_t seed);

  const std::vector<int64_t>& symbols() const { return symbols_; }
  // The same workload at other sizes; none when it has no symbols.
  std::vector<WorkloadCase>& others() { return others_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& expected() const { return expected_; }
  int64_t byte_size() const;  // of inputs and outputs: what one launch works on

  // kInvalidArgument unless `recipe` takes these inputs and gives these outputs.
  Status check_recipe(const Recipe& recipe) const;

  // Whether `got` is output `index`. When it seems not, the graph is evaluated as declared too,
  // once: see tolerance.h.
  std::optional<Difference> compare_output(size_t index, const Tensor& got);
  double relative_tolerance() const { return tolerance_.relative; }

 private:
  WorkloadCase() = default;
  static Result<WorkloadCase> make_at(const Graph& graph, std::vector<int64_t> symbols,
                                      uint64_t seed);
  Graph graph_;  // at these sizes
  std::vector<int64_t> symbols_;
  std::vector<Tensor> inputs_, expected_;
  std::vector<Tensor> declared_;  // empty until it is needed
  Tolerance tolerance_;
  std::vector<WorkloadCase> others_;
};

}  // namespace kiln::runner
