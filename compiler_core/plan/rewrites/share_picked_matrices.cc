#include <algorithm>
#include <optional>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/picked_products.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"

namespace kiln {
namespace {

// Whether elements never fall along an axis, or are all alike there.
class Ascent {
 public:
  explicit Ascent(const Graph& graph) : graph_(graph) {}

  bool rises(NodeId id, size_t axis) const {
    const Node& node = graph_.node(id);
    const auto operand = [&](size_t i) { return node.operands[i]; };
    switch (node.op) {
      case Op::kIota:
      case Op::kConstant:
        return true;
      case Op::kView: {
        const Dim& stride = std::get<ViewAttr>(node.attr).strides[axis];
        const Node& x = graph_.node(operand(0));
        if (!stride.is_constant() || stride.constant() < 0) return false;
        return stride.is(0) || (x.shape.size() == 1 && rises(operand(0), 0));
      }
      case Op::kMin:
      case Op::kMax:
      case Op::kAdd:
        return !wraps(node) && rises(operand(0), axis) && rises(operand(1), axis);
      case Op::kLt:
      case Op::kLe:
        return !is_float(graph_.node(operand(0)).dtype) && is_level(operand(0), axis) &&
               rises(operand(1), axis);
      case Op::kCast:  // of what is 0 or 1, or keeps its value
        return is_integer(node.dtype) && keeps(graph_.node(operand(0)).dtype, node.dtype) &&
               rises(operand(0), axis);
      case Op::kReduceSum: {
        size_t below = axis;  // of the operand
        for (const int reduced : std::get<ReduceAttr>(node.attr).axes)
          below += static_cast<size_t>(reduced) <= below;
        return !wraps(node) && rises(operand(0), below);
      }
      default:
        return is_level(id, axis);
    }
  }

 private:
  bool is_level(NodeId id, size_t axis) const {
    const Node& node = graph_.node(id);
    if (node.op == Op::kConstant) return true;
    if (node.op == Op::kView) return std::get<ViewAttr>(node.attr).strides[axis].is(0);
    if (!is_elementwise(node.op)) return false;
    return std::ranges::all_of(node.operands, [&](NodeId x) { return is_level(x, axis); });
  }
  // Sums of i64 stay below 2^63 where they count what memory holds.
  static bool wraps(const Node& node) {
    return (node.op == Op::kAdd || node.op == Op::kReduceSum) && node.dtype != DType::kI64;
  }
  static bool keeps(DType from, DType to) {
    return from == DType::kBool || (is_integer(from) && size_of(from) <= size_of(to));
  }

  const Graph& graph_;
};

// The cost of copying a matrix for a block, in rows of a product with it: measured as some 50 on a CPU,
// and estimated as some 300 on a GPU's tensor cores. Reading it costs a third of that.
constexpr int64_t kCopyCost = 128;

struct Blocks {
  int64_t height = 1, count = 0, cost = 0;
};
// The height of blocks that costs least; there are at most `count` of them, however rows are shared out.
Blocks best_blocks(int64_t rows, int64_t matrices) {
  Blocks best;
  for (int64_t height = 1; best.count == 0 || height <= rows; height *= 2) {
    const int64_t count = std::min(rows / height + matrices, rows);
    const int64_t cost = count * (height + kCopyCost);
    if (best.count == 0 || cost < best.cost) best = {height, count, cost};
  }
  return best;
}

// [rows, 1, k] x Gather(table, owner), as sharing rows have it.
class Sharing {
 public:
  // Sums are of `result`; where `half` is another dtype, they are rounded to it at once.
  Sharing(GraphBuilder& builder, NodeId x, NodeId table, NodeId owner, DType result, DType half)
      : b_(builder),
        x_(x),
        table_(table),
        owner_(owner),
        result_(result),
        half_(half),
        rows_(b_.shape(owner)[0].constant()),
        matrices_(b_.shape(table)[0].constant()),
        depth_(b_.shape(table)[1]),
        columns_(b_.shape(table)[2]) {}

  NodeId run() {
    const int64_t with_all = matrices_ * (rows_ + kCopyCost / 3);
    const Blocks blocks = best_blocks(rows_, matrices_);
    const NodeId result = blocks.cost < with_all ? in_blocks(blocks) : product_with_all();
    return b_.reshape(result, {rows_, 1, columns_});
  }

 private:
  // Every row with every matrix; a row keeps what its own gives.
  NodeId product_with_all() {
    const Shape shape = {matrices_, rows_, columns_};
    const NodeId spread =
        b_.broadcast(b_.reshape(x_, {1, rows_, depth_}), {matrices_, rows_, depth_});
    const NodeId every = multiplied(spread, table_, shape);
    const NodeId mine = b_.binary(Op::kEq, along(owner_, shape, 1),
                                  along(b_.iota(DType::kI64, matrices_), shape, 0));
    const NodeId zero = b_.broadcast(b_.constant(b_.dtype(every), 0), shape);
    return b_.reduce(Op::kReduceSum, b_.select(mine, every, zero), {0});
  }

  // Blocks of rows of one matrix each, so that one batched product of blocks does the work of the rows
  // there are: n rows of one matrix take n / height blocks, rounded up. The last of them also computes
  // rows that nobody reads.
  NodeId in_blocks(const Blocks& blocks) {
    const int64_t height = blocks.height;
    const NodeId ends = ends_of_runs();
    const NodeId before = b_.slice(ends, 0, 0, matrices_ - 1);
    const NodeId starts = b_.pad(before, {1}, {0}, ConstantAttr{});
    const NodeId sizes = b_.binary(Op::kSub, ends, starts);
    const NodeId needed = with(Op::kDiv, with(Op::kAdd, sizes, height - 1), height);
    const NodeId last_block = running_sum(needed);
    const NodeId first_block = b_.binary(Op::kSub, last_block, needed);

    const NodeId block = b_.iota(DType::kI64, blocks.count);
    const NodeId matrix = with(Op::kMin, count_of(last_block, block), matrices_ - 1);
    const NodeId number = b_.binary(Op::kSub, block, b_.gather(first_block, matrix));
    const NodeId begin =
        b_.binary(Op::kAdd, b_.gather(starts, matrix), with(Op::kMul, number, height));
    const Shape places = {blocks.count, height};
    const NodeId at = b_.binary(Op::kAdd, along(begin, places, 0),
                                along(b_.iota(DType::kI64, height), places, 1));
    const NodeId lines = b_.reshape(x_, {rows_, depth_});
    const NodeId left = b_.gather(lines, with(Op::kMin, at, rows_ - 1));
    NodeId product = multiplied(left, b_.gather(table_, matrix), {blocks.count, height, columns_});
    product = b_.reshape(product, {blocks.count * height, columns_});
    if (half_ != result_) product = b_.cast(product, half_);

    const NodeId within =
        b_.binary(Op::kSub, b_.iota(DType::kI64, rows_), b_.gather(starts, owner_));
    const NodeId first = with(Op::kMul, b_.gather(first_block, owner_), height);
    return b_.cast(b_.gather(product, b_.binary(Op::kAdd, first, within)), result_);
  }

  NodeId multiplied(NodeId a, NodeId b, Shape shape) {
    return b_.add({Op::kMatmul, result_, std::move(shape), {a, b}, {}});
  }

  // How many rows have each matrix or one before it.
  NodeId ends_of_runs() {
    const Shape shape = {matrices_, rows_};
    return counted(b_.binary(Op::kLe, along(owner_, shape, 1),
                             along(b_.iota(DType::kI64, matrices_), shape, 0)));
  }
  // How many of `bounds`, which rise, are at most each element of `at`.
  NodeId count_of(NodeId bounds, NodeId at) {
    const Shape shape = {b_.shape(at)[0], b_.shape(bounds)[0]};
    return counted(b_.binary(Op::kLe, along(bounds, shape, 1), along(at, shape, 0)));
  }
  // The sum of a vector of as few as matrices are, up to each of its elements, itself included.
  NodeId running_sum(NodeId x) {
    const Shape square = {matrices_, matrices_};
    const NodeId number = b_.iota(DType::kI64, matrices_);
    const NodeId mine = b_.binary(Op::kLe, along(number, square, 1), along(number, square, 0));
    const NodeId zero = b_.broadcast(b_.constant_int(DType::kI64, 0), square);
    return b_.reduce(Op::kReduceSum, b_.select(mine, along(x, square, 1), zero), {1});
  }

  NodeId counted(NodeId condition) {
    return b_.reduce(Op::kReduceSum, b_.cast(condition, DType::kI64), {1});
  }
  // A vector along `axis` of `shape`.
  NodeId along(NodeId x, const Shape& shape, int axis) {
    return b_.broadcast_in(x, shape, std::span(&axis, 1));
  }
  NodeId with(Op op, NodeId x, int64_t number) {
    return b_.binary(op, x, b_.broadcast(b_.constant_int(DType::kI64, number), b_.shape(x)));
  }

  GraphBuilder& b_;
  const NodeId x_, table_, owner_;
  const DType result_, half_;
  const int64_t rows_, matrices_;
  const Dim depth_, columns_;
};

// Whether each product is of a single row, and how many there are is known.
bool is_shareable(const Graph& graph, const Node& node) {
  const auto picked = picked_matrices(graph, node);
  if (!picked || !node.shape[1].is(1)) return false;
  const Shape &table = graph.node(picked->table).shape, &index = graph.node(picked->index).shape;
  const bool known = table[0].is_constant() && index[0].is_constant();
  return known && table[0].constant() > 0 && index[0].constant() > 0 &&
         Ascent(graph).rises(picked->index, 0);
}

// The half type to which everything that reads `id` rounds it, maybe by way of Views; else its own.
DType rounded_to(const Graph& graph, const std::vector<std::vector<NodeId>>& users, NodeId id) {
  const DType own = graph.node(id).dtype;
  std::optional<DType> half;
  std::vector<NodeId> stack = {id};
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    if (std::ranges::find(graph.outputs(), at) != graph.outputs().end()) return own;
    for (const NodeId reader : users[static_cast<size_t>(at)]) {
      const Node& node = graph.node(reader);
      if (node.op == Op::kView) {
        stack.push_back(reader);
        continue;
      }
      const bool rounds = node.op == Op::kCast && is_half(node.dtype);
      if (!rounds || half.value_or(node.dtype) != node.dtype) return own;
      half = node.dtype;
    }
  }
  return half.value_or(own);
}

}  // namespace

Result<Graph> share_picked_matrices(const Graph& graph, bool in_place) {
  const auto is_shared = [&](const Node& node) {
    return is_shareable(graph, node) && !(in_place && is_picked_product(graph, node));
  };
  if (!std::ranges::any_of(graph.nodes(), is_shared)) return graph;
  const auto users = users_of(graph);
  return rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    if (!is_shared(node)) return emit(b, node, std::move(operands));
    const auto id = static_cast<NodeId>(&node - graph.nodes().data());
    const Node picked = b.node(operands[1]);
    return Sharing(b, operands[0], picked.operands[0], picked.operands[1], node.dtype,
                   rounded_to(graph, users, id))
        .run();
  });
}

}  // namespace kiln
