// embedding_bag: sums, means and maxima of the table's rows, bag by bag.
#include <cmath>
#include <optional>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

enum Mode : int64_t { kSumOfBag = 0, kMeanOfBag = 1, kMaxOfBag = 2 };

struct Bags {
  Expr rows;     // [indices, width], of the compute type
  Expr counted;  // [indices], 1 for a row that counts, 0 for padding; of rows' dtype
  Expr number;   // [indices], the bag of each
  Dim count;
  int64_t equal = 0;  // every bag has this many indices, in order; 0 when that is not known
};

// The start of each bag known beforehand as 0, n, 2n, ...: how nn.EmbeddingBag calls for a matrix
// of indices.
int64_t equal_bags(const GraphBuilder& b, NodeId offsets, const Dim& bags, const Dim& indices) {
  const Result<Dim> each = bags.is(0) ? Result<Dim>(Dim(0)) : Dim::divide_exact(indices, bags);
  if (!each || !each->is_constant() || each->constant() < 1) return 0;
  const Node* node = &b.node(offsets);
  int64_t step = 1;
  if (node->op == Op::kMul) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Node* factor = &b.node(node->operands[i]);
      while (factor->op == Op::kView) factor = &b.node(factor->operands[0]);
      if (factor->op != Op::kConstant) continue;
      step = std::get<ConstantAttr>(factor->attr).as_int();
      node = &b.node(node->operands[1 - i]);
      break;
    }
  }
  return node->op == Op::kIota && step == each->constant() ? step : 0;
}

// Sums of `x`, [indices, ...], by bag.
Expr by_bag(const Bags& bags, Expr x, Combine combine, double start) {
  GraphBuilder& b = *x.b;
  if (!b.ok()) return x;  // it has no shape
  Shape shape = x.shape();
  if (bags.equal > 0) {
    shape[0] = bags.count;
    shape.insert(shape.begin() + 1, bags.equal);
    const Op op = combine == Combine::kMax ? Op::kReduceMax : Op::kReduceSum;
    return {&b, b.reduce(op, b.reshape(x.id, shape), {1})};
  }
  shape[0] = bags.count;
  const NodeId zero = b.broadcast(scalar(b, x.dtype(), to_number(start)), shape);
  return {&b, b.scatter(zero, bags.number.id, x.id, combine)};
}

std::optional<Bags> bags_of(Call& c) {
  GraphBuilder& b = c.b;
  const Expr weight = tensor(c, "weight");
  const Expr indices = tensor(c, "indices").cast(DType::kI64);
  const Expr offsets = tensor(c, "offsets").cast(DType::kI64);
  if (!c.ok() || indices.shape().size() != 1 || offsets.shape().size() != 1 ||
      weight.shape().size() != 2) {
    c.invalid("embedding_bag needs a table, and vectors of indices and offsets");
    return std::nullopt;
  }
  const Dim total = indices.shape()[0];
  Bags bags;
  bags.count = offsets.shape()[0];
  bags.equal = equal_bags(b, offsets.id, bags.count, total);
  if (c.flag("include_last_offset", false)) {
    bags.count = bags.count - Dim(1);
    bags.equal = 0;
  }
  // The bag of index i is the last one that starts at or before it.
  if (bags.equal == 0) {
    const Expr place{&b, b.iota(DType::kI64, total)};
    const Expr starts = Expr{&b, b.slice(offsets.id, 0, 0, bags.count)};
    const Expr begun = starts.reshape({1, bags.count}) <= place.reshape({total, 1});
    bags.number = begun.cast(DType::kI64).sum({1}, false) - 1;
  }
  bags.rows = wide({&b, b.gather(weight.id, indices.id)});
  bags.counted = {&b, b.broadcast(scalar(b, bags.rows.dtype(), to_number(1.0)), {total})};
  const int64_t padding = c.integer("padding_idx", -1);
  if (c.has("padding_idx") && padding >= 0)
    bags.counted = choose(indices == static_cast<double>(padding), 0, bags.counted);
  if (!c.ok()) return std::nullopt;
  return bags;
}

Values embedding_bag(Call& c) {
  const std::optional<Bags> bags = bags_of(c);
  if (!bags) return {};
  const DType type = c.b.dtype(c.tensor("weight"));
  const int64_t mode = c.integer("mode", kSumOfBag);
  const Shape column = {bags->counted.shape()[0], 1};
  const Expr counted = bags->counted.reshape(column);
  Expr rows = bags->rows;
  if (c.has("per_sample_weights"))
    rows = rows * tensor(c, "per_sample_weights").cast(rows.dtype()).reshape(column);
  Expr result = rows;
  if (mode == kMaxOfBag) {
    // An empty bag is 0.
    result = by_bag(*bags, choose(counted == 0, -HUGE_VAL, rows), Combine::kMax, -HUGE_VAL);
    result = choose(result == -HUGE_VAL, 0, result);
  } else {
    result = by_bag(*bags, choose(counted == 0, 0, rows), Combine::kAdd, 0);
  }
  if (mode == kMeanOfBag) {
    const Expr count = by_bag(*bags, bags->counted, Combine::kAdd, 0);
    result = result / max(count, 1).reshape({bags->count, 1});
  }
  // The other outputs serve the backward kernel.
  return {c.ok() ? result.cast(type).id : kInvalidNode, kInvalidNode, kInvalidNode, kInvalidNode};
}

constexpr Lowering kEmbeddingBagLowerings[] = {
    {"aten.embedding_bag.default", embedding_bag},
    {"aten.embedding_bag.padding_idx", embedding_bag},
    {"aten._embedding_bag.default", embedding_bag},
    {"aten._embedding_bag_forward_only.default", embedding_bag},
};

}  // namespace

std::span<const Lowering> embedding_bag_lowerings() {
  return kEmbeddingBagLowerings;
}

}  // namespace kiln
