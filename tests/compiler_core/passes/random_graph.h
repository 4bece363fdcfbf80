// Random graphs, random inputs, and other spellings of the same computation, for property tests.
// All from a seed, so that a failure names the graph that shows it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln::testing {

using Random = std::mt19937_64;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
template <class T>
const T& one_of(Random& random, const std::vector<T>& items) {
  return items[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(items.size()) - 1))];
}

enum class Kinds {
  kExact,   // no sums: every correct rewrite gives the same bits. Halves, integers and bool occur
  kSmooth,  // sums, matmuls and smooth functions, in f64 so that reassociation stays far below any
            // tolerance, whatever magnifies it
};

// Grows a graph node by node from what is there.
class GraphGrower {
 public:
  GraphGrower(uint64_t seed, Kinds kinds) : random_(seed), kinds_(kinds) {}

  Graph grow(int steps) {
    const int inputs = static_cast<int>(pick(random_, 1, 4));
    for (int i = 0; i < inputs; ++i) keep(builder_.input(random_dtype(), random_shape()));
    for (int i = 0; i < steps; ++i) keep(step());
    std::vector<NodeId> outputs;
    const int64_t count = pick(random_, 1, 3);
    for (int64_t i = 0; i < count; ++i)
      outputs.push_back(
          values_[values_.size() - 1 -
                  static_cast<size_t>(
                      pick(random_, 0,
                           std::min<int64_t>(4, static_cast<int64_t>(values_.size()) - 1)))]);
    auto graph = builder_.finish(std::move(outputs));
    EXPECT_TRUE(graph.has_value()) << graph.error().message;
    return graph ? *std::move(graph) : Graph();
  }

 private:
  bool exact() const { return kinds_ == Kinds::kExact; }
  void keep(NodeId id) {
    if (id != kInvalidNode) values_.push_back(id);
  }
  NodeId any() {
    return values_[values_.size() - 1 -
                   static_cast<size_t>(
                       pick(random_, 0,
                            std::min<int64_t>(6, static_cast<int64_t>(values_.size()) - 1)))];
  }
  const Shape& shape(NodeId id) const { return builder_.shape(id); }
  int rank(NodeId id) const { return static_cast<int>(shape(id).size()); }
  int64_t size(NodeId id, int axis) const {
    return shape(id)[static_cast<size_t>(axis)].constant();
  }
  DType random_dtype() {
    if (!exact()) return DType::kF64;
    return one_of<DType>(random_, {DType::kF32, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                                   DType::kI32, DType::kBool});
  }
  Shape random_shape() {
    Shape shape;
    const int64_t count = pick(random_, 0, 3);
    for (int64_t i = 0; i < count; ++i) shape.push_back(pick(random_, 1, 4));
    return shape;
  }

  NodeId step() {
    const NodeId x = any();
    switch (pick(random_, 0, 11)) {
      case 0:
        return unary(x);
      case 1:
      case 2:
        return binary(x, matching(x));
      case 3:
        return with_constant(x);
      case 4:
        return exact() ? builder_.cast(x, random_dtype()) : unary(x);
      case 5:
        return rearranged(x);
      case 6:
        return repeated(x);
      case 7:
        return joined(x);
      case 8:
      case 9:
        return reduced(x);
      case 10:
        return exact() ? chosen(x) : product(x);
      default:
        return exact() ? gathered(x) : product(x);
    }
  }

  NodeId unary(NodeId x) {
    const DType dtype = builder_.dtype(x);
    if (dtype == DType::kBool) return builder_.unary(Op::kNot, x);
    if (!is_float(dtype))
      return builder_.unary(one_of<Op>(random_, {Op::kNeg, Op::kAbs, Op::kNot}), x);
    if (!exact()) return builder_.unary(one_of<Op>(random_, {Op::kNeg, Op::kTanh, Op::kSin}), x);
    return builder_.unary(one_of<Op>(random_, {Op::kNeg, Op::kAbs, Op::kSign, Op::kFloor, Op::kSqrt,
                                               Op::kExp, Op::kTanh, Op::kSin}),
                          x);
  }

  NodeId binary(NodeId a, NodeId b) {
    if (a == kInvalidNode || b == kInvalidNode) return kInvalidNode;
    const DType dtype = builder_.dtype(a);
    if (dtype == DType::kBool)
      return builder_.binary(one_of<Op>(random_, {Op::kAnd, Op::kOr, Op::kXor, Op::kEq}), a, b);
    if (!exact()) return builder_.binary(one_of<Op>(random_, {Op::kAdd, Op::kSub, Op::kMul}), a, b);
    return builder_.binary(
        one_of<Op>(random_, {Op::kAdd, Op::kSub, Op::kMul, Op::kMax, Op::kMin, Op::kLt, Op::kEq}),
        a, b);
  }

  NodeId with_constant(NodeId x) {
    const DType dtype = builder_.dtype(x);
    if (dtype == DType::kBool) return builder_.unary(Op::kNot, x);
    const double number = one_of<double>(random_, {0, 1, -1, 2, 0.5, 4, 3});
    const NodeId c = builder_.broadcast(
        builder_.constant(dtype, is_float(dtype) ? number : std::floor(number)), shape(x));
    if (!exact()) return builder_.binary(one_of<Op>(random_, {Op::kAdd, Op::kMul, Op::kSub}), x, c);
    const bool divides = is_float(dtype) && number != 0;
    return builder_.binary(
        one_of<Op>(random_, {Op::kAdd, Op::kMul, Op::kSub, divides ? Op::kDiv : Op::kMax}), x, c);
  }

  // A value of x's dtype brought to x's shape: an older one where broadcasting allows, or x itself.
  NodeId matching(NodeId x) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      NodeId y = any();
      if (builder_.dtype(y) != builder_.dtype(x) && builder_.dtype(y) != DType::kBool &&
          builder_.dtype(x) != DType::kBool)
        y = exact() ? builder_.cast(y, builder_.dtype(x)) : y;
      if (builder_.dtype(y) == builder_.dtype(x) && broadcasts(y, x))
        return builder_.broadcast(y, Shape(shape(x)));
    }
    return x;
  }
  bool broadcasts(NodeId y, NodeId x) const {
    if (rank(y) > rank(x)) return false;
    for (int i = 1; i <= rank(y); ++i)
      if (size(y, rank(y) - i) != 1 && size(y, rank(y) - i) != size(x, rank(x) - i)) return false;
    return true;
  }

  NodeId rearranged(NodeId x) {
    std::vector<int> axes;
    for (int i = 0; i < rank(x); ++i) axes.push_back(i);
    switch (pick(random_, 0, 3)) {
      case 0:
        std::shuffle(axes.begin(), axes.end(), random_);
        return builder_.permute(x, axes);
      case 1:
        return builder_.reshape(x, {numel(shape(x))});
      case 2: {
        Shape with_one = shape(x);
        with_one.insert(with_one.begin() + pick(random_, 0, rank(x)), Dim(1));
        return builder_.reshape(x, with_one);
      }
      default: {
        if (rank(x) == 0) return x;
        const int axis = static_cast<int>(pick(random_, 0, rank(x) - 1));
        const int64_t start = pick(random_, 0, size(x, axis) - 1);
        if (pick(random_, 0, 3) == 0)
          return builder_.slice(x, axis, size(x, axis) - 1, size(x, axis), -1);
        return builder_.slice(x, axis, start, pick(random_, 1, size(x, axis) - start));
      }
    }
  }

  NodeId repeated(NodeId x) {
    if (numel(shape(x)).constant() > 64) return x;
    Shape to = shape(x);
    for (Dim& dim : to)
      if (dim.is(1)) dim = pick(random_, 1, 3);
    if (to.size() < 4) to.insert(to.begin(), Dim(pick(random_, 1, 3)));
    return builder_.broadcast(x, to);
  }

  NodeId joined(NodeId x) {
    if (rank(x) == 0 || numel(shape(x)).constant() > 128) return x;
    const int axis = static_cast<int>(pick(random_, 0, rank(x) - 1));
    if (pick(random_, 0, 1) == 0) {
      const std::vector<NodeId> parts = {x, matching(x)};
      return builder_.concat(parts, axis);
    }
    std::vector<Dim> low(shape(x).size(), Dim(0)), high = low;
    low[static_cast<size_t>(axis)] = pick(random_, 0, 2);
    high[static_cast<size_t>(axis)] = pick(random_, 0, 2);
    return builder_.pad(x, low, high, constant_bits(builder_.dtype(x), 1));
  }

  NodeId reduced(NodeId x) {
    if (rank(x) == 0 || builder_.dtype(x) == DType::kBool) return x;
    std::vector<int> axes;
    for (int i = 0; i < rank(x); ++i)
      if (pick(random_, 0, 1) == 0) axes.push_back(i);
    if (axes.empty()) axes.push_back(rank(x) - 1);
    const Op op = exact() ? one_of<Op>(random_, {Op::kReduceMax, Op::kReduceMin})
                          : one_of<Op>(random_, {Op::kReduceMax, Op::kReduceSum, Op::kReduceSum});
    const bool keep = pick(random_, 0, 2) != 0;
    const NodeId r = builder_.reduce(op, x, axes, keep);
    // The usual next step: back over what was reduced.
    if (keep && pick(random_, 0, 3) != 0)
      return builder_.binary(Op::kSub, x, builder_.broadcast(r, Shape(shape(x))));
    return r;
  }

  NodeId chosen(NodeId x) {
    for (NodeId c : values_)
      if (builder_.dtype(c) == DType::kBool && broadcasts(c, x))
        return builder_.select(builder_.broadcast(c, Shape(shape(x))), x, matching(x));
    return unary(x);
  }

  NodeId gathered(NodeId x) {
    for (NodeId index : values_)
      if (builder_.dtype(index) == DType::kI64 && rank(x) > 0 && rank(x) + rank(index) <= 4 &&
          (numel(shape(x)) * numel(shape(index))).constant() < 200)
        return builder_.gather(x, index);
    return unary(x);
  }

  NodeId product(NodeId x) {
    if (rank(x) < 2 || numel(shape(x)).constant() > 200) return unary(x);
    std::vector<int> axes;
    for (int i = 0; i < rank(x); ++i) axes.push_back(i);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return builder_.matmul(x, builder_.permute(x, axes));
  }

  Random random_;
  const Kinds kinds_;
  GraphBuilder builder_;
  std::vector<NodeId> values_;
};

inline Graph random_graph(uint64_t seed, Kinds kinds, int steps) {
  return GraphGrower(seed, kinds).grow(steps);
}

inline std::vector<Tensor> random_inputs(const Graph& graph, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> tensors;
  for (NodeId id : graph.inputs()) {
    Tensor tensor(graph.node(id).dtype, constant_sizes(graph.node(id).shape));
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      if (is_float(tensor.dtype()))
        tensor.set(i, std::uniform_real_distribution<double>(-1.5, 1.5)(random));
      else
        tensor.set_int(i,
                       tensor.dtype() == DType::kBool ? pick(random, 0, 1) : pick(random, -3, 3));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// The caller's tensors in the order `order` names them.
inline std::vector<const Tensor*> in_order(const std::vector<Tensor>& tensors,
                                           const std::vector<int>& order) {
  std::vector<const Tensor*> pointers;
  for (int i : order) pointers.push_back(&tensors[static_cast<size_t>(i)]);
  return pointers;
}
inline std::vector<const Tensor*> in_order(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  return pointers;
}

inline std::vector<Tensor> evaluate(const Graph& graph, const std::vector<const Tensor*>& inputs) {
  auto outputs = interpret(graph, inputs);
  EXPECT_TRUE(outputs.has_value()) << outputs.error().message;
  return outputs ? *std::move(outputs) : std::vector<Tensor>();
}

// Equal within `tolerance` of the larger value; 0 asks for the same value, NaN for NaN. The sign of
// a zero is free, since max and min are commutative and do not say which zero they return.
inline void expect_equal(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.numel(), b.numel());
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (!is_float(a.dtype())) {
      ASSERT_EQ(a.get_int(i), b.get_int(i)) << "element " << i;
      continue;
    }
    const double x = a.get(i), y = b.get(i);
    if (std::isnan(x) || std::isnan(y)) {
      ASSERT_EQ(std::isnan(x), std::isnan(y)) << "element " << i;
    } else if (x != y) {
      const double limit = tolerance * std::max({1.0, std::fabs(x), std::fabs(y)});
      ASSERT_TRUE(tolerance > 0 && std::fabs(x - y) <= limit)
          << "element " << i << ": " << x << ", " << y;
    }
  }
}

// The same computation written down differently: nodes in another topological order, inputs in
// another position, operands of commutative ops swapped. inputs[i] is the original's input that the
// copy has as input i.
struct Respelled {
  Graph graph;
  std::vector<int> inputs;
};
inline Respelled respell(const Graph& graph, uint64_t seed) {
  Random random(seed);
  Respelled result;
  GraphBuilder builder;
  for (const Symbol& symbol : graph.symbols()) builder.symbol(symbol.range, symbol.hint + 7);
  std::vector<NodeId> map(static_cast<size_t>(graph.size()), kInvalidNode);
  for (size_t i = 0; i < graph.inputs().size(); ++i) result.inputs.push_back(static_cast<int>(i));
  std::shuffle(result.inputs.begin(), result.inputs.end(), random);
  for (int i : result.inputs) {
    const NodeId id = graph.inputs()[static_cast<size_t>(i)];
    map[static_cast<size_t>(id)] = builder.input(graph.node(id).dtype, graph.node(id).shape);
  }
  const auto users = users_of(graph);
  std::vector<int> waits(static_cast<size_t>(graph.size()), 0);
  std::vector<NodeId> ready;
  for (NodeId id = 0; id < graph.size(); ++id) {
    waits[static_cast<size_t>(id)] = static_cast<int>(graph.node(id).operands.size());
    if (waits[static_cast<size_t>(id)] == 0) ready.push_back(id);
  }
  while (!ready.empty()) {
    std::swap(ready[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(ready.size()) - 1))],
              ready.back());
    const NodeId id = ready.back();
    ready.pop_back();
    if (map[static_cast<size_t>(id)] == kInvalidNode) {
      Node node = graph.node(id);
      for (NodeId& operand : node.operands) operand = map[static_cast<size_t>(operand)];
      if (traits(node.op).commutative && pick(random, 0, 1) == 0)
        std::swap(node.operands[0], node.operands[1]);
      map[static_cast<size_t>(id)] = builder.add(std::move(node));
    }
    for (NodeId user : users[static_cast<size_t>(id)])
      if (--waits[static_cast<size_t>(user)] == 0) ready.push_back(user);
  }
  std::vector<NodeId> outputs;
  for (NodeId id : graph.outputs()) outputs.push_back(map[static_cast<size_t>(id)]);
  auto copy = builder.finish(std::move(outputs));
  EXPECT_TRUE(copy.has_value()) << copy.error().message;
  if (copy) result.graph = *std::move(copy);
  return result;
}

}  // namespace kiln::testing
