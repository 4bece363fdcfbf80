#include "compiler_core/kernels/printing/index.h"

#include <algorithm>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// How often `divisor` goes into `size`, rounded down, where that can be known.
std::optional<Dim> floor_divide(const Dim& size, const Dim& divisor) {
  if (!size.is_valid()) return std::nullopt;
  if (size.is_constant() && divisor.is_constant()) {
    const int64_t a = size.constant(), b = divisor.constant();
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
  if (const auto exact = Dim::divide_exact(size, divisor)) return *exact;
  if (is_at_least(size, 0) && is_less(size, divisor)) return Dim(0);
  return std::nullopt;
}

// Bounds of no use to anybody.
Dim unknown() {
  return Dim(INT64_MAX) * Dim(INT64_MAX);
}

}  // namespace

Index::Index(const LoopVar& var) {
  add(var, 1);
}

void Index::add(const LoopVar& var, const Dim& factor) {
  if (factor.is(0)) return;
  if (var.begin + 1 == var.end && var.kind == LoopVar::Kind::kScalar) {
    constant_ = constant_ + var.begin * factor;  // it has one value only
    return;
  }
  const auto place = std::lower_bound(terms_.begin(), terms_.end(), var.name,
                                      [](const Term& t, const auto& n) { return t.var.name < n; });
  if (place == terms_.end() || place->var.name != var.name) {
    terms_.insert(place, {var, factor});
  } else if ((place->factor = place->factor + factor).is(0)) {
    terms_.erase(place);
  }
}

Index operator+(const Index& a, const Index& b) {
  Index sum = a;
  sum.constant_ = sum.constant_ + b.constant_;
  for (const auto& term : b.terms_) sum.add(term.var, term.factor);
  return sum;
}

Index operator*(const Index& a, const Dim& factor) {
  Index product(a.constant_ * factor);
  for (const auto& term : a.terms_) product.add(term.var, term.factor * factor);
  return product;
}

Dim Index::bound(bool greatest) const {
  Dim value = constant_;
  for (const Term& t : terms_) {
    const bool rises = is_at_least(t.factor, 0);
    if (!rises && !is_at_least(0, t.factor)) return unknown();
    value = value + t.factor * (rises == greatest ? t.var.end - 1 : t.var.begin);
  }
  return value;
}
Dim Index::least() const {
  return bound(false);
}
Dim Index::greatest() const {
  return bound(true);
}

Level Index::level() const {
  Level level = Level::kKernel;
  for (const Term& t : terms_) level = std::max(level, t.var.level);
  return level;
}

Dim Index::lane_stride() const {
  Dim stride = 0;
  for (const Term& t : terms_)
    if (t.var.kind == LoopVar::Kind::kVector) stride = stride + t.factor;
  return stride;
}

int64_t Index::alignment(int64_t most) const {
  const auto divides = [this](int64_t power) {
    return is_multiple(constant_, power) &&
           std::all_of(terms_.begin(), terms_.end(), [&](const Term& t) {
             return is_multiple(t.factor * (t.var.multiple % power), power);
           });
  };
  int64_t power = 1;
  while (power < most && divides(power * 2)) power *= 2;
  return power;
}

bool Index::has_lanes() const {
  return std::any_of(terms_.begin(), terms_.end(),
                     [](const Term& t) { return t.var.kind == LoopVar::Kind::kLanes; });
}

std::optional<std::pair<Index, Index>> Index::take_multiples(const Dim& divisor) const {
  Index quotient, remainder(constant_);
  for (const Term& t : terms_) {
    if (const auto exact = Dim::divide_exact(t.factor, divisor))
      quotient.add(t.var, *exact);
    else
      remainder.add(t.var, t.factor);
  }
  const std::optional<Dim> whole = floor_divide(remainder.least(), divisor);
  if (!whole) return std::nullopt;
  quotient.constant_ = quotient.constant_ + *whole;
  remainder.constant_ = remainder.constant_ - *whole * divisor;
  return std::pair(quotient, remainder);
}

std::optional<std::pair<Index, Index>> Index::divide(const Dim& divisor) const {
  const auto parts = take_multiples(divisor);
  return parts && is_less(parts->second.greatest(), divisor) ? parts : std::nullopt;
}

std::optional<int64_t> Index::past_vector_variable() const {
  if (terms_.size() != 1 || !terms_[0].factor.is(1)) return std::nullopt;
  if (terms_[0].var.kind != LoopVar::Kind::kVector) return std::nullopt;
  if (!constant_.is_constant()) return std::nullopt;
  return constant_.constant();
}

std::string Index::text() const {
  std::string text;
  for (const Term& t : terms_) {
    if (t.var.kind == LoopVar::Kind::kLanes) continue;
    if (!text.empty()) text += " + ";
    text += t.var.name;
    if (!t.factor.is(1)) text += " * " + size_text(t.factor);
  }
  if (text.empty()) return size_text(constant_);
  if (constant_.is(0)) return text;
  const bool below = constant_.is_constant() && constant_.constant() < 0;
  return text + (below ? " - " : " + ") + size_text(below ? constant_ * -1 : constant_);
}

std::string Index::lanes_text() const {
  std::string text = "splat<vindex>(" + this->text() + ")";
  if (const Dim stride = lane_stride(); !stride.is(0))
    text += " + lane_numbers() * " + size_text(stride);
  for (const Term& t : terms_)
    if (t.var.kind == LoopVar::Kind::kLanes)
      text += " + " + t.var.name + " * " + size_text(t.factor);
  return text;
}

}  // namespace kiln
