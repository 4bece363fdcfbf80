#include "worker/runner/prepared_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/text.h"

namespace kiln::runner {
namespace {

constexpr size_t kMaxBuffers = EvaluationDevice::kMaxTallies / 4;

int64_t numel(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

}  // namespace

Status PreparedWorkload::check_tensors(std::string_view what, std::span<const TensorSpec> specs,
                                       std::span<const TensorForm> tensors,
                                       std::span<const int64_t> symbols) {
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

Status PreparedWorkload::check_recipe(const Recipe& recipe) const {
  TRY_STATUS(check_tensors("input", recipe.inputs, input_forms_, symbols_));
  return check_tensors("output", recipe.outputs, output_forms_, symbols_);
}

Result<PreparedWorkload> PreparedWorkload::make(EvaluationDevice& device,
                                                std::string_view graph_text, uint64_t seed) {
  TRY(const Graph parsed, parse_graph(graph_text));
  TRY(const Graph graph, inline_custom_calls(parsed));  // a custom call is checked by its reference
  TRY(PreparedWorkload made, make_at(device, graph, measured_symbols(graph), seed));
  for (std::vector<int64_t>& symbols :
       other_symbols(graph, made.byte_size() <= device.policy().most_other_sizes)) {
    // Some sizes of the ranges may not go together, or not fit: their tallies are not read.
    if (auto other = make_at(device, graph, std::move(symbols), seed))
      made.others_.push_back(*std::move(other));
    else
      TRY_STATUS(device.take().map([](const std::vector<Tally>&) {}));
  }
  return made;
}

Result<PreparedWorkload> PreparedWorkload::make_inputs(EvaluationDevice& device,
                                                       std::string_view graph_text, uint64_t seed,
                                                       Floats floats) {
  TRY(const Graph parsed, parse_graph(graph_text));
  PreparedWorkload made(device);
  TRY(made.graph_, inline_custom_calls(parsed));
  made.symbols_ = measured_symbols(made.graph_);
  TRY(made.draws_, input_draws(made.graph_, made.symbols_, seed));
  TRY_STATUS(made.allocate());
  made.floats_ = floats;
  for (size_t i = 0; i < made.inputs_.size(); ++i) TRY_STATUS(made.draw_input(i));
  return made;
}

Result<PreparedWorkload> PreparedWorkload::make_at(EvaluationDevice& device, const Graph& graph,
                                                   std::vector<int64_t> symbols, uint64_t seed) {
  PreparedWorkload made(device);
  made.graph_ = graph;
  made.symbols_ = std::move(symbols);
  made.tolerance_ = tolerance_of(made.graph_, made.symbols_);
  TRY(made.draws_, input_draws(made.graph_, made.symbols_, seed));
  TRY_STATUS(made.allocate());
  // A result that is mostly NaN would check nothing: positive inputs keep roots and logs real.
  for (const Floats floats : ways_to_draw(made.graph_)) {
    made.floats_ = floats;
    for (size_t i = 0; i < made.inputs_.size(); ++i) TRY_STATUS(made.draw_input(i));
    TRY_STATUS(made.evaluate(made.graph_, Precision::kHigh, made.expected_));
    TRY(const bool real, made.survey_expected());
    if (real) break;
  }
  return made;
}

Status PreparedWorkload::allocate() {
  if (draws_.size() + graph_.outputs().size() > kMaxBuffers)
    return fail(Code::kUnavailable, "the workload has more inputs and outputs than a runner holds");
  const auto add = [this](std::string name, const TensorForm& form,
                          std::vector<GuardedMemory>& to) -> Status {
    TRY(const int64_t bytes, checked_bytes(form.dtype, form.sizes));
    TRY(GuardedMemory memory, device_->allocate_guarded(std::move(name), bytes));
    to.push_back(std::move(memory));
    return {};
  };
  for (size_t i = 0; i < draws_.size(); ++i) {
    input_forms_.push_back({draws_[i].dtype, draws_[i].sizes});
    TRY_STATUS(add(fmt::format("input {}", i), input_forms_.back(), inputs_));
  }
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const Node& node = graph_.node(graph_.outputs()[i]);
    TensorForm& form = output_forms_.emplace_back();
    form.dtype = node.dtype;
    for (const Dim& dim : node.shape) {
      TRY(const int64_t size, dim.evaluate(symbols_));
      form.sizes.push_back(size);
    }
    TRY_STATUS(add(fmt::format("output {}", i), form, outputs_));
  }
  return {};
}

Status PreparedWorkload::evaluate(const Graph& graph, Precision precision,
                                  std::vector<PooledMemory>& results) const {
  std::vector<DevicePtr> inputs, outputs;
  for (const GuardedMemory& input : inputs_) inputs.push_back(input.data);
  std::vector<PooledMemory> made;
  for (const GuardedMemory& output : outputs_) {
    TRY(PooledMemory memory, device_->pool().allocate(output.bytes));
    outputs.push_back(memory.data());
    made.push_back(std::move(memory));
  }
  TRY_STATUS(device_->evaluate(graph, symbols_, precision, inputs, outputs));
  results = std::move(made);
  return {};
}

Result<bool> PreparedWorkload::survey_expected() {
  for (size_t i = 0; i < expected_.size(); ++i)
    TRY_STATUS(device_->survey(expected_[i].data(), output_forms_[i].dtype, output_count(i)));
  TRY(const std::vector<Tally> surveys, device_->take());
  scales_.clear();
  checksums_.clear();
  bool real = true;
  for (const Tally& survey : surveys) {
    const size_t index = scales_.size();
    if (!is_float(output_forms_[index].dtype))
      scales_.push_back(integer_scale(graph_, graph_.outputs()[index]));
    else
      scales_.push_back(
          survey.count == 0 ? 0 : std::sqrt(survey.sum / static_cast<double>(survey.count)));
    checksums_.push_back(survey.mix);
    real = real && survey.first == INT64_MAX;
  }
  return real;
}

int64_t PreparedWorkload::output_count(size_t index) const {
  return numel(output_forms_[index].sizes);
}

int64_t PreparedWorkload::byte_size() const {
  int64_t total = 0;
  for (const auto* buffers : {&inputs_, &outputs_})
    for (const GuardedMemory& buffer : *buffers) total += buffer.bytes;
  return total;
}

Status PreparedWorkload::draw_input(size_t index) const {
  return device_->draw(draws_[index], floats_, inputs_[index].data);
}

Status PreparedWorkload::check_input(size_t index) const {
  return device_->check_drawn(draws_[index], floats_, inputs_[index].data);
}

Status PreparedWorkload::compare_output(size_t index, bool leniently) {
  if (leniently && declared_.empty()) {
    TRY(const Graph graph, rounds_inside(graph_) ? rounded_elsewhere(graph_) : graph_);
    TRY_STATUS(evaluate(graph, Precision::kDeclared, declared_));
  }
  return device_->compare({outputs_[index].data, expected_[index].data(),
                           leniently ? declared_[index].data() : 0, output_forms_[index].dtype,
                           output_count(index), tolerance_.relative, scales_[index]});
}

std::optional<Difference> PreparedWorkload::difference(size_t index, const Tally& tally) const {
  const Difference found{tally.count, tally.first, static_cast<int64_t>(tally.sum)};
  if (found.is_excused(tolerance_, output_count(index))) return std::nullopt;
  return found;
}

Result<PreparedWorkload::Element> PreparedWorkload::describe_output(size_t index, int64_t at,
                                                                    uint8_t poison) const {
  const TensorForm& form = output_forms_[index];
  const auto offset = static_cast<DevicePtr>(at * size_of(form.dtype));
  Tensor got(form.dtype, {}), want(form.dtype, {});
  TRY_STATUS(device_->device().copy_to_host(got.bytes(), outputs_[index].data + offset));
  TRY_STATUS(device_->device().copy_to_host(want.bytes(), expected_[index].data() + offset));
  return Element{describe_element(form.sizes, at, got, want),
                 std::ranges::all_of(got.bytes(), [=](uint8_t b) { return b == poison; })};
}

Status PreparedWorkload::check_expected() const {
  for (size_t i = 0; i < expected_.size(); ++i)
    TRY_STATUS(device_->checksum(expected_[i].data(), output_forms_[i].dtype, output_count(i)));
  return {};
}

bool PreparedWorkload::is_intact(std::span<const Tally> tallies) const {
  return std::ranges::equal(tallies, checksums_, {}, &Tally::mix);
}

}  // namespace kiln::runner
