#include "compiler_core/kernels/printing/size.h"

namespace kiln {

std::string size_text(const Dim& size) {
  std::string text = size.to_string();
  if (text.find_first_of(" *") == std::string::npos) return text;
  for (size_t at = 0; (at = text.find('*', at)) != std::string::npos; at += 3)
    text.replace(at, 1, " * ");
  return "(" + text + ")";
}

std::string long_text(const Dim& size) {
  return size_text(size) + (size.is_constant() ? "L" : "");
}

std::string ceil_text(const Dim& size, int64_t step) {
  if (const auto quotient = ceil_divide(size, step)) return size_text(*quotient);
  return fmt::format("(({} + {}) / {})", size, step - 1, step);
}

Result<Dim> ceil_divide(const Dim& size, int64_t step) {
  if (size.is_constant()) return Dim((size.constant() + step - 1) / step);
  return Dim::divide_exact(size, step);
}

Dim round_up(const Dim& size, int64_t step) {
  if (const auto quotient = ceil_divide(size, step)) return *quotient * step;
  return size + (step - 1);
}

bool is_at_least(const Dim& a, const Dim& b) {
  if (!a.is_valid() || !b.is_valid()) return false;
  const Dim difference = a - b;
  return difference.is_valid() &&
         difference.lower_bound([](SymbolId) { return SymbolRange{}; }) >= 0;
}

bool is_less(const Dim& a, const Dim& b) {
  return is_at_least(b, a + 1);
}

bool is_multiple(const Dim& size, int64_t of) {
  if (size.is_constant()) return size.constant() % of == 0;
  return Dim::divide_exact(size, of).has_value();
}

int64_t known_divisor(const Dim& size, int64_t most) {
  while (most > 1 && !is_multiple(size, most)) most /= 2;
  return most;
}

}  // namespace kiln
