// PreparedWorkload: one workload with the inputs it is evaluated on and the right outputs, all in
// the device's memory, made once and used for all its candidates. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler_core/program/artifact.h"
#include "worker/runner/evaluation_device.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {

// A workload with symbols is measured at one size of each and checked at others too: a kernel that
// is right only where it was tuned is wrong.
class PreparedWorkload {
 public:
  // Parses the graph, draws inputs and evaluates it in high precision (which takes as long as the
  // reference does). kInvalidArgument: not a graph; kUnavailable: too large for the device.
  // `device` outlives it.
  static Result<PreparedWorkload> make(EvaluationDevice& device, std::string_view graph_text,
                                       uint64_t seed);

  // The same without results, at the measured sizes: for a runner that only launches.
  static Result<PreparedWorkload> make_inputs(EvaluationDevice& device, std::string_view graph_text,
                                              uint64_t seed, Floats floats);

  const std::vector<int64_t>& symbols() const { return symbols_; }
  Floats floats() const { return floats_; }  // how the inputs are drawn
  // The same workload at other sizes, those that fit the device; none when it has no symbols.
  std::vector<PreparedWorkload>& others() { return others_; }
  const std::vector<GuardedMemory>& inputs() const { return inputs_; }
  const std::vector<GuardedMemory>& outputs() const { return outputs_; }
  const std::vector<PooledMemory>& expected() const { return expected_; }
  double relative_tolerance() const { return tolerance_.relative; }
  int64_t output_count(size_t index) const;  // elements
  int64_t byte_size() const;                 // of inputs and outputs: what one launch works on

  // kInvalidArgument unless `recipe` takes these inputs and gives these outputs.
  Status check_recipe(const Recipe& recipe) const;

  Status draw_input(size_t index) const;
  Status check_input(size_t index) const;  // leaves a tally of the elements that were overwritten

  // Leaves a tally of the elements of output `index` that are wrong (tolerance.h), by the graph as
  // declared too when `leniently`: that is evaluated the first time.
  Status compare_output(size_t index, bool leniently);
  // The difference in that tally, when there are more than may be wrong.
  std::optional<Difference> difference(size_t index, const Tally& tally) const;
  // For people: element `at` of output `index`; whether all its bytes are `poison`.
  struct Element {
    std::string text;
    bool unwritten = false;
  };
  Result<Element> describe_output(size_t index, int64_t at, uint8_t poison) const;

  // Leaves a tally an output, for is_intact(): whether the expected outputs are as they were.
  Status check_expected() const;
  bool is_intact(std::span<const Tally> tallies) const;

 private:
  // A dense tensor, wherever its elements are.
  struct TensorForm {
    DType dtype = DType::kF32;
    std::vector<int64_t> sizes;
  };

  explicit PreparedWorkload(EvaluationDevice& device) : device_(&device) {}
  static Result<PreparedWorkload> make_at(EvaluationDevice& device, const Graph& graph,
                                          std::vector<int64_t> symbols, uint64_t seed);
  static Status check_tensors(std::string_view what, std::span<const TensorSpec> specs,
                              std::span<const TensorForm> tensors,
                              std::span<const int64_t> symbols);
  Status allocate();
  Status evaluate(const Graph& graph, Precision precision,
                  std::vector<PooledMemory>& results) const;
  Result<bool> survey_expected();  // false: there is a NaN

  EvaluationDevice* device_;
  Graph graph_;
  std::vector<int64_t> symbols_;
  Tolerance tolerance_;
  std::vector<InputDraw> draws_;
  Floats floats_ = Floats::kNormal;
  std::vector<TensorForm> input_forms_, output_forms_;
  std::vector<GuardedMemory> inputs_, outputs_;
  std::vector<PooledMemory> expected_;
  std::vector<double> scales_;          // of expected_, see tolerance.h
  std::vector<uint64_t> checksums_;     // of expected_
  std::vector<PooledMemory> declared_;  // empty until it is needed
  std::vector<PreparedWorkload> others_;
};

}  // namespace kiln::runner
