// Dim: one size or stride of a tensor: an integer, or a polynomial with integer coefficients over
// symbols (a batch size that is known only at run time). Kept in canonical form, so that equal
// expressions are equal values. Immutable; copies share.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

using SymbolId = int32_t;  // an index into the graph's table of symbols

struct SymbolRange {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  bool operator==(const SymbolRange&) const = default;
};

class Dim {
 public:
  Dim() = default;
  Dim(int64_t value) : constant_(value) {}  // NOLINT: a number is a Dim
  static Dim symbol(SymbolId id);

  bool is_constant() const { return terms_ == nullptr; }
  // REQUIRES: is_constant().
  int64_t constant() const;
  bool is(int64_t value) const { return is_constant() && constant_ == value; }

  // Sums and products; overflow of a coefficient saturates to an invalid Dim (is_valid() false),
  // which every verifier refuses.
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  bool is_valid() const { return valid_; }
  // a / b when b divides every coefficient and monomial of a exactly.
  static Result<Dim> divide_exact(const Dim& a, const Dim& b);

  bool operator==(const Dim& other) const;
  // A total order for canonical forms: constants first, by value.
  std::strong_ordering operator<=>(const Dim& other) const;

  // The value for given symbols. kInvalidArgument when a symbol is unbound or it overflows.
  Result<int64_t> evaluate(std::span<const int64_t> symbols) const;
  // A lower bound given each symbol's range (interval arithmetic term by term); INT64_MIN when it
  // does not fit. REQUIRES: ranges are not negative.
  int64_t lower_bound(const std::function<SymbolRange(SymbolId)>& range_of) const;
  // The same expression with symbol i replaced by `replacements[i]`.
  Dim substitute(std::span<const Dim> replacements) const;
  // Symbols that occur, ascending.
  std::vector<SymbolId> symbols() const;

  // "64", "s0", "2*s0*s1 + 4*s2 + 1"; parse reads what to_string prints.
  std::string to_string() const;
  static Result<Dim> parse(std::string_view text);

 private:
  struct Term {
    std::vector<SymbolId> factors;  // ascending, with repetition; empty for the constant term
    int64_t coefficient;
    auto operator<=>(const Term&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  using Terms = std::vector<Term>;  // ascending by factors, no zero coefficient
  static Dim from_terms(Terms terms, bool valid);
  Terms terms() const;

  int64_t constant_ = 0;                // the value when terms_ is null
  std::shared_ptr<const Terms> terms_;  // at least one term with factors, or null
  bool valid_ = true;
};

}  // namespace kiln
