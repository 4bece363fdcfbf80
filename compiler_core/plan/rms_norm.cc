#include "compiler_core/plan/rms_norm.h"

#include <algorithm>
#include <set>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/plan/joined_products.h"

namespace kiln {
namespace {

constexpr int64_t kChunk = 8;  // elements that are multiplied at once: 16 bytes of bf16

class NormFinder {
 public:
  NormFinder(const Graph& graph, NodeId operand) : graph_(graph), operand_(operand) {}

  std::optional<RmsNorm> run() {
    const Node& operand = node(operand_);
    if (operand.op != Op::kCast || operand.dtype != DType::kBF16 || operand.shape.size() != 2 ||
        !operand.shape[1].is_constant() || operand.shape[1].constant() % kChunk != 0)
      return std::nullopt;
    for (const NodeId scale : scales()) {
      found_ = {};
      nodes_.clear();
      if (!squares_of(scale)) continue;
      found_.scale = scale;
      int rows = 0, scales = 0;
      if (!is_product(operand_, rows, scales) || rows != 1 || scales != 1) continue;
      found_.nodes.assign(nodes_.begin(), nodes_.end());
      return std::move(found_);
    }
    return std::nullopt;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  // What `id` has in order: itself, or the operand of a View that is a reshape.
  NodeId in_order(NodeId id) const {
    while (node(id).op == Op::kView && is_reshape(graph_, node(id))) id = node(id).operands[0];
    return id;
  }

  // Views below Casts and Muls that may repeat a number of each row.
  std::vector<NodeId> scales() const {
    std::vector<NodeId> found, stack = {operand_};
    std::set<NodeId> met;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (!met.insert(id).second || node(id).shape != node(operand_).shape) continue;
      if (node(id).op == Op::kView) found.push_back(id);
      if (node(id).op == Op::kCast || node(id).op == Op::kMul)
        stack.insert(stack.end(), node(id).operands.begin(), node(id).operands.end());
    }
    return found;
  }

  // Whether what `scale` repeats is arithmetic on constants and one sum of squares along the rows.
  bool squares_of(NodeId scale) {
    std::vector<NodeId> stack = {node(scale).operands[0]};
    nodes_.insert(scale);
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      const Node& x = node(id);
      if (x.op == Op::kConstant || !nodes_.insert(id).second) continue;
      if (x.op == Op::kReduceSum) {
        if (found_.squares != kInvalidNode || !are_squares(id)) return false;
        found_.squares = id;
        continue;
      }
      if (!is_elementwise(x.op) && x.op != Op::kView) return false;
      stack.insert(stack.end(), x.operands.begin(), x.operands.end());
    }
    if (found_.squares == kInvalidNode) return false;
    const ReductionSizes sizes = reduction_sizes(graph_, node(found_.squares));
    const Shape& shape = node(operand_).shape;
    return sizes == ReductionSizes{shape[0], shape[1], 1} && is_spread(node(scale), sizes);
  }

  // Whether `sum` is of x * x, where x is widened. Takes x as it lies in order.
  bool are_squares(NodeId sum) {
    const NodeId square = node(sum).operands[0];
    if (node(square).op != Op::kMul || node(square).operands[0] != node(square).operands[1])
      return false;
    const NodeId x = node(square).operands[0];
    if (node(x).op != Op::kCast || node(node(x).operands[0]).dtype != DType::kBF16) return false;
    rows_ = in_order(node(x).operands[0]);
    nodes_.insert({square, x});
    return true;
  }

  // Whether `id` is a product of x, s and w. Counts the first two.
  bool is_product(NodeId id, int& rows, int& scales) {
    if (id == found_.scale) return ++scales, true;
    if (node(id).dtype == DType::kBF16 && in_order(id) == rows_) {
      found_.rows = id;
      return ++rows, true;
    }
    if (is_of_columns(id)) return true;
    const Node& x = node(id);
    if (x.op != Op::kCast && x.op != Op::kMul) return false;
    nodes_.insert(id);
    return std::ranges::all_of(x.operands,
                               [&](NodeId from) { return is_product(from, rows, scales); });
  }

  // Whether `id` is the same in every row: arithmetic on constants and on what w is computed from.
  bool is_of_columns(NodeId id) {
    const Node& x = node(id);
    if (x.op == Op::kView) {
      const Node& source = node(x.operands[0]);
      const auto& view = std::get<ViewAttr>(x.attr);
      if (source.op == Op::kConstant) return true;
      const bool lies = source.op == Op::kInput && view.strides[0].is(0) && view.strides[1].is(1) &&
                        view.offset.is_constant() && view.offset.constant() % kChunk == 0 &&
                        (is_16_bit_float(x.dtype) || x.dtype == DType::kF32);
      if (!lies || (found_.columns != kInvalidNode && found_.columns != id)) return false;
      found_.columns = id;
      found_.columns_dtype = x.dtype;
      return true;
    }
    if (!is_elementwise(x.op) || x.op == Op::kPhilox || x.shape != node(operand_).shape)
      return false;
    const NodeId before = found_.columns;
    if (!std::ranges::all_of(x.operands, [&](NodeId from) { return is_of_columns(from); }))
      return found_.columns = before, false;
    nodes_.insert(id);
    return true;
  }

  const Graph& graph_;
  const NodeId operand_;
  NodeId rows_ = kInvalidNode;  // x, less reshapes
  std::set<NodeId> nodes_;
  RmsNorm found_;
};

int64_t bytes_of_columns(const Graph& graph, const RmsNorm& norm) {
  if (norm.columns == kInvalidNode) return 0;
  return graph.node(norm.columns).shape[1].constant() * size_of(norm.columns_dtype);
}

// Whether a second operand [.., k, n] is one of products that scale their rows.
bool is_short(const Graph& graph, NodeId operand) {
  const Node& x = graph.node(operand);
  const Dim elements = numel(x.shape);
  return elements.is_constant() &&
         elements.constant() <= kMostRmsNormOperand / static_cast<int64_t>(size_of(x.dtype));
}

}  // namespace

std::optional<RmsNorm> find_rms_norm(const Graph& graph, NodeId operand) {
  return NormFinder(graph, operand).run();
}

std::optional<RmsNorm> find_rms_norm_of_product(const Graph& graph,
                                                const std::vector<std::vector<NodeId>>& users,
                                                NodeId matmul) {
  const Node& product = graph.node(matmul);
  if (product.op != Op::kMatmul) return std::nullopt;
  const NodeId operand = product.operands[0];
  const Dim& rows = graph.node(operand).shape[0];
  if (!rows.is_constant() || rows.constant() > kMostRmsNormRows || rows.is(0)) return std::nullopt;
  auto norm = find_rms_norm(graph, operand);
  if (!norm || bytes_of_columns(graph, *norm) > kMostRmsNormWeights) return std::nullopt;
  const auto outputs = graph.outputs();
  const auto is_output = [&](NodeId id) { return std::ranges::find(outputs, id) != outputs.end(); };
  const auto multiplies = [&](NodeId user) {
    const Node& other = graph.node(user);
    return other.op == Op::kMatmul && other.operands[0] == operand &&
           other.operands[1] != operand && other.dtype == DType::kF32 &&
           is_short(graph, other.operands[1]) &&
           line_pitch(graph, other.operands[1], false).has_value();
  };
  // The norm of the same rows is computed elsewhere too where others read what it is made of.
  const auto is_inside = [&](NodeId id) {
    return std::ranges::all_of(users[static_cast<size_t>(id)], [&](NodeId user) {
      return std::ranges::binary_search(norm->nodes, user);
    });
  };
  if (is_output(operand) || !std::ranges::all_of(users[static_cast<size_t>(operand)], multiplies) ||
      !is_inside(norm->squares) || !is_inside(norm->scale))
    return std::nullopt;
  return norm;
}

}  // namespace kiln
