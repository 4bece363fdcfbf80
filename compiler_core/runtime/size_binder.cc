#include "compiler_core/runtime/size_binder.h"

#include <fmt/core.h>

#include <optional>

namespace kiln {

// Whether `size` is factor * symbol + offset.
bool SizeBinder::solves(const Dim& size, SymbolId symbol, Step& step) {
  if (size.is_constant() || size.symbols() != std::vector<SymbolId>{symbol}) return false;
  std::vector<int64_t> value(static_cast<size_t>(symbol) + 1, 0);
  const auto at_zero = size.evaluate(value);
  value.back() = 1;
  const auto at_one = size.evaluate(value);
  if (!at_zero || !at_one || __builtin_sub_overflow(*at_one, *at_zero, &step.factor)) return false;
  step.offset = *at_zero;
  return step.factor > 0 && size == Dim::symbol(symbol) * Dim(step.factor) + Dim(step.offset);
}

Result<SizeBinder> SizeBinder::make(std::span<const TensorSpec* const> inputs,
                                    std::span<const ProgramSymbol> symbols) {
  SizeBinder binder;
  binder.symbols_.assign(symbols.begin(), symbols.end());
  std::vector<std::optional<Step>> best(symbols.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    binder.ranks_.push_back(inputs[i] == nullptr ? -1 : static_cast<int>(inputs[i]->shape.size()));
    for (size_t axis = 0; binder.ranks_[i] > static_cast<int>(axis); ++axis)
      for (const SymbolId id : inputs[i]->shape[axis].symbols()) {
        Step step{i, axis};
        if (static_cast<size_t>(id) >= symbols.size())
          return fail(Code::kInvalidArgument,
                      fmt::format("symbol s{} of input {} is not declared", id, i));
        std::optional<Step>& slot = best[static_cast<size_t>(id)];
        // A size that is the symbol itself says best what is wrong with it.
        const bool better = !slot || (slot->factor != 1 || slot->offset != 0);
        if (!better || !solves(inputs[i]->shape[axis], id, step)) continue;
        if (!slot || (step.factor == 1 && step.offset == 0)) slot = step;
      }
  }
  for (size_t id = 0; id < best.size(); ++id) {
    if (!best[id])
      return fail(Code::kInvalidArgument,
                  fmt::format("size s{} cannot be told from the inputs: none of them has it", id));
    binder.steps_.push_back(*best[id]);
  }
  const auto is_step = [&binder](size_t input, size_t axis) {
    for (const Step& step : binder.steps_)
      if (step.input == input && step.axis == axis) return true;
    return false;
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t axis = 0; binder.ranks_[i] > static_cast<int>(axis); ++axis)
      if (!is_step(i, axis)) {
        CheckedSize check{i, axis, inputs[i]->shape[axis]};
        const std::vector<SymbolId> ids = check.size.symbols();
        if (ids.size() == 1 && check.size == Dim::symbol(ids[0])) check.symbol = ids[0];
        binder.checks_.push_back(std::move(check));
      }
  return binder;
}

Result<SizeBinder> SizeBinder::make(const Program& program) {
  std::vector<const TensorSpec*> inputs;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != Buffer::Kind::kInput) continue;
    const size_t index = static_cast<size_t>(buffer.index);
    if (inputs.size() <= index) inputs.resize(index + 1, nullptr);
    inputs[index] = &buffer.spec;
  }
  return make(inputs, program.symbols);
}

Status SizeBinder::check_ranks(std::span<const std::span<const int64_t>> sizes) const {
  if (sizes.size() < ranks_.size())
    return fail(Code::kInvalidArgument,
                fmt::format("the sizes of {} inputs, of {}", sizes.size(), ranks_.size()));
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i] >= 0 && sizes[i].size() != static_cast<size_t>(ranks_[i]))
      return fail(Code::kInvalidArgument, fmt::format("input {} has {} axes; the program takes {}",
                                                      i, sizes[i].size(), ranks_[i]));
  return {};
}

Status SizeBinder::bind_one(size_t symbol, int64_t size, int64_t& value) const {
  const Step& step = steps_[symbol];
  const ProgramSymbol& range = symbols_[symbol];
  int64_t rest = 0;
  const bool fits = !__builtin_sub_overflow(size, step.offset, &rest);
  value = fits ? rest / step.factor : 0;
  const auto refuse = [&](std::string why) {
    return fail(Code::kInvalidArgument, fmt::format("input {} has size {} along axis {}; {}",
                                                    step.input, size, step.axis, why));
  };
  if (!fits || rest % step.factor != 0)
    return refuse(step.offset == 0 ? fmt::format("the program takes multiples of {}", step.factor)
                                   : fmt::format("the program takes {} more than multiples of {}",
                                                 step.offset, step.factor));
  if (value >= range.min && value <= range.max) return {};
  const auto size_of_value = [&](int64_t symbol_value) {
    return (Dim(symbol_value) * Dim(step.factor) + Dim(step.offset)).to_string();
  };
  return refuse(range.max == INT64_MAX
                    ? fmt::format("the program takes {} or more", size_of_value(range.min))
                    : fmt::format("the program takes {} to {}", size_of_value(range.min),
                                  size_of_value(range.max)));
}

Error SizeBinder::mismatch(const CheckedSize& check, int64_t actual,
                           std::span<const int64_t> values) const {
  const std::string what =
      fmt::format("input {} has size {} along axis {}", check.input, actual, check.axis);
  const std::vector<SymbolId> ids = check.size.symbols();
  if (ids.empty())
    return {Code::kInvalidArgument,
            fmt::format("{}; the program takes {}", what, check.size.to_string()), 0};
  const Step& step = steps_[static_cast<size_t>(ids[0])];
  const auto expected = check.size.evaluate(values);
  return {Code::kInvalidArgument,
          fmt::format("{}, but by axis {} of input {} it would be {}", what, step.axis, step.input,
                      expected ? std::to_string(*expected) : "too large"),
          0};
}

Status SizeBinder::bind(std::span<const std::span<const int64_t>> sizes,
                        std::vector<int64_t>& symbols) const {
  TRY_STATUS(check_ranks(sizes));
  symbols.resize(steps_.size());
  for (size_t id = 0; id < steps_.size(); ++id)
    TRY_STATUS(bind_one(id, sizes[steps_[id].input][steps_[id].axis], symbols[id]));
  for (const CheckedSize& check : checks_) {
    const int64_t actual = sizes[check.input][check.axis];
    if (check.symbol >= 0 && symbols[static_cast<size_t>(check.symbol)] == actual) continue;
    const bool same = check.size.is_constant() ? check.size.constant() == actual : [&] {
      const auto expected = check.size.evaluate(symbols);
      return expected && *expected == actual;
    }();
    if (!same) return fail(mismatch(check, actual, symbols));
  }
  return {};
}

}  // namespace kiln
