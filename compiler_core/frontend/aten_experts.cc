// Mixtures of experts: products of groups of rows, whose bounds are data, with a matrix each; and the
// histograms that count the rows of each expert.
#include <algorithm>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// The sum of `x`, a vector, up to each of its elements, itself included: of as few as experts are.
Expr running_sum(Expr x) {
  GraphBuilder& b = *x.b;
  const Dim n = x.shape()[0];
  const Shape square = {n, n};
  const Expr from{&b, coordinate(b, square, 1)}, to{&b, coordinate(b, square, 0)};
  return choose(from <= to, x.reshape({1, n}).broadcast(square), 0).sum({1}, false);
}

// How many of `bounds`, [n], are at most each element of `at`, [m]: the number of its group.
Expr group_of(Expr at, Expr bounds) {
  const Dim n = bounds.shape()[0], m = at.shape()[0];
  const Expr passed = bounds.reshape({1, n}) <= at.reshape({m, 1});
  return passed.cast(DType::kI64).sum({1}, false);
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
Expr members(const Groups& groups, Dim total) {
  GraphBuilder& b = *groups.ends.b;
  const Dim count = groups.count;
  const Expr row = Expr{&b, b.iota(DType::kI64, total)}.reshape({1, total});
  return (row >= groups.starts.reshape({count, 1})) & (row < groups.ends.reshape({count, 1}));
}

// Every row with every matrix; a row keeps what its own group's matrix gives. For few rows, and for a
// number of them that is known only at run time.
Expr product_with_all(Expr x, Expr y, const Groups& groups) {
  GraphBuilder& b = *x.b;
  const Dim rows = x.shape()[0], columns = y.shape()[2];
  const Expr spread = x.broadcast({groups.count, rows, x.shape()[1]});
  const Expr every{&b, b.matmul(spread.id, y.id)};
  const Expr mine = members(groups, rows).reshape({groups.count, rows, 1});
  return choose(mine.broadcast({groups.count, rows, columns}), every, 0).sum({0}, false);
}

// The cost of copying a matrix for a block, in rows of a product with it: measured as some 50 on a CPU,
// and estimated as some 300 on a GPU's tensor cores. Reading it costs a third of that.
constexpr int64_t kCopyCost = 128;

struct Blocks {
  int64_t height = 1, count = 0, cost = 0;
};
// The height of blocks that costs least; there are at most `count` of them, however rows are shared out.
Blocks best_blocks(int64_t rows, int64_t groups) {
  Blocks best;
  for (int64_t height = 1; best.count == 0 || height <= rows; height *= 2) {
    const int64_t count = std::min(rows / height + groups, rows);
    const int64_t cost = count * (height + kCopyCost);
    if (best.count == 0 || cost < best.cost) best = {height, count, cost};
  }
  return best;
}

// Blocks of rows of one group each, so that one batched product of blocks does the work of the rows
// there are: a group of n rows takes n / height blocks, rounded up. The last block of a group also
// computes rows that nobody reads.
Expr product_in_blocks(Expr x, Expr y, const Groups& groups) {
  GraphBuilder& b = *x.b;
  const int64_t rows = x.shape()[0].constant(), count = groups.count;
  const Dim depth = x.shape()[1], columns = y.shape()[2];
  const auto [height, blocks, cost] = best_blocks(rows, count);
  const auto pick = [&](Expr table, Expr index) { return Expr{&b, b.gather(table.id, index.id)}; };

  const Expr sizes = max(groups.ends - groups.starts, 0);
  const Expr needed = (sizes + static_cast<double>(height - 1)) / static_cast<double>(height);
  const Expr last_block = running_sum(needed), first_block = last_block - needed;

  const Expr block{&b, b.iota(DType::kI64, blocks)};
  const Expr group = min(group_of(block, last_block), static_cast<double>(count - 1));
  const Expr begin =
      pick(groups.starts, group) + (block - pick(first_block, group)) * static_cast<double>(height);
  const Expr within = Expr{&b, b.iota(DType::kI64, height)}.reshape({1, height});
  const Expr source = min(begin.reshape({blocks, 1}) + within, static_cast<double>(rows - 1));
  const Expr left{&b, b.gather(x.id, source.id)};  // [blocks, height, depth]
  const Expr right = pick(y, group);               // [blocks, depth, columns]
  const Expr product = Expr{&b, b.matmul(left.id, right.id)}.reshape({blocks * height, columns});

  const Expr row{&b, b.iota(DType::kI64, rows)};
  const Expr owner = group_of(row, groups.ends);
  const Expr known = min(owner, static_cast<double>(count - 1));
  const Expr place =
      pick(first_block, known) * static_cast<double>(height) + (row - pick(groups.starts, known));
  const Expr result = pick(product, place);
  const Expr has_owner = (owner < static_cast<double>(count)).reshape({rows, 1});
  return choose(has_owner.broadcast({rows, columns}), result, 0);
}

// x [rows, depth], y [groups, depth, columns]: each group's rows with its matrix. A row of no group
// is 0.
Expr grouped_rows(Call& c, Expr x, Expr y, const Groups& groups) {
  if (!y.shape()[0].is(groups.count)) {
    c.invalid("has another number of matrices than of groups");
    return x;
  }
  const Dim size = x.shape()[0];
  constexpr int64_t kMostRows = int64_t{1} << 40;  // so that costs do not overflow
  if (!size.is_constant() || size.constant() < 1 || size.constant() > kMostRows)
    return product_with_all(x, y, groups);
  const int64_t with_all = groups.count * (size.constant() + kCopyCost / 3);
  return best_blocks(size.constant(), groups.count).cost < with_all
             ? product_in_blocks(x, y, groups)
             : product_with_all(x, y, groups);
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

constexpr Lowering kLowerings[] = {
    {"aten._grouped_mm.default", grouped_mm},
    {"transformers.grouped_mm_fallback.default", grouped_mm_fallback},
    {"aten.histc.default", histc},
};

}  // namespace

std::span<const Lowering> expert_lowerings() {
  return kLowerings;
}

}  // namespace kiln
