#include "compiler_core/frontend/exported_model.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace kiln {
namespace {

constexpr size_t kMaxLength = 4096;
constexpr int kMaxDepth = 32;
// Bounds on what multiplies out, so that a short text cannot make a huge polynomial.
constexpr int64_t kMaxDegree = 4;
constexpr int kMaxSymbols = 16;

struct Polynomial {
  Dim dim;
  int64_t degree = 0;
};

// Recursive descent over srepr: Name(argument, ...), where an argument is again such a call, a
// quoted string, an integer, or keyword=value (sympy's assumptions, which are skipped).
class Parser {
 public:
  Parser(std::string_view text, const std::function<Result<Dim>(std::string_view)>& resolve)
      : text_(text), resolve_(resolve) {}

  Result<Dim> parse() {
    if (text_.size() > kMaxLength) return malformed("is too long");
    TRY(const Polynomial result, expression(0));
    skip_spaces();
    if (at_ != text_.size()) return malformed("has something behind its end");
    if (!result.dim.is_valid()) return malformed("overflows");
    return result.dim;
  }

 private:
  std::string quoted() const { return "symbolic size '" + std::string(text_.substr(0, 120)) + "'"; }
  tl::unexpected<Error> malformed(std::string_view why) const {
    return fail(Code::kInvalidArgument, quoted() + " " + std::string(why));
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Result<int64_t> integer() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return malformed("has a bad integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<Polynomial> symbol() {
    if (++symbols_ > kMaxSymbols) return malformed("has too many symbols");
    if (!take('\'')) return malformed("has a symbol without a name");
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) return malformed("ends inside a name");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    while (take(',')) {
      word();
      if (!take('=') || word().empty()) return malformed("has a bad assumption");
    }
    TRY(Dim dim, resolve_(name));
    return Polynomial{std::move(dim), 1};
  }

  Result<std::vector<Polynomial>> arguments(int depth) {
    std::vector<Polynomial> values;
    do {
      TRY(Polynomial value, expression(depth + 1));
      values.push_back(std::move(value));
    } while (take(','));
    return values;
  }

  Result<Polynomial> expression(int depth) {
    if (depth > kMaxDepth) return malformed("is nested too deeply");
    const std::string_view name = word();
    if (!take('(')) return malformed("is not a call");
    TRY(Polynomial value, call(name, depth));
    if (!take(')')) return malformed("lacks a parenthesis");
    return value;
  }

  Result<Polynomial> call(std::string_view name, int depth) {
    if (name == "Symbol") return symbol();
    if (name == "Integer") {
      TRY(const int64_t value, integer());
      return Polynomial{value, 0};
    }
    if (name == "FloorDiv" || name == "CleanDiv" || name == "Mod" || name == "PythonMod")
      return quotient(name, depth);
    if (name != "Add" && name != "Mul" && name != "Pow")
      return fail(Code::kUnsupported,
                  quoted() + " uses " + std::string(name.substr(0, 32)) +
                      "; only sums and products of symbols are covered: make the size a constant, "
                      "or mark the dimension static in torch.export");
    TRY(std::vector<Polynomial> values, arguments(depth));
    if (name == "Add") {
      Polynomial sum{0, 0};
      for (const Polynomial& value : values)
        sum = {sum.dim + value.dim, std::max(sum.degree, value.degree)};
      return sum;
    }
    if (name == "Pow") {
      if (values.size() != 2 || !values[1].dim.is_constant() || values[1].dim.constant() < 0 ||
          values[1].dim.constant() > kMaxDegree)
        return malformed("has a power that is not a small constant");
      values.assign(static_cast<size_t>(values[1].dim.constant()), values[0]);
    }
    Polynomial product{1, 0};
    for (const Polynomial& value : values) {
      if (product.degree + value.degree > kMaxDegree) return malformed("has too high a degree");
      product = {product.dim * value.dim, product.degree + value.degree};
    }
    return product;
  }

  // Exact ones only: (2*s0) // 2 is s0 and (2*s0) % 2 is 0, whatever s0.
  Result<Polynomial> quotient(std::string_view name, int depth) {
    TRY(const std::vector<Polynomial> values, arguments(depth));
    if (values.size() != 2) return malformed("divides other than two values");
    const bool by_constant = values[1].dim.is_constant() && values[1].dim.constant() > 0;
    const Result<Dim> exact = by_constant ? Dim::divide_exact(values[0].dim, values[1].dim)
                                          : Result<Dim>(fail(Code::kUnsupported, ""));
    if (!exact)
      return fail(Code::kUnsupported,
                  quoted() + " uses " + std::string(name) +
                      " with a rest; only sums and products of symbols are covered: export the "
                      "dimension as a multiple (Dim(\"half\") * 2), or mark it static");
    if (name == "Mod" || name == "PythonMod") return Polynomial{0, 0};
    return Polynomial{*exact, values[0].degree};
  }

  std::string_view text_;
  const std::function<Result<Dim>(std::string_view)>& resolve_;
  size_t at_ = 0;
  int symbols_ = 0;
};

}  // namespace

Result<Dim> parse_symbolic_size(std::string_view expression,
                                const std::function<Result<Dim>(std::string_view)>& resolve) {
  return Parser(expression, resolve).parse();
}

}  // namespace kiln
