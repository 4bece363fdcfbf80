// einsum: operands two at a time, each pair one batched matrix product.
#include <algorithm>
#include <string>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// A tensor whose axes are letters; each once.
struct Labelled {
  NodeId id = kInvalidNode;
  std::string axes;
};

bool has(const std::string& axes, char letter) {
  return axes.find(letter) != std::string::npos;
}
size_t place(const std::string& axes, char letter) {
  return axes.find(letter);
}

// Repeated letters become one axis, their diagonal.
Labelled distinct(Call& c, Labelled x) {
  for (size_t i = 0; i < x.axes.size() && c.ok(); ++i) {
    const size_t again = x.axes.find(x.axes[i], i + 1);
    if (again == std::string::npos) continue;
    const char letter = x.axes[i];
    x.id = diagonal_of(c, x.id, 0, static_cast<int>(i), static_cast<int>(again));
    x.axes.erase(again, 1);
    x.axes.erase(i, 1);
    x.axes += letter;
    --i;
  }
  return x;
}

// Sums over the letters that are not among `needed`.
Labelled summed(GraphBuilder& b, Labelled x, const std::string& needed) {
  std::vector<int> gone;
  std::string kept;
  for (size_t i = 0; i < x.axes.size(); ++i)
    if (has(needed, x.axes[i]))
      kept += x.axes[i];
    else
      gone.push_back(static_cast<int>(i));
  if (!gone.empty()) x.id = b.reduce(Op::kReduceSum, x.id, gone);
  return {x.id, kept};
}

// x with its axes in the order of `letters`, which are some of its own; a missing one has size 1.
NodeId ordered(GraphBuilder& b, const Labelled& x, const std::string& letters) {
  std::vector<int> axes;
  Shape shape;
  for (const char letter : letters) {
    const bool there = has(x.axes, letter);
    if (there) axes.push_back(static_cast<int>(place(x.axes, letter)));
    shape.push_back(there ? b.shape(x.id)[place(x.axes, letter)] : Dim(1));
  }
  return b.reshape(b.permute(x.id, axes), shape);
}

Dim size_of_letters(GraphBuilder& b, const Labelled& x, const std::string& letters) {
  Dim size = 1;
  for (const char letter : letters) size = size * b.shape(x.id)[place(x.axes, letter)];
  return size;
}

// Letters of both that stay are the batch, letters of both that go are contracted.
Labelled contracted(Call& c, Labelled x, Labelled y, const std::string& needed) {
  GraphBuilder& b = c.b;
  std::string only_x = needed + y.axes, only_y = needed + x.axes;
  x = summed(b, x, only_x);
  y = summed(b, y, only_y);
  std::string batch, rows, inner, columns;
  for (const char letter : x.axes)
    (has(y.axes, letter) ? has(needed, letter) ? batch : inner : rows) += letter;
  for (const char letter : y.axes)
    if (!has(x.axes, letter)) columns += letter;
  if (!c.ok()) return x;
  // Sizes of 1 broadcast against the other's.
  for (const char letter : batch + inner) {
    Labelled* const both[] = {&x, &y};
    for (size_t i = 0; i < 2; ++i) {
      Labelled &narrow = *both[i], &other = *both[1 - i];
      Shape shape = b.shape(narrow.id);
      const Dim size = b.shape(other.id)[place(other.axes, letter)];
      if (!shape[place(narrow.axes, letter)].is(1) || size.is(1)) continue;
      shape[place(narrow.axes, letter)] = size;
      narrow.id = b.broadcast(narrow.id, shape);
    }
  }
  const Dim n = size_of_letters(b, x, rows), k = size_of_letters(b, x, inner),
            m = size_of_letters(b, y, columns), batches = size_of_letters(b, x, batch);
  const NodeId left = b.reshape(ordered(b, x, batch + rows + inner), {batches, n, k});
  const NodeId right = b.reshape(ordered(b, y, batch + inner + columns), {batches, k, m});
  const NodeId product = b.cast(b.matmul(left, right), b.dtype(x.id));
  Shape shape;
  for (const char letter : batch + rows) shape.push_back(b.shape(x.id)[place(x.axes, letter)]);
  for (const char letter : columns) shape.push_back(b.shape(y.id)[place(y.axes, letter)]);
  return {b.reshape(product, shape), batch + rows + columns};
}

// The letters of each operand and of the result. The axes of "..." are digits, the last one '0'.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

std::string with_dots(const std::string& term, size_t rank) {
  const size_t dots = term.find("...");
  if (dots == std::string::npos) return term;
  const size_t letters = term.size() - 3;
  std::string digits;
  for (size_t i = rank > letters ? rank - letters : 0; i-- > 0;)
    digits += static_cast<char>('0' + i);
  return term.substr(0, dots) + digits + term.substr(dots + 3);
}

std::optional<Equation> parse(Call& c, std::string text, const std::vector<NodeId>& xs) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  Equation result;
  std::string terms = text.substr(0, arrow);
  size_t dots = 0;
  for (size_t at = 0; at <= terms.size();) {
    const size_t comma = std::min(terms.find(',', at), terms.size());
    const size_t i = result.operands.size();
    if (i >= xs.size()) return std::nullopt;
    const std::string term = terms.substr(at, comma - at);
    const size_t rank = c.b.shape(xs[i]).size();
    if (rank > 9) return std::nullopt;
    result.operands.push_back(with_dots(term, rank));
    if (result.operands.back().size() != rank) return std::nullopt;
    if (term.find("...") != std::string::npos) dots = std::max(dots, rank - (term.size() - 3));
    at = comma + 1;
  }
  if (result.operands.size() != xs.size()) return std::nullopt;
  if (arrow != std::string::npos) {
    const std::string term = text.substr(arrow + 2);
    const bool has_dots = term.find("...") != std::string::npos;
    result.result = with_dots(term, has_dots ? term.size() - 3 + dots : term.size());
  } else {
    // In alphabetical order, those that occur once; "..." first.
    std::string all;
    for (const std::string& term : result.operands) all += term;
    for (size_t i = dots; i-- > 0;) result.result += static_cast<char>('0' + i);
    std::string letters = all;
    std::sort(letters.begin(), letters.end());
    for (const char letter : letters)
      if (letter > '9' && std::count(all.begin(), all.end(), letter) == 1) result.result += letter;
  }
  return result;
}

Values einsum(Call& c) {
  GraphBuilder& b = c.b;
  const std::vector<NodeId> xs = c.tensors("tensors");
  if (!c.ok() || xs.empty()) return {c.invalid("einsum of nothing")};
  const std::optional<Equation> equation = parse(c, std::string(c.text("equation", "")), xs);
  if (!equation || !c.ok()) return {c.invalid("the equation of einsum does not fit its operands")};
  Labelled result;
  for (size_t i = 0; i < xs.size() && c.ok(); ++i) {
    std::string needed = equation->result;
    for (size_t k = i + 1; k < xs.size(); ++k) needed += equation->operands[k];
    const Labelled next = distinct(c, {xs[i], equation->operands[i]});
    result = i == 0 ? summed(b, next, needed) : contracted(c, result, next, needed);
  }
  for (const char letter : equation->result)
    if (!has(result.axes, letter)) return {c.invalid("einsum gives an axis that no operand has")};
  return {c.ok() ? ordered(b, result, equation->result) : kInvalidNode};
}

constexpr Lowering kEinsumLowerings[] = {
    {"aten.einsum.default", einsum},
};

}  // namespace

std::span<const Lowering> einsum_lowerings() {
  return kEinsumLowerings;
}

}  // namespace kiln
