#include "compiler_core/codegen/index.h"

#include <algorithm>

namespace kiln {
namespace {

int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

}  // namespace

Index::Index(const LoopVar& var) {
  add(var, 1);
}

void Index::add(const LoopVar& var, int64_t factor) {
  if (factor == 0) return;
  if (var.begin + 1 == var.end && var.kind == LoopVar::Kind::kScalar) {
    constant_ += var.begin * factor;  // it has one value only
    return;
  }
  const auto place = std::lower_bound(terms_.begin(), terms_.end(), var.name,
                                      [](const Term& t, const auto& n) { return t.var.name < n; });
  if (place == terms_.end() || place->var.name != var.name) {
    terms_.insert(place, {var, factor});
  } else if ((place->factor += factor) == 0) {
    terms_.erase(place);
  }
}

Index operator+(const Index& a, const Index& b) {
  Index sum = a;
  sum.constant_ += b.constant_;
  for (const auto& term : b.terms_) sum.add(term.var, term.factor);
  return sum;
}

Index operator*(const Index& a, int64_t factor) {
  Index product(a.constant_ * factor);
  for (const auto& term : a.terms_) product.add(term.var, term.factor * factor);
  return product;
}

int64_t Index::least() const {
  int64_t value = constant_;
  for (const Term& t : terms_) value += t.factor * (t.factor > 0 ? t.var.begin : t.var.end - 1);
  return value;
}

int64_t Index::greatest() const {
  int64_t value = constant_;
  for (const Term& t : terms_) value += t.factor * (t.factor > 0 ? t.var.end - 1 : t.var.begin);
  return value;
}

Level Index::level() const {
  Level level = Level::kKernel;
  for (const Term& t : terms_) level = std::max(level, t.var.level);
  return level;
}

int64_t Index::lane_stride() const {
  int64_t stride = 0;
  for (const Term& t : terms_)
    if (t.var.kind == LoopVar::Kind::kVector) stride += t.factor;
  return stride;
}

int64_t Index::alignment(int64_t most) const {
  const auto divides = [this](int64_t power) {
    return constant_ % power == 0 && std::all_of(terms_.begin(), terms_.end(), [&](const Term& t) {
             return t.factor % power * (t.var.multiple % power) % power == 0;
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

std::optional<std::pair<Index, Index>> Index::divide(int64_t divisor) const {
  Index quotient, remainder(constant_);
  for (const Term& t : terms_) {
    if (t.factor % divisor == 0)
      quotient.add(t.var, t.factor / divisor);
    else
      remainder.add(t.var, t.factor);
  }
  const int64_t whole = floor_divide(remainder.least(), divisor);
  quotient.constant_ += whole;
  remainder.constant_ -= whole * divisor;
  if (remainder.greatest() >= divisor) return std::nullopt;
  return std::pair(quotient, remainder);
}

std::optional<int64_t> Index::past_vector_variable() const {
  if (terms_.size() != 1 || terms_[0].factor != 1) return std::nullopt;
  if (terms_[0].var.kind != LoopVar::Kind::kVector) return std::nullopt;
  return constant_;
}

std::string Index::text() const {
  std::string text;
  for (const Term& t : terms_) {
    if (t.var.kind == LoopVar::Kind::kLanes) continue;
    if (!text.empty()) text += " + ";
    text += t.var.name;
    if (t.factor != 1) text += " * " + std::to_string(t.factor);
  }
  if (text.empty()) return std::to_string(constant_);
  if (constant_ > 0) text += " + " + std::to_string(constant_);
  if (constant_ < 0) text += " - " + std::to_string(-constant_);
  return text;
}

std::string Index::lanes_text() const {
  std::string text = "splat<vindex>(" + this->text() + ")";
  if (const int64_t stride = lane_stride(); stride != 0)
    text += " + lane_numbers() * " + std::to_string(stride);
  for (const Term& t : terms_)
    if (t.var.kind == LoopVar::Kind::kLanes)
      text += " + " + t.var.name + " * " + std::to_string(t.factor);
  return text;
}

}  // namespace kiln
