// Mixtures of experts: products of groups of rows, whose bounds are data, with a matrix each; and the
// histograms that count the rows of each expert.
#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// How many of `bounds`, [n], are at most each element of `at`, [m]: the number of its group. Few are
// summed for many, so these lie side by side.
Expr group_of(Expr at, Expr bounds) {
  const Dim n = bounds.shape()[0], m = at.shape()[0];
  const Expr passed = bounds.reshape({n, 1}) <= at.reshape({1, m});
  return passed.cast(DType::kI64).sum({0}, false);
}

// The bounds of `count` groups of [0, total): the first and the last row but one of each.
struct Groups {
  Expr starts, ends;  // [count], i64
  int64_t count = 0;
};

Groups groups_of(Call& c, std::string_view name) {
  GraphBuilder& b = c.b;
  Groups groups{{&b, kInvalidNode}, tensor(c, name).cast(DType::kI64), 0};
  if (!c.ok() || groups.ends.shape().size() != 1 || !groups.ends.shape()[0].is_constant() ||
      groups.ends.shape()[0].constant() < 1) {
    c.unsupported("bounds of groups that are no vector of a known size are not covered");
    return groups;
  }
  groups.count = groups.ends.shape()[0].constant();
  const NodeId before = b.slice(groups.ends.id, 0, 0, groups.count - 1);
  groups.starts = {&b, b.pad(before, {Dim(1)}, {Dim(0)}, constant_bits(DType::kI64, 0))};
  return groups;
}

// Whether each of `total` rows belongs to each group: [count, total].
Expr members(const Groups& groups, const Dim& total) {
  GraphBuilder& b = *groups.ends.b;
  const Dim count = groups.count;
  const Expr row = Expr{&b, b.iota(DType::kI64, total)}.reshape({1, total});
  return (row >= groups.starts.reshape({count, 1})) & (row < groups.ends.reshape({count, 1}));
}

// Every row with every matrix; a row keeps what its own group's matrix gives. For a number of rows that
// is known only at run time.
Expr product_with_all(Expr x, Expr y, const Groups& groups) {
  GraphBuilder& b = *x.b;
  const Dim rows = x.shape()[0], columns = y.shape()[2];
  const Expr spread = x.broadcast({groups.count, rows, x.shape()[1]});
  const Expr every{&b, b.matmul(spread.id, y.id)};
  const Expr mine = members(groups, rows).reshape({groups.count, rows, 1});
  return choose(mine.broadcast({groups.count, rows, columns}), every, 0).sum({0}, false);
}

// x [rows, depth], y [groups, depth, columns]: each row with the matrix of its group. A row of no
// group is 0. How rows share a matrix is the planner's matter (plan/picked_products.h).
Expr grouped_rows(Call& c, Expr x, Expr y, const Groups& groups) {
  GraphBuilder& b = c.b;
  if (!y.shape()[0].is(groups.count)) {
    c.invalid("has another number of matrices than of groups");
    return x;
  }
  const Dim rows = x.shape()[0], columns = y.shape()[2];
  // So that the sizes of all rows' matrices together can be counted.
  constexpr int64_t kMostRows = int64_t{1} << 24;
  if (groups.count == 1 || !rows.is_constant() || rows.constant() < 1 ||
      rows.constant() > kMostRows)
    return product_with_all(x, y, groups);
  const Expr owner = group_of({&b, b.iota(DType::kI64, rows)}, groups.ends);
  const auto count = static_cast<double>(groups.count);
  const Expr known = min(owner, count - 1);
  const NodeId matrices = b.gather(y.id, known.id);  // [rows, depth, columns]
  const NodeId product = b.matmul(x.reshape({rows, 1, x.shape()[1]}).id, matrices);
  const Expr has_owner = (owner < count).reshape({rows, 1}).broadcast({rows, columns});
  return choose(has_owner, Expr{&b, product}.reshape({rows, columns}), 0);
}

Values grouped_product(Call& c, std::string_view x_name, std::string_view y_name) {
  GraphBuilder& b = c.b;
  const Expr x = tensor(c, x_name), y = tensor(c, y_name);
  if (!c.ok()) return {};
  const size_t left = x.shape().size(), right = y.shape().size();
  const DType type = c.dtype("out_dtype", x.dtype());
  if (c.has("bias")) return {c.unsupported("a grouped product with a bias is not covered")};
  if (left < 2 || left > 3 || right < 2 || right > 3)
    return {c.invalid("a grouped product of operands of rank " + std::to_string(left) + " and " +
                      std::to_string(right))};
  if (left == 3 && right == 3) return {b.cast(matrix_product(b, x.id, y.id), type)};
  const Groups groups = groups_of(c, "offs");
  if (!c.ok()) return {};
  if (left == 2 && right == 3) return {grouped_rows(c, x, y, groups).cast(type).id};
  if (left == 3) {  // groups of columns: the same, transposed
    const Expr rows{&b, swap_axes(b, y.id, 0, 1)}, matrices{&b, swap_axes(b, x.id, 1, 2)};
    return {b.cast(swap_axes(b, grouped_rows(c, rows, matrices, groups).id, 0, 1), type)};
  }
  // Groups of the axis that is summed over.
  const Dim depth = x.shape()[1];
  const Shape shape = {groups.count, x.shape()[0], depth};
  const Expr mine = members(groups, depth).reshape({groups.count, 1, depth}).broadcast(shape);
  const Expr part = choose(mine, x.broadcast(shape), 0);
  return {b.cast(matrix_product(b, part.id, y.broadcast({groups.count, depth, y.shape()[1]}).id),
                 type)};
}

Values grouped_mm(Call& c) {
  return grouped_product(c, "self", "mat2");
}
// transformers writes this op where torch has no kernel for the dtype.
Values grouped_mm_fallback(Call& c) {
  return grouped_product(c, "input", "weight");
}

// How many elements fall into each of `bins` equal parts of [min, max]; those outside count nowhere.
Values histc(Call& c) {
  GraphBuilder& b = c.b;
  const Expr x = wide(tensor(c, "self"));
  const int64_t bins = c.integer("bins", 100);
  const double least = c.real("min", 0), most = c.real("max", 0);
  if (!c.ok()) return {};
  if (bins < 1 || most < least) return {c.invalid("a histogram needs bins, and max not below min")};
  const DType type = b.dtype(c.tensor("self"));
  const Dim count = numel(x.shape());
  const Expr flat = x.reshape({count});
  if (!(least < most) && count.is(0))
    return {constant_like(b, b.broadcast(scalar(b, type, to_number(0.0)), {bins}), 0)};
  Expr low = flat.like(least), high = flat.like(most);
  if (!(least < most)) {  // the range is the data's
    const auto extremum = [&](Op op) { return Expr{&b, b.reduce(op, flat.id, {0}, true)}; };
    const Expr smallest = extremum(Op::kReduceMin), greatest = extremum(Op::kReduceMax);
    const Expr equal = smallest == greatest;
    low = choose(equal, smallest - 1, smallest).broadcast({count});
    high = choose(equal, greatest + 1, greatest).broadcast({count});
  }
  const auto number = static_cast<double>(bins);
  const Expr place = min(floor((flat - low) / (high - low) * number), number - 1);
  const Expr inside = (flat >= low) & (flat <= high);
  const Expr bin = choose(inside, place, -1).reshape({count, 1});
  const Expr wanted = Expr{&b, b.cast(b.iota(DType::kI64, bins), x.dtype())}.reshape({1, bins});
  // Counted as integers: f32 counts to 2^24 only.
  const Expr hits = (bin == wanted).cast(DType::kI64).sum({0}, false);
  return {hits.cast(type).id};
}

constexpr Lowering kExpertLowerings[] = {
    {"aten._grouped_mm.default", grouped_mm},
    {"transformers.grouped_mm_fallback.default", grouped_mm_fallback},
    {"aten.histc.default", histc},
};

}  // namespace

std::span<const Lowering> expert_lowerings() {
  return kExpertLowerings;
}

}  // namespace kiln
