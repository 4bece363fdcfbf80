#include "compiler_core/base/dim.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "compiler_core/base/check.h"

namespace kiln {

Dim Dim::symbol(SymbolId id) {
  CHECK(id >= 0, "symbols are indices");
  return from_terms({Term{{id}, 1}}, true);
}

int64_t Dim::constant() const {
  CHECK(is_constant(), "the caller asked is_constant()");
  return constant_;
}

Dim::Terms Dim::terms() const {
  if (terms_) return *terms_;
  if (constant_ == 0) return {};
  return {Term{{}, constant_}};
}

Dim Dim::from_terms(Terms terms, bool valid) {
  Dim dim;
  dim.valid_ = valid;
  std::erase_if(terms, [](const Term& t) { return t.coefficient == 0; });
  if (terms.empty()) return dim;
  if (terms.size() == 1 && terms[0].factors.empty()) {
    dim.constant_ = terms[0].coefficient;
    return dim;
  }
  dim.terms_ = std::make_shared<const Terms>(std::move(terms));
  return dim;
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim result;
  if (a.is_constant() && b.is_constant()) {
    result.valid_ = a.valid_ && b.valid_ &&
                    !__builtin_add_overflow(a.constant_, b.constant_, &result.constant_);
    return result;
  }
  bool valid = a.valid_ && b.valid_;
  std::map<std::vector<SymbolId>, int64_t> sum;
  for (const Dim* dim : {&a, &b})
    for (const Dim::Term& term : dim->terms()) {
      int64_t& slot = sum[term.factors];
      valid &= !__builtin_add_overflow(slot, term.coefficient, &slot);
    }
  Dim::Terms terms;
  for (auto& [factors, coefficient] : sum) terms.push_back({factors, coefficient});
  return Dim::from_terms(std::move(terms), valid);
}

Dim operator-(const Dim& a, const Dim& b) {
  return a + b * Dim(-1);
}

Dim operator*(const Dim& a, const Dim& b) {
  Dim result;
  if (a.is_constant() && b.is_constant()) {
    result.valid_ = a.valid_ && b.valid_ &&
                    !__builtin_mul_overflow(a.constant_, b.constant_, &result.constant_);
    return result;
  }
  bool valid = a.valid_ && b.valid_;
  std::map<std::vector<SymbolId>, int64_t> sum;
  for (const Dim::Term& x : a.terms())
    for (const Dim::Term& y : b.terms()) {
      std::vector<SymbolId> factors;
      std::merge(x.factors.begin(), x.factors.end(), y.factors.begin(), y.factors.end(),
                 std::back_inserter(factors));
      int64_t product = 0;
      valid &= !__builtin_mul_overflow(x.coefficient, y.coefficient, &product);
      int64_t& slot = sum[factors];
      valid &= !__builtin_add_overflow(slot, product, &slot);
    }
  Dim::Terms terms;
  for (auto& [factors, coefficient] : sum) terms.push_back({factors, coefficient});
  return Dim::from_terms(std::move(terms), valid);
}

Result<Dim> Dim::divide_exact(const Dim& a, const Dim& b) {
  const auto inexact = [&] {
    return fail(Code::kUnsupported, a.to_string() + " is not a multiple of " + b.to_string());
  };
  const Terms divisor = b.terms();
  if (divisor.size() != 1) return a == b ? Result<Dim>(Dim(1)) : inexact();
  Terms quotient;
  for (const Term& term : a.terms()) {
    if (term.coefficient % divisor[0].coefficient != 0) return inexact();
    std::vector<SymbolId> factors;
    std::set_difference(term.factors.begin(), term.factors.end(), divisor[0].factors.begin(),
                        divisor[0].factors.end(), std::back_inserter(factors));
    if (factors.size() + divisor[0].factors.size() != term.factors.size()) return inexact();
    quotient.push_back({std::move(factors), term.coefficient / divisor[0].coefficient});
  }
  std::sort(quotient.begin(), quotient.end());
  return from_terms(std::move(quotient), a.valid_ && b.valid_);
}

bool Dim::operator==(const Dim& other) const {
  if (valid_ != other.valid_) return false;
  if (terms_ && other.terms_) return *terms_ == *other.terms_;
  return !terms_ && !other.terms_ && constant_ == other.constant_;
}

std::strong_ordering Dim::operator<=>(const Dim& other) const {
  if (!terms_ && !other.terms_) return constant_ <=> other.constant_;
  if (!terms_ || !other.terms_)
    return !terms_ ? std::strong_ordering::less : std::strong_ordering::greater;
  return *terms_ <=> *other.terms_;
}

Result<int64_t> Dim::evaluate(std::span<const int64_t> symbols) const {
  if (!valid_) return fail(Code::kInvalidArgument, "a size overflows");
  if (!terms_) return constant_;
  int64_t total = 0;
  for (const Term& term : *terms_) {
    int64_t product = term.coefficient;
    for (SymbolId id : term.factors) {
      if (static_cast<size_t>(id) >= symbols.size())
        return fail(Code::kInvalidArgument, "symbol s" + std::to_string(id) + " is not bound");
      if (__builtin_mul_overflow(product, symbols[id], &product))
        return fail(Code::kInvalidArgument, "a size overflows");
    }
    if (__builtin_add_overflow(total, product, &total))
      return fail(Code::kInvalidArgument, "a size overflows");
  }
  return total;
}

int64_t Dim::lower_bound(const std::function<SymbolRange(SymbolId)>& range_of) const {
  const auto by_terms = [](const Dim& size, const auto& range_of_symbol) -> int64_t {
    if (!size.terms_) return size.constant_;
    int64_t total = 0;
    for (const Term& term : *size.terms_) {
      // A positive term is least at the least sizes, a negative one at the greatest.
      int64_t product = term.coefficient;
      for (SymbolId id : term.factors) {
        const SymbolRange range = range_of_symbol(id);
        if (__builtin_mul_overflow(product, term.coefficient > 0 ? range.min : range.max, &product))
          return INT64_MIN;
      }
      if (__builtin_add_overflow(total, product, &total)) return INT64_MIN;
    }
    return total;
  };
  const int64_t bound = by_terms(*this, range_of);
  if (bound >= 0) return bound;
  // Counted from each symbol's least value on, (s0 - 1) * (s1 - 1) has no negative terms.
  std::vector<Dim> counted;
  for (const SymbolId id : symbols()) {
    while (counted.size() < static_cast<size_t>(id))
      counted.push_back(symbol(static_cast<SymbolId>(counted.size())));
    counted.push_back(symbol(id) + Dim(range_of(id).min));
  }
  const Dim shifted = substitute(counted);
  if (!shifted.is_valid()) return bound;
  return std::max(bound, by_terms(shifted, [&](SymbolId id) {
                    const SymbolRange range = range_of(id);
                    return SymbolRange{0, range.max - range.min};
                  }));
}

Dim Dim::substitute(std::span<const Dim> replacements) const {
  if (!terms_) return *this;
  Dim total = 0;
  for (const Term& term : *terms_) {
    Dim product = term.coefficient;
    for (SymbolId id : term.factors)
      product =
          product * (static_cast<size_t>(id) < replacements.size() ? replacements[id] : symbol(id));
    total = total + product;
  }
  total.valid_ &= valid_;
  return total;
}

std::vector<SymbolId> Dim::symbols() const {
  std::vector<SymbolId> ids;
  if (terms_)
    for (const Term& term : *terms_)
      ids.insert(ids.end(), term.factors.begin(), term.factors.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string Dim::to_string() const {
  if (!valid_) return "overflow";
  if (!terms_) return std::to_string(constant_);
  std::string text;
  // The constant term sorts first; people expect it last.
  const auto print = [&text](const Term& term) {
    if (!text.empty())
      text += term.coefficient < 0 ? " - " : " + ";
    else if (term.coefficient < 0)
      text += "-";
    const uint64_t magnitude = term.coefficient < 0 ? -static_cast<uint64_t>(term.coefficient)
                                                    : static_cast<uint64_t>(term.coefficient);
    std::string product;
    if (magnitude != 1 || term.factors.empty()) product = std::to_string(magnitude);
    for (SymbolId id : term.factors) {
      if (!product.empty()) product += "*";
      product += "s" + std::to_string(id);
    }
    text += product;
  };
  for (const Term& term : *terms_)
    if (!term.factors.empty()) print(term);
  for (const Term& term : *terms_)
    if (term.factors.empty()) print(term);
  return text;
}

Result<Dim> Dim::parse(std::string_view text) {
  const auto bad = [&] {
    return fail(Code::kInvalidArgument, "'" + std::string(text.substr(0, 64)) + "' is not a size");
  };
  if (text.size() > 4096) return bad();
  size_t at = 0;
  const auto skip_spaces = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  Dim total = 0;
  bool first = true;
  for (;;) {
    skip_spaces();
    int64_t sign = 1;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) {
      if (text[at] == '+' && first) return bad();
      sign = text[at++] == '-' ? -1 : 1;
      skip_spaces();
    } else if (!first) {
      return bad();
    }
    first = false;
    Dim product = sign;
    for (;;) {
      const bool is_symbol = at < text.size() && text[at] == 's';
      if (is_symbol) ++at;
      if (at >= text.size() || std::isdigit(static_cast<unsigned char>(text[at])) == 0)
        return bad();
      uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (error != std::errc()) return bad();
      at = static_cast<size_t>(end - text.data());
      if (is_symbol) {
        if (value > 1'000'000) return bad();
        product = product * symbol(static_cast<SymbolId>(value));
      } else if (sign < 0 && product.is(-1) && value == uint64_t{1} << 63) {
        product = INT64_MIN;
      } else {
        if (value > static_cast<uint64_t>(INT64_MAX)) return bad();
        product = product * Dim(static_cast<int64_t>(value));
      }
      if (at >= text.size() || text[at] != '*') break;
      ++at;
    }
    total = total + product;
    skip_spaces();
    if (at == text.size()) break;
  }
  if (!total.is_valid()) return bad();
  return total;
}

}  // namespace kiln
