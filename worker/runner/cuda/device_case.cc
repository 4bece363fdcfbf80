#include "worker/runner/cuda/device_case.h"

#include <algorithm>
#include <cmath>

#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/text.h"
#include "worker/runner/cuda/device_reference.h"
#include "worker/runner/tolerance.h"

namespace kiln::runner {
namespace {

constexpr int64_t kGuard = int64_t{64} << 10;  // at least, on each side
constexpr int64_t kMaxGuard = int64_t{4} << 20;
// Larger workloads have enough to hold at few sizes.
constexpr int64_t kMostBytesOfOthers = int64_t{64} << 20;
constexpr size_t kMaxBuffers = UtilityKernels::kMaxTallies / 4;

Result<std::vector<int64_t>> evaluate_shape(const Shape& shape, std::span<const int64_t> symbols) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) {
    TRY(const int64_t size, dim.evaluate(symbols));
    sizes.push_back(size);
  }
  return sizes;
}

int64_t numel(const TensorForm& form) {
  int64_t product = 1;
  for (const int64_t size : form.sizes) product *= size;
  return product;
}

double scale_of(const Tally& survey) {
  return survey.count == 0 ? 0 : std::sqrt(survey.sum / static_cast<double>(survey.count));
}

}  // namespace

Result<LentMemory> LentMemory::allocate(UtilityKernels& utility, std::string name, int64_t bytes) {
  LentMemory lent;
  TRY(lent.memory_, utility.pool().allocate(bytes + 2 * kGuard));
  lent.name_ = std::move(name);
  lent.bytes_ = bytes;
  TRY_STATUS(lent.repair(utility));
  return lent;
}

DevicePtr LentMemory::data() const {
  return memory_.data() + static_cast<DevicePtr>(kGuard);
}

// What is left of the block, but a block of the pool may be far larger than what was asked for.
int64_t LentMemory::guard_behind() const {
  return std::min(memory_.bytes() - kGuard - bytes_, kMaxGuard);
}

Status LentMemory::repair(UtilityKernels& utility) const {
  return utility.launch("kiln_guard", kGuard + guard_behind(),
                        {parameter(data()), bytes_, kGuard, guard_behind()});
}

Status LentMemory::check(UtilityKernels& utility) const {
  return utility.tally("kiln_check_guard", kGuard + guard_behind(),
                       {parameter(data()), bytes_, kGuard, guard_behind()});
}

std::optional<int64_t> LentMemory::damage(const Tally& tally) const {
  if (tally.count == 0) return std::nullopt;
  return tally.first < kGuard ? -1 - tally.first : bytes_ + tally.first - kGuard;
}

Result<DeviceCase> DeviceCase::make(UtilityKernels& utility, std::string_view graph_text,
                                    uint64_t seed) {
  TRY(const Graph parsed, parse_graph(graph_text));
  TRY(const Graph graph, inline_custom_calls(parsed));  // a custom call is checked by its reference
  TRY(DeviceCase made, make_at(utility, graph, measured_symbols(graph), seed));
  for (std::vector<int64_t>& symbols :
       other_symbols(graph, made.byte_size() <= kMostBytesOfOthers)) {
    // Some sizes of the ranges may not go together, or not fit: what they left is not read.
    if (auto other = make_at(utility, graph, std::move(symbols), seed))
      made.others_.push_back(*std::move(other));
    else
      TRY_STATUS(utility.take().map([](const std::vector<Tally>&) {}));
  }
  return made;
}

Result<DeviceCase> DeviceCase::make_at(UtilityKernels& utility, const Graph& graph,
                                       std::vector<int64_t> symbols, uint64_t seed) {
  DeviceCase made(utility);
  made.graph_ = graph;
  made.symbols_ = std::move(symbols);
  made.tolerance_ = tolerance_of(made.graph_, made.symbols_);
  TRY(made.draws_, input_draws(made.graph_, made.symbols_, seed));
  TRY_STATUS(made.lend());
  // A result that is mostly NaN would check nothing: positive inputs keep roots and logs real.
  for (const Floats floats : ways_to_draw(made.graph_)) {
    made.floats_ = floats;
    for (size_t i = 0; i < made.inputs_.size(); ++i)
      TRY_STATUS(made.draw_input(i, made.inputs_[i].data()));
    TRY_STATUS(made.evaluate(made.graph_, Precision::kHigh, made.expected_));
    TRY(const bool real, made.survey_expected());
    if (real) break;
  }
  return made;
}

Status DeviceCase::lend() {
  if (draws_.size() + graph_.outputs().size() > kMaxBuffers)
    return fail(Code::kUnavailable, "the workload has more inputs and outputs than a runner holds");
  for (size_t i = 0; i < draws_.size(); ++i) {
    input_forms_.push_back({draws_[i].dtype, draws_[i].sizes});
    TRY(const int64_t bytes, checked_bytes(draws_[i].dtype, draws_[i].sizes));
    TRY(LentMemory lent, LentMemory::allocate(*utility_, "input " + std::to_string(i), bytes));
    inputs_.push_back(std::move(lent));
  }
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const Node& node = graph_.node(graph_.outputs()[i]);
    TRY(std::vector<int64_t> sizes, evaluate_shape(node.shape, symbols_));
    TRY(const int64_t bytes, checked_bytes(node.dtype, sizes));
    output_forms_.push_back({node.dtype, std::move(sizes)});
    TRY(LentMemory lent, LentMemory::allocate(*utility_, "output " + std::to_string(i), bytes));
    outputs_.push_back(std::move(lent));
  }
  return {};
}

Status DeviceCase::evaluate(const Graph& graph, Precision precision,
                            std::vector<PooledMemory>& results) const {
  std::vector<DevicePtr> inputs, outputs;
  for (const LentMemory& input : inputs_) inputs.push_back(input.data());
  std::vector<PooledMemory> made;
  for (const LentMemory& output : outputs_) {
    TRY(PooledMemory memory, utility_->pool().allocate(output.bytes()));
    outputs.push_back(memory.data());
    made.push_back(std::move(memory));
  }
  TRY_STATUS(evaluate_on_device(*utility_, graph, symbols_, precision, inputs, outputs));
  results = std::move(made);
  return {};
}

Result<bool> DeviceCase::survey_expected() {
  TRY_STATUS(check_expected());
  TRY(surveys_, utility_->take());
  return std::ranges::all_of(surveys_,
                             [](const Tally& survey) { return survey.first == INT64_MAX; });
}

int64_t DeviceCase::byte_size() const {
  int64_t total = 0;
  for (const auto* lents : {&inputs_, &outputs_})
    for (const LentMemory& lent : *lents) total += lent.bytes();
  return total;
}

Status DeviceCase::draw_input(size_t index, DevicePtr memory) const {
  const InputDraw& draw = draws_[index];
  const int64_t count = numel(input_forms_[index]);
  return utility_->launch(
      "kiln_random", count,
      {parameter(memory), count, static_cast<int64_t>(draw.dtype), static_cast<int64_t>(draw.seed),
       static_cast<int64_t>(floats_), draw.min, draw.max - draw.min + 1});
}

Status DeviceCase::check_input(size_t index) const {
  const InputDraw& draw = draws_[index];
  const int64_t count = numel(input_forms_[index]);
  return utility_->tally("kiln_check_random", count,
                         {parameter(inputs_[index].data()), count, static_cast<int64_t>(draw.dtype),
                          static_cast<int64_t>(draw.seed), static_cast<int64_t>(floats_), draw.min,
                          draw.max - draw.min + 1});
}

Status DeviceCase::compare_output(size_t index, bool leniently) {
  if (leniently && declared_.empty()) {
    TRY(const Graph graph, rounds_inside(graph_) ? rounded_elsewhere(graph_) : graph_);
    TRY_STATUS(evaluate(graph, Precision::kDeclared, declared_));
  }
  const int64_t count = numel(output_forms_[index]);
  return utility_->tally("kiln_compare", count,
                         {parameter(outputs_[index].data()), parameter(expected_[index].data()),
                          leniently ? parameter(declared_[index].data()) : 0, count,
                          static_cast<int64_t>(output_forms_[index].dtype),
                          parameter(tolerance_.relative), parameter(scale_of(surveys_[index]))});
}

std::optional<Difference> DeviceCase::difference(size_t index, const Tally& tally) const {
  const int64_t excused = tolerance_.has_steps ? numel(output_forms_[index]) / 65536 : 0;
  if (tally.count <= excused) return std::nullopt;
  return Difference{tally.count, tally.first};
}

Result<DeviceCase::Element> DeviceCase::describe_output(size_t index, int64_t at,
                                                        uint8_t poison) const {
  const TensorForm& form = output_forms_[index];
  const auto offset = static_cast<DevicePtr>(at * size_of(form.dtype));
  Tensor got(form.dtype, {}), want(form.dtype, {});
  TRY_STATUS(utility_->device()->copy_to_host(got.bytes(), outputs_[index].data() + offset));
  TRY_STATUS(utility_->device()->copy_to_host(want.bytes(), expected_[index].data() + offset));
  return Element{describe_element(form.sizes, at, got, want),
                 std::ranges::all_of(got.bytes(), [=](uint8_t b) { return b == poison; })};
}

Status DeviceCase::check_expected() const {
  for (size_t i = 0; i < expected_.size(); ++i) {
    const int64_t count = numel(output_forms_[i]);
    TRY_STATUS(utility_->tally(
        "kiln_survey", count,
        {parameter(expected_[i].data()), count, static_cast<int64_t>(output_forms_[i].dtype)}));
  }
  return {};
}

bool DeviceCase::is_intact(std::span<const Tally> tallies) const {
  return std::ranges::equal(tallies, surveys_, {}, &Tally::mix, &Tally::mix);
}

}  // namespace kiln::runner
