// A valid graph out of any bytes, with every op but custom calls: for properties that hold for every
// graph. Each choice takes a byte, so that a fuzzer's small change is a small change of the graph.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compiler_core/ir/builder.h"

namespace kiln::testing {

class GraphFromBytes {
 public:
  explicit GraphFromBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Result<Graph> make() {
    if (choose(4) == 0) symbol_ = Dim::symbol(b_.symbol({2, 64}, 8));
    for (size_t i = choose(4) + 1; i > 0; --i) keep(b_.input(dtype(), shape()));
    while (at_ < bytes_.size() && values_.size() < kMostValues) keep(step());
    std::vector<NodeId> outputs;
    for (size_t i = choose(3) + 1; i > 0; --i) outputs.push_back(value());
    return b_.finish(std::move(outputs));
  }

 private:
  static constexpr size_t kMostValues = 200;
  static constexpr int64_t kMostElements = 1 << 17;

  size_t choose(size_t count) { return at_ < bytes_.size() ? bytes_[at_++] % count : 0; }
  template <class T, size_t n>
  T one_of(const T (&items)[n]) {
    return items[choose(n)];
  }
  void keep(NodeId id) {
    if (id != kInvalidNode) values_.push_back(id);
  }
  NodeId value() {
    return values_[values_.size() - 1 - choose(std::min<size_t>(values_.size(), 9))];
  }
  const Shape& shape(NodeId id) const { return b_.shape(id); }
  size_t rank(NodeId id) const { return shape(id).size(); }
  bool floats(NodeId id) const { return is_float(b_.dtype(id)); }
  bool logical(NodeId id) const { return b_.dtype(id) == DType::kBool; }
  bool small(const Shape& shape, int64_t most = kMostElements) const {
    const Dim size = numel(shape);
    return !size.is_constant() || size.constant() <= most;
  }

  DType dtype() {
    return one_of({DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                   DType::kI32, DType::kBool});
  }
  Dim size() {
    if (symbol_.is_valid() && !symbol_.is_constant() && choose(4) == 0) return symbol_;
    return one_of<int64_t>({1, 2, 3, 4, 6, 8, 64, 256});
  }
  Shape shape() {
    Shape made;
    for (size_t i = choose(4); i > 0; --i) made.push_back(size());
    return small(made, 1 << 12) ? made : Shape{made[0]};
  }

  NodeId step() {
    const NodeId x = value();
    switch (choose(18)) {
      case 0:
        return constant(dtype(), {});
      case 1:
        return positions();
      case 2:
        return unary(x);
      case 3:
        return b_.cast(x, dtype());
      case 4:
        return binary(x, like(x));
      case 5:
        return binary(x, constant(b_.dtype(x), Shape(shape(x))));
      case 6:
        return select(x);
      case 7:
      case 8:
        return rearranged(x);
      case 9:
        return repeated(x);
      case 10:
        return joined(x);
      case 11:
        return reduced(x);
      case 12:
        return rank(x) == 0 || logical(x) ? x : b_.scan_sum(x, axis(x));
      case 13:
        return product(x);
      case 14:
        return convolution();
      case 15:
        return gathered(x);
      case 16:
        return rank(x) == 0 || is_half(b_.dtype(x)) || logical(x) ? x
                                                                  : b_.argsort(x, choose(2) == 0);
      default:
        return b_.philox(b_.constant_int(DType::kI64, static_cast<int64_t>(choose(3))), shape(),
                         static_cast<int64_t>(choose(2)));
    }
  }

  int axis(NodeId x) { return static_cast<int>(choose(rank(x))); }

  NodeId constant(DType dtype, Shape shape) {
    const double number = one_of<double>({0, 1, -1, 2, 0.5, 4, -3, 1e9});
    const NodeId scalar = is_float(dtype) ? b_.constant(dtype, number)
                          : dtype == DType::kBool
                              ? b_.constant_int(dtype, number > 0)
                              : b_.constant_int(dtype, static_cast<int64_t>(number));
    return b_.broadcast(scalar, std::move(shape));
  }

  // Arithmetic on positions: what masks and relative position biases are made of, also such as are
  // too large to be evaluated.
  NodeId positions() {
    const DType type = one_of({DType::kI64, DType::kI32, DType::kF32});
    const int64_t n = one_of<int64_t>({3, 16, 64, 256, 300});
    const std::array<int, 1> rows = {0}, columns = {1};
    const NodeId iota = b_.iota(type, n);
    const NodeId row = b_.broadcast_in(iota, {n, n}, rows);
    const NodeId column = b_.broadcast_in(iota, {n, n}, columns);
    return b_.binary(one_of({Op::kSub, Op::kAdd, Op::kMul, Op::kLe, Op::kMin, Op::kMax}), row,
                     column);
  }

  NodeId unary(NodeId x) {
    if (logical(x)) return b_.unary(Op::kNot, x);
    if (!floats(x)) return b_.unary(one_of({Op::kNeg, Op::kAbs, Op::kSign, Op::kNot}), x);
    return b_.unary(
        one_of({Op::kNeg, Op::kAbs, Op::kSign, Op::kFloor, Op::kCeil, Op::kTrunc, Op::kRound,
                Op::kSqrt, Op::kRsqrt, Op::kReciprocal, Op::kExp, Op::kExpm1, Op::kLog, Op::kLog1p,
                Op::kSin, Op::kCos, Op::kTan, Op::kTanh, Op::kErf}),
        x);
  }

  NodeId binary(NodeId x, NodeId y) {
    if (logical(x)) return b_.binary(one_of({Op::kAnd, Op::kOr, Op::kXor, Op::kEq, Op::kLt}), x, y);
    if (!floats(x))
      return b_.binary(one_of({Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kRem, Op::kMax, Op::kMin,
                               Op::kAnd, Op::kOr, Op::kXor, Op::kEq, Op::kNe, Op::kLt, Op::kLe}),
                       x, y);
    return b_.binary(one_of({Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kRem, Op::kPow, Op::kAtan2,
                             Op::kMax, Op::kMin, Op::kEq, Op::kNe, Op::kLt, Op::kLe}),
                     x, y);
  }

  bool broadcasts(NodeId y, const Shape& to) const {
    const Shape& from = shape(y);
    if (from.size() > to.size()) return false;
    for (size_t i = 1; i <= from.size(); ++i)
      if (!from[from.size() - i].is(1) && from[from.size() - i] != to[to.size() - i]) return false;
    return true;
  }

  // A value of x's dtype and shape: another where one can be brought to them, or x itself.
  NodeId like(NodeId x) {
    const NodeId y = value();
    if (!broadcasts(y, shape(x))) return x;
    return b_.broadcast(b_.cast(y, b_.dtype(x)), Shape(shape(x)));
  }

  NodeId select(NodeId x) {
    for (const NodeId c : values_)
      if (logical(c) && broadcasts(c, shape(x)))
        return b_.select(b_.broadcast(c, Shape(shape(x))), x, like(x));
    return b_.select(b_.binary(Op::kEq, x, like(x)), x, like(x));
  }

  NodeId rearranged(NodeId x) {
    const size_t n = rank(x);
    if (n == 0) return b_.reshape(x, {1});
    switch (choose(5)) {
      case 0: {
        std::vector<int> axes;
        for (size_t i = 0; i < n; ++i) axes.push_back(static_cast<int>(i));
        std::rotate(axes.begin(), axes.begin() + static_cast<int>(choose(n)), axes.end());
        return b_.permute(x, axes);
      }
      case 1:
        return b_.reshape(x, {numel(shape(x))});
      case 2: {
        Shape with_one = shape(x);
        with_one.insert(with_one.begin() + static_cast<int>(choose(n + 1)), Dim(1));
        return b_.reshape(x, with_one);
      }
      case 3: {  // half of an axis, or what can be taken of it
        const int a = axis(x);
        const Dim& size = shape(x)[static_cast<size_t>(a)];
        if (!size.is_constant()) return b_.slice(x, a, 0, size);
        const int64_t start = static_cast<int64_t>(choose(static_cast<size_t>(size.constant())));
        return b_.slice(x, a, start, std::max<int64_t>((size.constant() - start) / 2, 1));
      }
      default: {
        const int a = axis(x);
        const Dim size = shape(x)[static_cast<size_t>(a)];
        return b_.slice(x, a, size - Dim(1), size, -1);
      }
    }
  }

  NodeId repeated(NodeId x) {
    Shape to = shape(x);
    for (Dim& dim : to)
      if (dim.is(1)) dim = size();
    if (to.size() < 4) to.insert(to.begin(), size());
    return small(to) ? b_.broadcast(x, to) : x;
  }

  NodeId joined(NodeId x) {
    if (rank(x) == 0 || !small(shape(x), kMostElements / 4)) return x;
    const int a = axis(x);
    if (choose(2) == 0) {
      const std::vector<NodeId> parts = {x, like(x), x};
      return b_.concat(std::span(parts).first(choose(3) + 1), a);
    }
    std::vector<Dim> low(rank(x), Dim(0)), high = low;
    low[static_cast<size_t>(a)] = static_cast<int64_t>(choose(3));
    high[static_cast<size_t>(a)] = static_cast<int64_t>(choose(3));
    return b_.pad(x, low, high, constant_bits(b_.dtype(x), one_of<double>({0, 1})));
  }

  NodeId reduced(NodeId x) {
    if (rank(x) == 0 || logical(x)) return x;
    std::vector<int> axes;
    for (size_t i = 0; i < rank(x); ++i)
      if (choose(2) == 0) axes.push_back(static_cast<int>(i));
    if (axes.empty()) axes.push_back(axis(x));
    return b_.reduce(one_of({Op::kReduceSum, Op::kReduceMax, Op::kReduceMin, Op::kReduceProd}), x,
                     axes, choose(2) == 0);
  }

  NodeId product(NodeId x) {
    if (rank(x) < 2 || !floats(x)) return x;
    std::vector<int> axes;
    for (size_t i = 0; i < rank(x); ++i) axes.push_back(static_cast<int>(i));
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    Shape to = shape(x);
    to.back() = to[to.size() - 2];
    return small(to) ? b_.matmul(x, b_.permute(x, axes)) : x;
  }

  NodeId convolution() {
    const DType type = one_of({DType::kF32, DType::kF16});
    const int64_t channels = one_of<int64_t>({1, 4}), groups = choose(2) == 0 ? 1 : channels;
    const NodeId x = b_.input(type, {2, channels, 8, 6});
    const NodeId w = b_.input(type, {4, channels / groups, 3, 1});
    const int64_t stride = one_of<int64_t>({1, 2});
    return b_.convolution(x, w, {{stride, 1}, {1, 1}, {1, 0}, {1, 0}, groups});
  }

  NodeId gathered(NodeId x) {
    if (rank(x) == 0) return x;
    const Dim rows = size();
    if (!rows.is_constant()) return x;
    Shape to = shape(x);
    to[0] = rows;
    if (!small(to)) return x;
    const NodeId index =
        choose(2) == 0 ? b_.input(DType::kI64, {rows}) : b_.iota(DType::kI64, rows);
    const NodeId rows_of_x = b_.gather(x, index);
    if (choose(2) == 0 || logical(x)) return rows_of_x;
    return b_.scatter(
        x, index, rows_of_x,
        one_of({Combine::kSet, Combine::kAdd, Combine::kMul, Combine::kMax, Combine::kMin}));
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  Dim symbol_ = 0;
  GraphBuilder b_;
  std::vector<NodeId> values_;
};

inline Result<Graph> graph_from_bytes(std::span<const uint8_t> bytes) {
  return GraphFromBytes(bytes).make();
}

inline std::string random_bytes(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace kiln::testing
