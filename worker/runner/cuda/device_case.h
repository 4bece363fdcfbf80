// DeviceCase: one workload with the inputs it is tried on and the right outputs, all in device
// memory; what WorkloadCase is on the host. Also the memory lent to the kernels that are verified:
//
//   | guard: 64 KiB of pattern | data | guard: 64 KiB of pattern and more |
//
// The guard behind begins at the very next byte. What is written farther away faults, or damages
// something of the runner's, which is then noticed by its checksum. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler_core/ir/graph.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/program/artifact.h"
#include "worker/runner/cpu/workload_case.h"
#include "worker/runner/cuda/utility_kernels.h"
#include "worker/runner/random_inputs.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {

class LentMemory {
 public:
  static Result<LentMemory> allocate(UtilityKernels& utility, std::string name, int64_t bytes);
  const std::string& name() const { return name_; }  // "input 0", "output 1", "workspace"
  DevicePtr data() const;                            // 256-byte aligned
  int64_t bytes() const { return bytes_; }
  Status repair(UtilityKernels& utility) const;  // writes the pattern anew
  Status check(UtilityKernels& utility) const;   // leaves a tally for damage()
  // Where the nearest overwritten byte is, counted from data(): negative, or >= bytes().
  std::optional<int64_t> damage(const Tally& tally) const;

 private:
  int64_t guard_behind() const;

  std::string name_;
  int64_t bytes_ = 0;
  PooledMemory memory_;
};

class DeviceCase {
 public:
  // Parses the graph, draws inputs and evaluates it in high precision. kInvalidArgument: not a
  // graph; kUnavailable: too large for the device. `utility` outlive it.
  static Result<DeviceCase> make(UtilityKernels& utility, std::string_view graph_text,
                                 uint64_t seed);

  const std::vector<int64_t>& symbols() const { return symbols_; }
  // The same workload at other sizes, those that fit the device; none when it has no symbols.
  std::vector<DeviceCase>& others() { return others_; }
  const std::vector<TensorForm>& input_forms() const { return input_forms_; }
  const std::vector<TensorForm>& output_forms() const { return output_forms_; }
  const std::vector<LentMemory>& inputs() const { return inputs_; }
  const std::vector<LentMemory>& outputs() const { return outputs_; }
  double relative_tolerance() const { return tolerance_.relative; }
  int64_t byte_size() const;  // of inputs and outputs: what one launch works on

  // Draws input `index` into `memory`; leaves a tally of the elements that are no longer the drawn
  // ones.
  Status draw_input(size_t index, DevicePtr memory) const;
  Status check_input(size_t index) const;

  // Leaves a tally of the elements of lent output `index` that are wrong (tolerance.h), by the
  // graph as declared too when `leniently`: that is evaluated the first time.
  Status compare_output(size_t index, bool leniently);
  // The difference in that tally, when there are more than may be wrong.
  std::optional<Difference> difference(size_t index, const Tally& tally) const;
  // For people: element `at` of lent output `index`; whether all its bytes are `poison`.
  struct Element {
    std::string text;
    bool unwritten = false;
  };
  Result<Element> describe_output(size_t index, int64_t at, uint8_t poison) const;

  // Leaves a tally an output, for is_intact(): whether the expected outputs are still what they
  // were.
  Status check_expected() const;
  bool is_intact(std::span<const Tally> tallies) const;

 private:
  explicit DeviceCase(UtilityKernels& utility) : utility_(&utility) {}
  static Result<DeviceCase> make_at(UtilityKernels& utility, const Graph& graph,
                                    std::vector<int64_t> symbols, uint64_t seed);
  Status lend();
  Status evaluate(const Graph& graph, Precision precision,
                  std::vector<PooledMemory>& results) const;
  Result<bool> survey_expected();  // false: there is a NaN

  UtilityKernels* utility_;
  Graph graph_;
  std::vector<int64_t> symbols_;
  Tolerance tolerance_;
  std::vector<InputDraw> draws_;
  Floats floats_ = Floats::kNormal;
  std::vector<TensorForm> input_forms_, output_forms_;
  std::vector<LentMemory> inputs_, outputs_;
  std::vector<PooledMemory> expected_;
  std::vector<Tally> surveys_;          // of expected_
  std::vector<PooledMemory> declared_;  // empty until it is needed
  std::vector<DeviceCase> others_;
};

}  // namespace kiln::runner
