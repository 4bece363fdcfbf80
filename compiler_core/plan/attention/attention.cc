#include "compiler_core/plan/attention/attention.h"

#include <algorithm>
#include <limits>
#include <set>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/fusion/materialised_values.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr size_t kMostNodes = 96;  // of the scores' arithmetic
constexpr int64_t kMostHead = 256;
constexpr int64_t kFewRows = 8, kManyKeys = 512;
constexpr int64_t kBlocksWanted = 128, kClustersWanted = 8;

// How many batches of `query_key` have keys of their own, whichever Views repeat them.
int64_t batches_of_keys(const Graph& graph, const Node& query_key) {
  const Shape batches(query_key.shape.begin(), query_key.shape.end() - 2);
  const Shape& keys = graph.node(query_key.operands[1]).shape;
  NodeId stored = query_key.operands[1];
  while (graph.node(stored).op == Op::kView) stored = graph.node(stored).operands[0];
  const int64_t matrix =
      size_at_hints(graph, keys.back()) * size_at_hints(graph, keys[keys.size() - 2]);
  return std::min(
      size_at_hints(graph, numel(batches)),
      size_at_hints(graph, numel(graph.node(stored).shape)) / std::max(matrix, int64_t{1}));
}

bool pays(const Graph& graph, const Node& query_key, OnePass one_pass) {
  const Dim& rows = query_key.shape[query_key.shape.size() - 2];
  if (one_pass == OnePass::kAlways || size_at_hints(graph, rows) >= kFewRows ||
      size_at_hints(graph, query_key.shape.back()) < kManyKeys)
    return true;
  if (one_pass == OnePass::kManyRows || !rows.is(1)) return false;
  const int64_t enough = one_pass == OnePass::kOneRow ? kBlocksWanted : kClustersWanted;
  return batches_of_keys(graph, query_key) >= enough;
}

bool sizes_fit(const Graph& graph, const Node& query_key, const Node& product, OnePass one_pass) {
  if (query_key.dtype != DType::kF32 || product.dtype != DType::kF32) return false;
  for (const Node* node : {&query_key, &product})
    if (!numel(node->shape).is_valid()) return false;
  const auto is_head = [](const Dim& width) {
    return width.is_constant() && width.constant() >= 1 && width.constant() <= kMostHead;
  };
  return is_head(graph.node(query_key.operands[0]).shape.back()) && is_head(product.shape.back()) &&
         pays(graph, query_key, one_pass) && !query_key.shape.back().is(0);
}

class Matcher {
 public:
  Matcher(const Graph& graph, const std::vector<std::vector<NodeId>>& users, OnePass one_pass)
      : graph_(graph), users_(users), one_pass_(one_pass) {}

  std::optional<AttentionPattern> run(NodeId product) {
    found_.product = product;
    found_.weights = node(product).operands[0];
    if (!weights() || !scores()) return std::nullopt;
    find_log_sums();
    if (!sizes_fit(graph_, node(found_.query_key), node(product), one_pass_)) return std::nullopt;
    if (!row_sum_is_ours() || !nobody_else_reads()) return std::nullopt;
    found_.inside.assign(inside_.begin(), inside_.end());
    return std::move(found_);
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  NodeId operand(NodeId id, size_t i) const { return node(id).operands[i]; }

  // The operand of a View that repeats one value per row along the last axis, however its own axes
  // are written.
  NodeId repeated(NodeId id) const {
    const Node& view = node(id);
    if (view.op != Op::kView || view.shape.empty()) return kInvalidNode;
    Shape rows = view.shape;
    rows.pop_back();
    std::vector<Dim> strides = contiguous_strides(rows);
    strides.emplace_back(0);
    const auto& attr = std::get<ViewAttr>(view.attr);
    for (size_t i = 0; i < view.shape.size(); ++i)
      if (view.shape[i].is(1)) strides[i] = attr.strides[i];
    const bool all = numel(node(view.operands[0]).shape) == numel(rows);
    return all && attr.offset.is(0) && attr.strides == strides ? view.operands[0] : kInvalidNode;
  }

  bool is_row_max(NodeId id) {
    if (id == found_.row_max) return true;
    const Node& view = node(id);
    if (view.op != Op::kView || view.operands[0] != found_.row_max || !is_reshape(graph_, view))
      return false;
    take(id);
    return true;
  }

  // The constant that a View repeats everywhere.
  std::optional<double> constant(NodeId id) const {
    const Node* x = &node(id);
    if (x->op == Op::kView) x = &node(x->operands[0]);
    if (x->op != Op::kConstant || !is_float(x->dtype)) return std::nullopt;
    return std::get<ConstantAttr>(x->attr).as_double();
  }

  NodeId take(NodeId id) {
    inside_.insert(id);
    return id;
  }

  // From the weights down to the sum of e, its exponent, and the row's maximum.
  bool weights() {
    NodeId x = take(found_.weights);
    if (node(x).op == Op::kCast) x = take(operand(x, 0));
    std::optional<NodeId> blind;
    if (node(x).op == Op::kSelect) {  // a row that sees nothing
      if (constant(operand(x, 1)) != 0.0) return false;
      blind = take(operand(x, 0));
      x = take(operand(x, 2));
    }
    if (node(x).op == Op::kDiv) {
      const NodeId sum = repeated(operand(x, 1));
      if (sum == kInvalidNode) return false;
      found_.row_sum = take(sum);
      found_.normalised = true;
      take(operand(x, 1));
      x = take(operand(x, 0));
    }
    if (node(x).op != Op::kExp) return false;
    const NodeId e = x;
    if (!find_sum(e)) return false;
    x = take(operand(e, 0));
    if (node(x).op != Op::kSub) return false;
    found_.scores = operand(x, 0);
    found_.row_max = repeated(take(operand(x, 1)));
    return found_.row_max != kInvalidNode && reduces(take(found_.row_max), Op::kReduceMax) &&
           operand(found_.row_max, 0) == found_.scores && (!blind || is_guard(*blind));
  }

  bool reduces(NodeId id, Op op) const {
    const Node& reduce = node(id);
    if (reduce.op != op) return false;
    const auto& axes = std::get<ReduceAttr>(reduce.attr).axes;
    return axes.size() == 1 &&
           axes[0] == static_cast<int>(node(reduce.operands[0]).shape.size()) - 1;
  }

  bool find_sum(NodeId e) {
    for (NodeId user : users_[static_cast<size_t>(e)])
      if (found_.row_sum == kInvalidNode && reduces(user, Op::kReduceSum))
        found_.row_sum = take(user);
    return found_.row_sum != kInvalidNode && reduces(found_.row_sum, Op::kReduceSum) &&
           operand(found_.row_sum, 0) == e;
  }

  // row_max == -inf, repeated.
  bool is_guard(NodeId blind) {
    const NodeId equal = repeated(blind);
    if (equal == kInvalidNode || node(equal).op != Op::kEq) return false;
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    found_.guarded = true;
    take(equal);
    return (constant(operand(equal, 1)) == kLeast && is_row_max(operand(equal, 0))) ||
           (constant(operand(equal, 0)) == kLeast && is_row_max(operand(equal, 1)));
  }

  void find_log_sums() {
    for (NodeId id : users_[static_cast<size_t>(found_.row_sum)]) {
      const bool reshapes = node(id).op == Op::kView && is_reshape(graph_, node(id)) &&
                            !node(found_.query_key).shape.back().is(1);
      const NodeId log = reshapes ? only_user(id) : id;
      if (log == kInvalidNode || node(log).op != Op::kLog) continue;
      const NodeId add = only_user(log);
      if (add == kInvalidNode || node(add).op != Op::kAdd) continue;
      if (!is_row_max(operand(add, operand(add, 0) == log ? 1 : 0))) continue;
      take(id);
      take(log);
      found_.log_sums = take(add);
      return;
    }
  }
  NodeId only_user(NodeId id) const {
    const auto& users = users_[static_cast<size_t>(id)];
    return users.size() == 1 ? users[0] : kInvalidNode;
  }

  // The arithmetic of the scores: one matmul, and what depends on it is inside.
  bool scores() {
    std::set<NodeId> seen;
    std::vector<NodeId> stack = {found_.scores};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (!seen.insert(id).second) continue;
      if (seen.size() > kMostNodes) return false;
      if (node(id).op == Op::kMatmul && found_.query_key != kInvalidNode) return false;
      if (node(id).op == Op::kMatmul) found_.query_key = id;
      if (!is_elementwise(node(id).op)) continue;
      stack.insert(stack.end(), node(id).operands.begin(), node(id).operands.end());
    }
    if (found_.query_key == kInvalidNode) return false;
    take(found_.query_key);
    for (NodeId id : seen) {  // ascending: operands first
      const auto& operands = node(id).operands;
      if (is_elementwise(node(id).op) &&
          std::any_of(operands.begin(), operands.end(), [&](NodeId x) { return inside_.count(x); }))
        take(id);
    }
    return inside_.count(found_.scores) != 0;
  }

  // Where the weights are e, every other reader of row_sum is the one View that repeats it along
  // the product.
  bool row_sum_is_ours() {
    if (found_.normalised) return true;
    const Node& product = node(found_.product);
    for (NodeId user : users_[static_cast<size_t>(found_.row_sum)]) {
      if (inside_.count(user)) continue;  // their logarithm
      if (node(user).op != Op::kView) return false;
      if (numel(node(user).shape) != numel(product.shape)) return false;
      views_of_sum_.insert(take(user));
    }
    return views_of_sum_.size() <= 1;
  }

  bool nobody_else_reads() const {
    for (NodeId id : graph_.outputs())
      if (inside_.count(id) && id != found_.log_sums) return false;
    for (NodeId id : inside_) {
      if (views_of_sum_.count(id) || id == found_.log_sums) continue;
      for (NodeId user : users_[static_cast<size_t>(id)])
        if (user != found_.product && !inside_.count(user)) return false;
    }
    // The product reads the weights as its first operand only.
    return !inside_.count(operand(found_.product, 1));
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  const OnePass one_pass_;
  AttentionPattern found_;
  std::set<NodeId> inside_, views_of_sum_;
};

}  // namespace

std::optional<AttentionPattern> match_attention(const Graph& graph,
                                                const std::vector<std::vector<NodeId>>& users,
                                                NodeId product, OnePass one_pass) {
  return Matcher(graph, users, one_pass).run(product);
}

std::vector<AttentionPart> attention_parts(const Graph& graph,
                                           const std::vector<std::vector<NodeId>>& users,
                                           OnePass one_pass) {
  std::vector<AttentionPart> parts(static_cast<size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op != Op::kMatmul) continue;
    const auto pattern = match_attention(graph, users, id, one_pass);
    if (!pattern) continue;
    for (NodeId inside : pattern->inside)
      parts[static_cast<size_t>(inside)] = {id, inside == pattern->log_sums};
    parts[static_cast<size_t>(id)] = {id, false};
  }
  return parts;
}

std::optional<AttentionPattern> find_attention(const Graph& graph) {
  NodeId last = kInvalidNode;
  int matmuls = 0;
  const std::vector<bool> live = live_nodes(graph);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (live[static_cast<size_t>(id)] && graph.node(id).op == Op::kMatmul) {
      last = id;
      ++matmuls;
    }
  if (matmuls != 2) return std::nullopt;
  return match_attention(graph, users_of(graph), last, OnePass::kAlways);
}

Result<Graph> lift_attention_casts(const Graph& graph) {
  bool lifted = false;
  TRY(Graph rewritten,
      rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
        const auto is_view = [&](NodeId id) { return b.node(id).op == Op::kView; };
        if (node.op != Op::kCast || !is_half(node.dtype) || !is_view(operands[0]))
          return emit(b, node, std::move(operands));
        const Node reshape = b.node(operands[0]);
        const NodeId reordered = reshape.operands[0];
        if (!is_view(reordered) || b.node(b.node(reordered).operands[0]).op != Op::kMatmul)
          return emit(b, node, std::move(operands));
        lifted = true;
        const auto& view = std::get<ViewAttr>(reshape.attr);
        return b.view(b.cast(reordered, node.dtype), reshape.shape, view.strides, view.offset);
      }));
  if (!lifted) return graph;
  return rewrite_nodes(rewritten, emit);  // without the reshapes that nobody reads any more
}

AttentionOutputs attention_outputs(const Graph& graph, const AttentionPattern& pattern) {
  AttentionOutputs found;
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    (graph.outputs()[i] == pattern.log_sums ? found.log_sums : found.result) = static_cast<int>(i);
  return found;
}

NodeId attention_result(const Graph& graph, const AttentionPattern& pattern) {
  NodeId only = kInvalidNode;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const auto& operands = graph.node(id).operands;
    if (std::find(operands.begin(), operands.end(), pattern.product) == operands.end()) continue;
    if (only != kInvalidNode) return pattern.product;
    only = id;
  }
  for (NodeId id : graph.outputs())
    if (id == pattern.product) return pattern.product;
  return only != kInvalidNode && graph.node(only).op == Op::kView ? only : pattern.product;
}

}  // namespace kiln
