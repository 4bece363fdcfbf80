#include "worker/runner/cpu/workload_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/specialise.h"
#include "worker/runner/random_inputs.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {
namespace {

// References of larger workloads take long enough at one size.
constexpr int64_t kMostBytesOfOthers = int64_t{16} << 20;

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> result;
  for (const Tensor& tensor : tensors) result.push_back(&tensor);
  return result;
}

bool has_nan(const Tensor& tensor) {
  if (!is_float(tensor.dtype())) return false;
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (std::isnan(tensor.get(i))) return true;
  return false;
}

Status check_tensors(std::string_view what, std::span<const TensorSpec> specs,
                     std::span<const TensorForm> tensors, std::span<const int64_t> symbols) {
  if (specs.size() != tensors.size())
    return fail(Code::kInvalidArgument, fmt::format("the recipe has {} {}s, the workload {}",
                                                    specs.size(), what, tensors.size()));
  for (size_t i = 0; i < specs.size(); ++i) {
    bool same =
        specs[i].dtype == tensors[i].dtype && specs[i].shape.size() == tensors[i].sizes.size();
    for (size_t axis = 0; same && axis < specs[i].shape.size(); ++axis)
      same = specs[i].shape[axis].evaluate(symbols) == tensors[i].sizes[axis];
    if (!same)
      return fail(Code::kInvalidArgument,
                  fmt::format("{} {} of the recipe is not the workload's", what, i));
  }
  return {};
}

std::vector<TensorForm> forms_of(std::span<const Tensor> tensors) {
  std::vector<TensorForm> forms;
  for (const Tensor& tensor : tensors) forms.push_back({tensor.dtype(), tensor.sizes()});
  return forms;
}

}  // namespace

Status check_recipe(const Recipe& recipe, std::span<const TensorForm> inputs,
                    std::span<const TensorForm> outputs, std::span<const int64_t> symbols) {
  TRY_STATUS(check_tensors("input", recipe.inputs, inputs, symbols));
  return check_tensors("output", recipe.outputs, outputs, symbols);
}

Result<WorkloadCase> WorkloadCase::make(std::string_view graph_text, uint64_t seed) {
  TRY(const Graph parsed, parse_graph(graph_text));
  TRY(const Graph graph, inline_custom_calls(parsed));  // a custom call is checked by its reference
  TRY(WorkloadCase made, make_at(graph, measured_symbols(graph), seed));
  for (std::vector<int64_t>& symbols :
       other_symbols(graph, made.byte_size() <= kMostBytesOfOthers)) {
    // Some sizes of the ranges may not go together, or not fit.
    auto other = make_at(graph, std::move(symbols), seed);
    if (other) made.others_.push_back(*std::move(other));
  }
  return made;
}

Result<WorkloadCase> WorkloadCase::make_at(const Graph& graph, std::vector<int64_t> symbols,
                                           uint64_t seed) {
  WorkloadCase made;
  made.symbols_ = std::move(symbols);
  made.graph_ = graph;
  if (!made.symbols_.empty()) {
    std::vector<Symbol> constants;
    for (const int64_t size : made.symbols_) constants.push_back({{size, size}, size});
    TRY(made.graph_, specialise(graph, constants));
  }
  made.tolerance_ = tolerance_of(made.graph_, {});
  // A result that is mostly NaN would check nothing: positive inputs keep roots and logs real.
  for (const Floats floats : ways_to_draw(made.graph_)) {
    TRY(made.inputs_, random_inputs(made.graph_, {}, seed, floats));
    TRY(made.expected_, interpret(made.graph_, pointers(made.inputs_), Precision::kHigh));
    if (std::none_of(made.expected_.begin(), made.expected_.end(), has_nan)) break;
  }
  return made;
}

int64_t WorkloadCase::byte_size() const {
  int64_t total = 0;
  for (const Tensor& tensor : inputs_) total += tensor.byte_size();
  for (const Tensor& tensor : expected_) total += tensor.byte_size();
  return total;
}

Status WorkloadCase::check_recipe(const Recipe& recipe) const {
  return runner::check_recipe(recipe, forms_of(inputs_), forms_of(expected_), symbols_);
}

std::optional<Difference> WorkloadCase::compare_output(size_t index, const Tensor& got) {
  auto difference = compare(got, expected_[index], nullptr, tolerance_);
  if (!difference) return std::nullopt;
  if (declared_.empty()) {
    const auto graph = rounds_inside(graph_) ? rounded_elsewhere(graph_) : graph_;
    if (auto declared = graph ? interpret(*graph, pointers(inputs_), Precision::kDeclared)
                              : fail(graph.error()))
      declared_ = *std::move(declared);
  }
  if (declared_.empty()) return difference;
  return compare(got, expected_[index], &declared_[index], tolerance_);
}

}  // namespace kiln::runner
