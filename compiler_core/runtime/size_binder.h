// SizeBinder: from the sizes of a call's inputs to the values of symbols. What it has to do is laid
// out once, so that a call costs a few comparisons. Immutable; shared by threads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler_core/program/program.h"

namespace kiln {

class SizeBinder {
 public:
  // `inputs[i]`: what input i takes; null where nothing is known or asked of it. kInvalidArgument
  // when a symbol is no size of any input, so that nothing says what it is.
  static Result<SizeBinder> make(std::span<const TensorSpec* const> inputs,
                                 std::span<const ProgramSymbol> symbols);
  // As above for the program's own inputs.
  static Result<SizeBinder> make(const Program& program);

  // Sets `symbols` to what the inputs' sizes say. Allocates nothing when it succeeds and `symbols`
  // has the room. kInvalidArgument names the input and axis: a size outside its range, one that no
  // symbol value gives (not a multiple), two inputs that disagree, a wrong rank or fixed size.
  Status bind(std::span<const std::span<const int64_t>> sizes, std::vector<int64_t>& symbols) const;

  std::span<const ProgramSymbol> symbols() const { return symbols_; }

 private:
  // Axis `axis` of input `input` is factor * symbol + offset.
  struct Step {
    size_t input = 0, axis = 0;
    int64_t factor = 1, offset = 0;
  };
  struct CheckedSize {
    size_t input = 0, axis = 0;
    Dim size;
    int symbol = -1;  // where the size is a symbol as it is, its number: no need to evaluate
  };
  static bool solves(const Dim& size, SymbolId symbol, Step& step);
  Status check_ranks(std::span<const std::span<const int64_t>> sizes) const;
  Status bind_one(size_t symbol, int64_t size, int64_t& value) const;
  Error mismatch(const CheckedSize& check, int64_t actual, std::span<const int64_t> values) const;

  std::vector<ProgramSymbol> symbols_;
  std::vector<Step> steps_;          // by symbol
  std::vector<CheckedSize> checks_;  // sizes that are no step
  std::vector<int> ranks_;           // by input; -1: not asked
};

}  // namespace kiln
