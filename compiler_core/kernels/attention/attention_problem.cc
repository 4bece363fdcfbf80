#include "compiler_core/kernels/attention/attention_problem.h"

#include <algorithm>
#include <limits>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {}  // namespace

AttentionOperand attention_operand(const Graph& graph, NodeId id, bool tokens_last) {
  const Node& node = graph.node(id);
  std::vector<Dim> strides = contiguous_strides(node.shape);
  AttentionOperand operand;
  const Node* source = &node;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    strides = view.strides;
    operand.offset = view.offset;
    source = &graph.node(node.operands[0]);
  }
  CHECK(source->op == Op::kInput, "an attention's operands are views of inputs");
  operand.input = std::get<InputAttr>(source->attr).index;
  for (size_t axis = 0; axis + 2 < strides.size(); ++axis)
    operand.batch_strides.push_back(strides[axis]);
  operand.row_stride = strides[strides.size() - (tokens_last ? 1 : 2)];
  operand.column_stride = strides[strides.size() - (tokens_last ? 2 : 1)];
  return operand;
}

namespace {

// Finds out what a mask of the scores says whatever the inputs are.
class Mask {
 public:
  Mask(const Graph& graph, NodeId scores)
      : graph_(graph),
        rank_(graph.node(scores).shape.size()),
        rows_(graph.node(scores).shape[rank_ - 2]),
        keys_(graph.node(scores).shape[rank_ - 1]) {}

  // Sets reach and past, and scores_within where the mask has no other condition.
  void find(NodeId scores, AttentionProblem& problem) const {
    const Node& select = node(scores);
    if (select.op != Op::kSelect) return find_added(scores, problem);
    const bool keeps = is_least(select.operands[2]);  // select(seen, x, -inf)
    if (!keeps && !is_least(select.operands[1])) return;
    Bounds bounds;
    const bool alone = find_bounds(select.operands[0], keeps, bounds);
    problem.reach = bounds.reach;
    problem.past = bounds.past;
    if (alone && (bounds.reach || bounds.past))
      problem.scores_within = select.operands[keeps ? 1 : 2];
  }

  // Sets scaled and scale.
  void find_scale(const AttentionPattern& pattern, AttentionProblem& problem) const {
    problem.scaled = pattern.query_key;
    NodeId id = pattern.scores;
    if (const Node& select = node(id); select.op == Op::kSelect)
      id = is_least(select.operands[2])   ? select.operands[1]
           : is_least(select.operands[1]) ? select.operands[2]
                                          : id;
    const Node& x = node(id);
    if (x.op != Op::kMul || x.dtype != DType::kF32) return;
    const bool first = x.operands[0] == pattern.query_key;
    if (!first && x.operands[1] != pattern.query_key) return;
    const Node* by = &node(x.operands[first ? 1 : 0]);
    if (by->op == Op::kView) by = &node(by->operands[0]);
    if (by->op != Op::kConstant) return;
    if (std::ranges::count_if(graph_.nodes(), [&](const Node& user) {
          return std::ranges::find(user.operands, pattern.query_key) != user.operands.end();
        }) != 1)
      return;
    const double scale = std::get<ConstantAttr>(by->attr).as_double();
    if (!(scale > 0 && scale < kMostScale)) return;
    problem.scaled = id;
    problem.scale = scale;
  }

 private:
  static constexpr double kMostScale = 1 << 20;

  const Node& node(NodeId id) const { return graph_.node(id); }

  // x + select(seen, 0, the least finite number): beside a score that a row sees, all others weigh
  // nothing, as with -inf. A row that sees none would weigh all keys alike, so each has to see its own.
  void find_added(NodeId scores, AttentionProblem& problem) const {
    const Node& add = node(without_casts(scores));
    if (add.op != Op::kAdd) return;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const Node& select = node(without_casts(add.operands[side]));
      if (select.op != Op::kSelect) continue;
      const bool keeps = is_zero(select.operands[1]) && is_far(select.operands[2]);
      if (!keeps && !(is_far(select.operands[1]) && is_zero(select.operands[2]))) continue;
      Bounds bounds;
      if (!find_bounds(select.operands[0], keeps, bounds) || !each_row_sees_its_own(bounds))
        continue;
      problem.reach = bounds.reach;
      problem.past = bounds.past;
      const NodeId x = add.operands[1 - side];
      if (!is_rounded(scores) || is_rounded(x)) problem.scores_within = x;
      return;
    }
  }

  // Whether it has the values of a half.
  bool is_rounded(NodeId id) const {
    for (; node(id).op == Op::kCast; id = node(id).operands[0])
      if (is_half(node(id).dtype)) return true;
    return is_half(node(id).dtype);
  }

  NodeId without_casts(NodeId id) const {
    while (node(id).op == Op::kCast && is_float(node(node(id).operands[0]).dtype))
      id = node(id).operands[0];
    return id;
  }

  std::optional<double> constant(NodeId id) const {
    const Node* x = &node(id);
    if (x->op == Op::kView) x = &node(x->operands[0]);
    if (x->op != Op::kConstant || !is_float(x->dtype)) return std::nullopt;
    return std::get<ConstantAttr>(x->attr).as_double();
  }
  bool is_least(NodeId id) const {
    return constant(id) == -std::numeric_limits<double>::infinity();
  }
  bool is_zero(NodeId id) const { return constant(id) == 0.0; }
  // So far below scores that their exponentials beside one of these are 0.
  bool is_far(NodeId id) const {
    constexpr double kFar = -1e30;
    const auto value = constant(id);
    return value && *value <= kFar;
  }

  struct Affine {  // key * key's place + row * row's place + constant
    Dim key = 0, row = 0, constant = 0;
    Affine operator-(const Affine& b) const {
      return {key - b.key, row - b.row, constant - b.constant};
    }
    Affine operator+(const Affine& b) const {
      return {key + b.key, row + b.row, constant + b.constant};
    }
  };
  struct Bounds {
    std::optional<Dim> reach, past;  // key - row <= reach, row - key <= past
  };

  bool each_row_sees_its_own(const Bounds& bounds) const {
    const auto allows = [](const std::optional<Dim>& bound) {
      return !bound || (bound->is_constant() && bound->constant() >= 0);
    };
    return (bounds.reach || bounds.past) && allows(bounds.reach) && allows(bounds.past) &&
           rows_.is_constant() && keys_.is_constant() && rows_.constant() <= keys_.constant();
  }

  // What holds wherever `condition` is `seen`; whether it says nothing else.
  bool find_bounds(NodeId condition, bool seen, Bounds& bounds) const {
    bool alone = true;
    std::vector<std::pair<NodeId, bool>> stack = {{condition, seen}};
    while (!stack.empty()) {
      const auto [id, holds] = stack.back();
      stack.pop_back();
      const Node& x = node(id);
      if (x.op == Op::kNot) {
        stack.emplace_back(x.operands[0], !holds);
      } else if (x.op == (holds ? Op::kAnd : Op::kOr)) {
        for (NodeId operand : x.operands) stack.emplace_back(operand, holds);
      } else {
        const bool found = add_bounds(x, holds, bounds);
        alone = alone && found;
      }
    }
    return alone;
  }

  // a <= b is a - b <= 0; its opposite b - a <= -1; |a| <= b is a <= b and -a <= b.
  bool add_bounds(const Node& compare, bool holds, Bounds& bounds) const {
    if (compare.op != Op::kLe && compare.op != Op::kLt) return false;
    const Node& left = node(compare.operands[0]);
    const bool both = left.op == Op::kAbs && holds;
    const auto a = affine(both ? left.operands[0] : compare.operands[0]);
    const auto b = affine(compare.operands[1]);
    if (!a || !b) return false;
    const bool strict = (compare.op == Op::kLt) == holds;
    const Affine difference = holds ? *a - *b : *b - *a;
    return add_bound(difference, strict, bounds) &&
           (!both || add_bound(Affine{} - *a - *b, strict, bounds));
  }
  // difference <= 0, or < 0.
  static bool add_bound(const Affine& difference, bool strict, Bounds& bounds) {
    const bool ahead = difference.key.is(1) && difference.row.is(-1);
    const bool behind = difference.key.is(-1) && difference.row.is(1);
    std::optional<Dim>& bound = ahead ? bounds.reach : bounds.past;
    if ((!ahead && !behind) || bound) return false;
    bound = difference.constant * -1 - (strict ? 1 : 0);
    return true;
  }

  std::optional<Affine> affine(NodeId id) const {
    const Node& x = node(id);
    if (is_float(x.dtype)) return std::nullopt;
    if (x.op == Op::kView) return view_of_iota(x);
    if (x.op != Op::kAdd && x.op != Op::kSub) return std::nullopt;
    const auto a = leaf(x.operands[0]), b = leaf(x.operands[1]);
    if (!a || !b) return std::nullopt;
    return x.op == Op::kAdd ? *a + *b : *a - *b;
  }
  std::optional<Affine> leaf(NodeId id) const {
    return node(id).op == Op::kView && !is_float(node(id).dtype) ? view_of_iota(node(id))
                                                                 : std::nullopt;
  }
  std::optional<Affine> view_of_iota(const Node& x) const {
    const auto& view = std::get<ViewAttr>(x.attr);
    const Node& source = node(x.operands[0]);
    if (source.op == Op::kConstant)
      return Affine{0, 0, std::get<ConstantAttr>(source.attr).as_int()};
    if (source.op != Op::kIota || x.shape.size() != rank_) return std::nullopt;
    for (size_t i = 0; i + 2 < rank_; ++i)
      if (!view.strides[i].is(0)) return std::nullopt;
    return Affine{view.strides[rank_ - 1], view.strides[rank_ - 2], view.offset};
  }

  const Graph& graph_;
  const size_t rank_;
  const Dim rows_, keys_;
};

// Which axis of the product each axis of the result is.
std::vector<int> axes_of_result(const Graph& graph, const AttentionProblem& problem) {
  const Shape& product = graph.node(problem.pattern.product).shape;
  const std::vector<Dim> strides = contiguous_strides(product);
  const Node& result = graph.node(problem.result);
  const auto rank = static_cast<int>(product.size());
  std::vector<int> axes;
  std::vector<bool> used(product.size(), false);
  for (int i = 0; i < rank; ++i) {
    int found = i;
    if (problem.result != problem.pattern.product && i + 1 < rank) {
      const auto& view = std::get<ViewAttr>(result.attr);
      for (int j = 0; j + 1 < rank; ++j) {
        const auto at = static_cast<size_t>(j), here = static_cast<size_t>(i);
        if (used[at] || product[at] != result.shape[here]) continue;
        if (product[at].is(1) || view.strides[here] == strides[at]) found = j;
      }
    }
    used[static_cast<size_t>(found)] = true;
    axes.push_back(found);
  }
  return axes;
}

}  // namespace

std::optional<Dim> reach_of_mask(const Graph& graph, NodeId scores) {
  AttentionProblem problem;
  Mask(graph, scores).find(scores, problem);
  const bool alone = problem.scores_within != kInvalidNode && !problem.past;
  return alone ? problem.reach : std::nullopt;
}

AttentionProblem AttentionProblem::of(const Graph& workload) {
  auto pattern = find_attention(workload);
  CHECK(pattern, "an attention workload has its pattern");
  AttentionProblem problem;
  problem.pattern = *std::move(pattern);
  problem.outputs = attention_outputs(workload, problem.pattern);
  problem.result = attention_result(workload, problem.pattern);
  const Node& first = workload.node(problem.pattern.query_key);
  const Node& second = workload.node(problem.pattern.product);
  problem.stored = workload.node(first.operands[0]).dtype;
  const Shape& sizes = first.shape;
  problem.batch.assign(sizes.begin(), sizes.end() - 2);
  for (const Dim& size : problem.batch) problem.batches = problem.batches * size;
  problem.rows = sizes[sizes.size() - 2];
  problem.keys = sizes.back();
  problem.depth = workload.node(first.operands[0]).shape.back().constant();
  problem.columns = second.shape.back().constant();
  problem.query = attention_operand(workload, first.operands[0], false);
  problem.key = attention_operand(workload, first.operands[1], true);
  problem.value = attention_operand(workload, second.operands[1], false);
  problem.result_axes = axes_of_result(workload, problem);
  if (!problem.pattern.normalised)
    for (NodeId id = 0; id < workload.size(); ++id)
      if (workload.node(id).op == Op::kView &&
          workload.node(id).operands[0] == problem.pattern.row_sum)
        problem.sum_view = id;
  const Mask mask(workload, problem.pattern.scores);
  mask.find(problem.pattern.scores, problem);
  mask.find_scale(problem.pattern, problem);
  return problem;
}

AttentionProblem AttentionProblem::with_heads_as_rows() const {
  if (!rows.is(1)) return *this;
  for (size_t axis = 0; axis < batch.size(); ++axis) {
    if (batch[axis].is(1) || !batch[axis].is_constant() || !key.batch_strides[axis].is(0) ||
        !value.batch_strides[axis].is(0))
      continue;
    AttentionProblem packed = *this;
    packed.heads_axis = static_cast<int>(axis);
    packed.rows = batch[axis];
    packed.query.row_stride = query.batch_strides[axis];
    packed.batch[axis] = 1;
    packed.batches = 1;
    for (const Dim& size : packed.batch) packed.batches = packed.batches * size;
    // What a mask says of one row it does not say of others; scores have it in any case.
    packed.reach.reset();
    packed.past.reset();
    packed.scores_within = kInvalidNode;
    return packed;
  }
  return *this;
}

}  // namespace kiln
