#include "compiler_core/plan/attention/attention_gradient.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

constexpr size_t kMostArithmetic = 96;  // of the weights' arithmetic
constexpr int64_t kMostWidth = 128, kFewTokens = 64;
constexpr size_t kMostAxes = 5;

// Where an operand's elements lie in the value that it is, or is a View of.
struct Place {
  NodeId value = kInvalidNode;
  Dim offset = 0;
  std::vector<Dim> strides;
};

class Finder {
 public:
  Finder(const Graph& graph, const std::vector<std::vector<NodeId>>& users)
      : graph_(graph), users_(users), is_output_(outputs_of(graph)) {}

  std::vector<AttentionGradient> run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (node(id).op == Op::kMatmul)
        for (const bool over_rows : {false, true}) consider(id, over_rows);
    std::vector<AttentionGradient> found;
    for (const auto& [key, kernel] : kernels_)
      if (nobody_else_reads(kernel)) found.push_back(kernel);
    return found;
  }

 private:
  using Scores = std::vector<NodeId>;  // one or two products, ascending
  using Key = std::pair<Scores, bool>;
  struct Weights {
    Scores scores;
    std::vector<NodeId> arithmetic;
  };

  const Node& node(NodeId id) const { return graph_.node(id); }
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<size_t>(id)]; }

  // Notes the product in the kernel that it is of.
  void consider(NodeId id, bool over_rows) {
    const NodeId at = node(id).operands[over_rows ? 1 : 0];
    const auto weights = weights_of(at);
    if (!weights || weights->scores.size() != 2) return;
    const auto made = product_of(id, at, over_rows, weights->scores);
    if (!made || !sizes_fit(weights->scores)) return;
    AttentionGradient kernel;
    kernel.over_rows = over_rows;
    add(kernel, *made, *weights);
    // A product with the other operand: the weights may be of one score product alone.
    for (NodeId other = 0; other < graph_.size(); ++other) {
      if (other == id || node(other).op != Op::kMatmul) continue;
      const NodeId others = node(other).operands[over_rows ? 1 : 0];
      const auto more = weights_of(others);
      if (!more || !std::ranges::includes(weights->scores, more->scores)) continue;
      const auto beside = product_of(other, others, over_rows, weights->scores);
      if (!beside || beside->of_first == made->of_first) continue;
      add(kernel, *beside, *more);
      break;
    }
    kernel.first = weights->scores[0];
    kernel.second = weights->scores[1];
    finish(kernel);
    const Key key{weights->scores, over_rows};
    if (const auto known = kernels_.find(key);
        known == kernels_.end() || known->second.products.size() < kernel.products.size())
      kernels_[key] = std::move(kernel);
  }

  void add(AttentionGradient& kernel, const GradientProduct& product, const Weights& weights) {
    kernel.products.push_back(product);
    kernel.inside.insert(kernel.inside.end(), weights.arithmetic.begin(), weights.arithmetic.end());
    kernel.inside.insert(kernel.inside.end(), weights.scores.begin(), weights.scores.end());
    kernel.inside.push_back(product.product);
    for (NodeId id = product.end; id != product.product; id = node(id).operands[0])
      kernel.inside.push_back(id);
  }
  static void finish(AttentionGradient& kernel) {
    std::ranges::sort(kernel.inside);
    const auto same = std::ranges::unique(kernel.inside);
    kernel.inside.erase(same.begin(), same.end());
    std::ranges::sort(kernel.products, {}, &GradientProduct::end);
  }

  // What `id` is computed from, where it is arithmetic on one or two products of its shape.
  std::optional<Weights> weights_of(NodeId id) const {
    const Node& rounded = node(id);
    if (!is_half(rounded.dtype) || !is_elementwise(rounded.op)) return std::nullopt;
    std::set<NodeId> scores, seen;
    std::vector<NodeId> stack = {id};
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second) continue;
      if (seen.size() > kMostArithmetic) return std::nullopt;
      const Node& x = node(at);
      if (x.op == Op::kMatmul) {
        if (x.shape != rounded.shape || x.dtype != DType::kF32) return std::nullopt;
        scores.insert(at);
      } else if (is_elementwise(x.op)) {
        if (x.shape != rounded.shape) return std::nullopt;
        stack.insert(stack.end(), x.operands.begin(), x.operands.end());
      } else if (x.op != Op::kView && x.op != Op::kInput && traits(x.op).kind != OpKind::kSource) {
        return std::nullopt;
      }
    }
    if (scores.empty() || scores.size() > 2) return std::nullopt;
    Weights weights;
    weights.scores.assign(scores.begin(), scores.end());
    // Masks, for one, depend on no product: other kernels may have the same.
    std::set<NodeId> depends = scores;
    for (NodeId at : seen) {  // ascending: operands first
      const auto& operands = node(at).operands;
      if (!is_elementwise(node(at).op) ||
          std::ranges::none_of(operands, [&](NodeId x) { return depends.count(x) != 0; }))
        continue;
      depends.insert(at);
      weights.arithmetic.push_back(at);
    }
    return weights;
  }

  std::optional<GradientProduct> product_of(NodeId id, NodeId weights, bool over_rows,
                                            const Scores& scores) const {
    GradientProduct made{id, weights, end_of(id, over_rows), true};
    const NodeId other = node(id).operands[over_rows ? 0 : 1];
    if (made.end == kInvalidNode || node(other).dtype != node(weights).dtype) return std::nullopt;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (!lies_as(other, node(scores[i]).operands[over_rows ? 0 : 1])) continue;
      made.of_first = i == 0;
      return made;
    }
    return std::nullopt;
  }

  std::optional<Place> place_of(NodeId id) const {
    const Node& x = node(id);
    if (x.op != Op::kView) return Place{id, 0, contiguous_strides(x.shape)};
    if (node(x.operands[0]).op == Op::kView) return std::nullopt;
    const auto& view = std::get<ViewAttr>(x.attr);
    return Place{x.operands[0], view.offset, view.strides};
  }
  // Whether `a`, with its two last axes exchanged, has the elements of `b`.
  bool lies_as(NodeId a, NodeId b) const {
    const auto one = place_of(a), other = place_of(b);
    if (!one || !other || one->value != other->value || one->offset != other->offset) return false;
    Shape shape = node(a).shape;
    std::vector<Dim> strides = one->strides;
    const size_t rank = shape.size();
    std::swap(shape[rank - 1], shape[rank - 2]);
    std::swap(strides[rank - 1], strides[rank - 2]);
    if (shape != node(b).shape) return false;
    for (size_t i = 0; i < rank; ++i)
      if (!shape[i].is(1) && strides[i] != other->strides[i]) return false;
    return true;
  }

  // The rounding of a product; kInvalidNode: it is something else.
  NodeId end_of(NodeId product, bool over_rows) const {
    NodeId id = product;
    if (only_user(id) != kInvalidNode && node(only_user(id)).op == Op::kView) {
      id = only_user(id);
      if (!puts_width_last(node(id), node(product), over_rows)) return kInvalidNode;
    } else if (over_rows) {
      return kInvalidNode;
    }
    const NodeId end = only_user(id);
    return end != kInvalidNode && node(end).op == Op::kCast && is_half(node(end).dtype)
               ? end
               : kInvalidNode;
  }
  NodeId only_user(NodeId id) const {
    return users(id).size() == 1 && !is_output_[static_cast<size_t>(id)] ? users(id)[0]
                                                                         : kInvalidNode;
  }
  static bool puts_width_last(const Node& view, const Node& product, bool over_rows) {
    const auto& attr = std::get<ViewAttr>(view.attr);
    const std::vector<Dim> strides = contiguous_strides(product.shape);
    const size_t rank = product.shape.size(), width = over_rows ? rank - 2 : rank - 1;
    if (!attr.offset.is(0) || view.shape.back() != product.shape[width] ||
        attr.strides.back() != strides[width])
      return false;
    std::vector<std::pair<Dim, Dim>> axes, expected;  // stride, size
    for (size_t i = 0; i < view.shape.size(); ++i)
      if (!view.shape[i].is(1)) axes.emplace_back(attr.strides[i], view.shape[i]);
    for (size_t i = 0; i < rank; ++i)
      if (!product.shape[i].is(1)) expected.emplace_back(strides[i], product.shape[i]);
    std::ranges::sort(axes);
    std::ranges::sort(expected);
    return axes == expected;
  }

  bool sizes_fit(const Scores& scores) const {
    for (NodeId id : scores) {
      const Node& x = node(id);
      if (!is_constant(x.shape) || !is_constant(node(x.operands[0]).shape) ||
          x.shape.size() > kMostAxes)
        return false;
      const int64_t width = node(x.operands[0]).shape.back().constant();
      const int64_t rows = x.shape[x.shape.size() - 2].constant(), keys = x.shape.back().constant();
      if (width > kMostWidth || width % 8 != 0 || rows < kFewTokens || keys < kFewTokens)
        return false;
      for (NodeId operand : x.operands)
        if (!is_half(node(operand).dtype) || node(operand).dtype != node(x.operands[0]).dtype)
          return false;
    }
    return node(node(scores[0]).operands[0]).dtype == node(node(scores[1]).operands[0]).dtype;
  }

  // Kernels of the same two score products may each compute what is between these and their own products.
  bool nobody_else_reads(const AttentionGradient& kernel) const {
    std::set<NodeId> known;
    for (const bool over_rows : {false, true}) {
      const Key key{
          Scores{std::min(kernel.first, kernel.second), std::max(kernel.first, kernel.second)},
          over_rows};
      if (const auto other = kernels_.find(key); other != kernels_.end())
        known.insert(other->second.inside.begin(), other->second.inside.end());
    }
    std::set<NodeId> ends;
    for (const GradientProduct& each : kernel.products) ends.insert(each.end);
    return std::ranges::all_of(kernel.inside, [&](NodeId id) {
      if (ends.count(id)) return true;
      return !is_output_[static_cast<size_t>(id)] &&
             std::ranges::all_of(users(id), [&](NodeId user) { return known.count(user) != 0; });
    });
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  std::vector<bool> is_output_;
  std::map<Key, AttentionGradient> kernels_;
};

tl::unexpected<Error> refuse(const Node& node, std::string_view rule) {
  return fail(Code::kUnsupported, std::string(to_string(node.op)) + " " +
                                      std::string(to_string(node.dtype)) + to_string(node.shape) +
                                      ": " + std::string(rule));
}

}  // namespace

std::vector<AttentionGradient> attention_gradients(const Graph& graph,
                                                   const std::vector<std::vector<NodeId>>& users) {
  return Finder(graph, users).run();
}

std::optional<AttentionGradient> find_attention_gradient(const Graph& graph) {
  const auto found = attention_gradients(graph, users_of(graph));
  return found.size() == 1 ? std::optional(found[0]) : std::nullopt;
}

Status check_attention_gradient(const Graph& graph) {
  const AttentionGradient kernel = *find_attention_gradient(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& x = graph.node(id);
    const bool reads_leaf = x.op == Op::kView && is_leaf(graph.node(x.operands[0]).op);
    const bool of_scores = is_elementwise(x.op) && x.shape == graph.node(kernel.first).shape;
    if (!is_leaf(x.op) && !reads_leaf && !of_scores &&
        !std::ranges::binary_search(kernel.inside, id))
      return refuse(x, "is no part of a gradient's kernel");
  }
  std::vector<NodeId> ends;
  for (const GradientProduct& each : kernel.products) ends.push_back(each.end);
  std::vector<NodeId> outputs(graph.outputs().begin(), graph.outputs().end());
  std::ranges::sort(outputs);
  if (outputs != ends)
    return refuse(graph.node(kernel.first), "the outputs of a gradient's kernel are its products");
  return {};
}

}  // namespace kiln
