// arrange_attention: the batch axes of an attention kernel, split and joined.
#include <algorithm>
#include <map>
#include <set>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/axis_cuts.h"
#include "compiler_core/plan/fusion/materialised_values.h"

namespace kiln {
namespace {

Shape shape_of(const Shape& batch, std::initializer_list<Dim> rest) {
  Shape shape = batch;
  shape.insert(shape.end(), rest);
  return shape;
}

class Arranger {
 public:
  Arranger(const Graph& graph, const AttentionPattern& pattern)
      : graph_(graph), pattern_(pattern), result_(attention_result(graph, pattern)) {}

  // Whether batch axes can be split so that this View of the scores' shape becomes a View of a leaf.
  bool splits(NodeId view) const {
    const Shape &scores = node(pattern_.query_key).shape,
                &inner = node(node(view).operands[0]).shape;
    if (node(view).shape != scores || inner.size() < 2 ||
        !std::equal(inner.end() - 2, inner.end(), scores.end() - 2) ||
        !is_reshape(graph_, node(view)))
      return false;
    AxisCuts cuts = product_cuts();
    add_cuts(view, *cuts.rbegin(), cuts);
    return sizes_between(cuts).has_value();
  }

  Result<Graph> run() {
    AxisCuts cuts = product_cuts();
    const Dim batches = *cuts.rbegin();
    for (NodeId id = 0; id < pattern_.scores; ++id)
      if (is_view_of_view(id) && splits(id)) add_cuts(id, batches, cuts);
    if (!sizes_between(cuts)) return graph_;
    TRY(Graph finest, rebuild(*sizes_between(cuts)));
    for (auto cut = cuts.begin(); cut != cuts.end();) {
      AxisCuts fewer = cuts;
      if (!cut->is(1) && *cut != batches) fewer.erase(*cut);
      auto joined = fewer == cuts ? Result<Graph>(finest) : rebuild(*sizes_between(fewer));
      const bool keeps =
          fewer != cuts && joined && joined->size() <= finest.size() && views_read_leaves(*joined);
      const Dim tried = *cut;
      if (keeps) {
        finest = *std::move(joined);
        cuts = std::move(fewer);
      }
      cut = cuts.upper_bound(tried);
    }
    return finest;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  bool is_view_of_view(NodeId id) const {
    return node(id).op == Op::kView && node(node(id).operands[0]).op == Op::kView;
  }

  // The cuts between axes that the matmuls' operands and the result keep apart.
  AxisCuts product_cuts() const {
    const Shape& shape = node(pattern_.query_key).shape;
    AxisCuts cuts = axis_cuts(Shape(shape.begin(), shape.end() - 2));
    const Dim batches = *cuts.rbegin();
    for (NodeId matmul : {pattern_.query_key, pattern_.product})
      for (NodeId operand : node(matmul).operands) add_cuts(operand, batches, cuts);
    add_result_cuts(cuts);
    return cuts;
  }

  // Where an operand is a View of a View, the inner one's axes have to be kept apart.
  void add_cuts(NodeId operand, const Dim& batches, AxisCuts& cuts) const {
    if (is_elementwise(node(operand).op))
      for (NodeId id : node(operand).operands) add_cuts(id, batches, cuts);
    for (NodeId id = operand; node(id).op == Op::kView; id = node(id).operands[0]) {
      Shape sizes;
      Dim count = 1;
      for (const Dim& size : node(id).shape) {
        if (count == batches) break;
        sizes.push_back(size);
        count = count * size;
      }
      if (count != batches) continue;
      for (const Dim& cut : axis_cuts(sizes)) cuts.insert(cut);
    }
  }

  // Axes that change places are apart.
  void add_result_cuts(AxisCuts& cuts) const {
    if (result_ == pattern_.product) return;
    const Shape& product = node(pattern_.product).shape;
    const Dim matrix = product.back() * product[product.size() - 2];
    const Node& view = node(result_);
    for (size_t u = 0; u < view.shape.size(); ++u) {
      const Dim& stride = std::get<ViewAttr>(view.attr).strides[u];
      const auto matrices = Dim::divide_exact(stride, matrix);
      if (!stride.is(0) && matrices) cuts.insert({*matrices, *matrices * view.shape[u]});
    }
  }

  // Whether every View reads a leaf, or repeats one value per row.
  static bool views_read_leaves(const Graph& graph) {
    return std::none_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& view) {
      return view.op == Op::kView && graph.node(view.operands[0]).op == Op::kView;
    });
  }

  // The same kernel with the batch axes `batch`.
  Result<Graph> rebuild(const Shape& batch) {
    builder_ = GraphBuilder();
    for (const Symbol& symbol : graph_.symbols()) builder_.symbol(symbol.range, symbol.hint);
    builder_.carry_origins(graph_);
    map_.clear();
    batch_ = batch;
    find_result_axes();
    for (NodeId id : graph_.inputs())
      map_[id] = builder_.input(node(id).dtype, {numel(node(id).shape)});
    const Shape& scores = node(pattern_.query_key).shape;
    const Dim m = scores[scores.size() - 2], n = scores.back();
    const Dim k = node(node(pattern_.query_key).operands[0]).shape.back();
    const Dim d = node(pattern_.product).shape.back();
    copy_operand(node(pattern_.query_key).operands[0], {m, k});
    copy_operand(node(pattern_.query_key).operands[1], {k, n});
    copy_operand(node(pattern_.product).operands[1], {n, d});
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_score(id)) copy(id, scores, shape_of(batch, {m, n}), shape_of(batch, {m}));
    copy(pattern_.product, {}, shape_of(batch, {m, d}), {});
    copy_epilogue(shape_of(batch, {m, d}));
    if (builder_.error()) return tl::unexpected(*builder_.error());
    std::vector<NodeId> outputs;
    for (NodeId id : graph_.outputs()) outputs.push_back(map_.at(id));
    return builder_.finish(std::move(outputs));
  }

  bool is_score(NodeId id) {
    if (score_.empty()) {
      std::vector<NodeId> wanted = {pattern_.weights, pattern_.row_sum};
      if (pattern_.log_sums != kInvalidNode) wanted.push_back(pattern_.log_sums);
      score_ = needed_by(std::move(wanted), {});
    }
    return score_.count(id) != 0;
  }
  // The nodes that `from` depend on, down to matmuls, inputs and `given` nodes.
  std::set<NodeId> needed_by(std::vector<NodeId> from, const std::set<NodeId>& given) const {
    std::set<NodeId> needed;
    while (!from.empty()) {
      const NodeId id = from.back();
      from.pop_back();
      if (node(id).op == Op::kInput || given.count(id) || !needed.insert(id).second) continue;
      if (node(id).op == Op::kMatmul) continue;
      from.insert(from.end(), node(id).operands.begin(), node(id).operands.end());
    }
    return needed;
  }

  // An operand is declared with its two last axes; the batch axes are divided anew.
  void copy_operand(NodeId id, std::initializer_list<Dim> rest) {
    operands_[id] = copy_value(id, shape_of(batch_, rest));
  }

  // What an operand is, or is computed of, in another shape of as many elements.
  NodeId copy_value(NodeId id, const Shape& shape) {
    std::vector<NodeId> chain = {id};
    while (node(chain.back()).op == Op::kView) chain.push_back(node(chain.back()).operands[0]);
    const Node& source = node(chain.back());
    builder_.set_origin(graph_.origin_of(id));
    if (chain.size() == 1 && is_elementwise(source.op)) return copy_computed(source, shape);
    NodeId x = kInvalidNode;
    if (source.op == Op::kInput) {
      x = builder_.reshape(map_.at(chain.back()), source.shape);
    } else if (is_elementwise(source.op)) {
      x = copy_computed(source, source.shape);
    } else if (source.op == Op::kGather || traits(source.op).kind == OpKind::kSource) {
      Node made = source;
      for (NodeId& operand : made.operands) operand = copy_value(operand, node(operand).shape);
      x = builder_.add(std::move(made));
    } else {
      return builder_.fail_with(
          {Code::kUnsupported, "an attention operand is no view of an input", 0});
    }
    for (size_t i = chain.size() - 1; i-- > 0;) {
      const auto& view = std::get<ViewAttr>(node(chain[i]).attr);
      x = builder_.view(x, node(chain[i]).shape, view.strides, view.offset);
    }
    return builder_.reshape(x, shape);
  }
  NodeId copy_computed(Node made, const Shape& shape) {
    for (NodeId& operand : made.operands) operand = copy_value(operand, shape);
    made.shape = shape;
    return builder_.add(std::move(made));
  }

  // A node of the old shape `full`, or of one element a row of it, in the new shapes.
  void copy(NodeId id, const Shape& full, const Shape& new_full, const Shape& new_rows) {
    const Node& old = node(id);
    if (map_.count(id)) return;
    if (old.op == Op::kView && is_inner_view(id, full)) return;
    builder_.set_origin(graph_.origin_of(id));
    if (old.op == Op::kMatmul) {
      const NodeId a =
          id == pattern_.product ? map_.at(old.operands[0]) : operands_.at(old.operands[0]);
      map_[id] = builder_.matmul(a, operands_.at(old.operands[1]));
      return;
    }
    if (is_repeated(id, full)) {
      const NodeId inner = old.operands[0];
      const NodeId x = copy_view(node(inner), map_.at(node(inner).operands[0]), node(inner).shape);
      map_[id] = builder_.reshape(x, new_full);
      return;
    }
    Node made = old;
    for (NodeId& operand : made.operands) operand = map_.at(operand);
    if (traits(old.op).kind == OpKind::kSource) {
      map_[id] = builder_.add(std::move(made));
    } else if (traits(old.op).kind == OpKind::kReduce) {
      map_[id] = builder_.reduce(old.op, made.operands[0], {static_cast<int>(new_full.size()) - 1});
    } else if (old.op == Op::kView) {
      map_[id] = copy_view(old, made.operands[0], old.shape == full ? new_full : new_rows);
    } else {
      made.shape = old.shape == full ? new_full : new_rows;
      // An input is read as it stands only where the axes stay: then the graph stays, too.
      for (size_t i = 0; new_full != full && i < made.operands.size(); ++i)
        if (node(old.operands[i]).op == Op::kInput)
          made.operands[i] = builder_.reshape(made.operands[i], made.shape);
      map_[id] = builder_.add(std::move(made));
    }
  }

  // A View of a leaf that nothing but such Views in the scores' shape read as they stand.
  bool is_inner_view(NodeId id, const Shape& full) const {
    bool is_read = false;
    for (NodeId user = id + 1; user < graph_.size(); ++user) {
      if (std::ranges::find(node(user).operands, id) == node(user).operands.end()) continue;
      if (!is_repeated(user, full)) return false;
      is_read = true;
    }
    return is_read;
  }
  bool is_repeated(NodeId id, const Shape& full) const {
    if (!is_view_of_view(id) || node(id).shape != full || !is_reshape(graph_, node(id)))
      return false;
    const Node& inner = node(node(id).operands[0]);
    return traits(node(inner.operands[0]).op).kind == OpKind::kSource;
  }

  // Views of leaves keep what they read; a View of rows repeats them in the new axes.
  NodeId copy_view(const Node& old, NodeId x, const Shape& shape) {
    const auto& view = std::get<ViewAttr>(old.attr);
    if (traits(node(old.operands[0]).op).kind != OpKind::kSource) {
      Shape rows = builder_.shape(x);
      if (rows == shape) return x;  // the same values in other axes
      rows.push_back(1);
      return builder_.broadcast(builder_.reshape(x, std::move(rows)), shape);
    }
    return builder_.reshape(builder_.view(x, old.shape, view.strides, view.offset), shape);
  }

  // The product's axes, divided anew, in the order in which the result has them.
  void find_result_axes() {
    const Node& product = node(pattern_.product);
    const Dim m = product.shape[product.shape.size() - 2], d = product.shape.back();
    const Shape axes = shape_of(batch_, {m, d});
    const std::vector<Dim> strides = contiguous_strides(axes);
    order_.clear();
    const Node& view = node(result_);
    for (size_t u = 0; result_ != pattern_.product && u < view.shape.size(); ++u) {
      const Dim& least = std::get<ViewAttr>(view.attr).strides[u];
      const Dim& size = view.shape[u];
      Dim count = 1;
      for (size_t i = 0; i < axes.size(); ++i)
        if (magnitude(strides[i]) >= magnitude(least) &&
            magnitude(strides[i]) < magnitude(least * size)) {
          order_.push_back(static_cast<int>(i));
          count = count * axes[i];
        }
      if (count != size) order_.resize(axes.size() + 1);  // no order
    }
  }

  void copy_epilogue(const Shape& product) {
    const Shape old_shape = node(result_).shape;
    Shape shape = product;
    if (result_ != pattern_.product) {
      if (order_.size() != product.size()) {
        builder_.fail_with(
            {Code::kUnsupported, "an attention result is not its axes reordered", 0});
        return;
      }
      map_[result_] = builder_.permute(map_.at(pattern_.product), order_);
      shape = builder_.shape(map_[result_]);
    }
    std::vector<NodeId> outputs(graph_.outputs().begin(), graph_.outputs().end());
    std::erase(outputs, pattern_.log_sums);
    for (NodeId id : needed_by(std::move(outputs), {pattern_.product, result_, pattern_.row_sum})) {
      const Node& old = node(id);
      map_.erase(id);  // a View that the scores have too means another shape there
      if (old.op == Op::kView && old.operands[0] == pattern_.row_sum)
        map_[id] = repeated_sum(product);
      else
        copy(id, old_shape, shape, shape);
    }
  }

  NodeId repeated_sum(const Shape& product) {
    const NodeId sum = map_.at(pattern_.row_sum);
    Shape rows = builder_.shape(sum);
    rows.push_back(1);
    const NodeId along = builder_.broadcast(builder_.reshape(sum, std::move(rows)), product);
    return order_.empty() ? along : builder_.permute(along, order_);
  }

  const Graph& graph_;
  const AttentionPattern& pattern_;
  const NodeId result_;
  GraphBuilder builder_;
  std::map<NodeId, NodeId> map_;       // old node -> new node
  std::map<NodeId, NodeId> operands_;  // the same for operands of matmuls
  std::set<NodeId> score_;
  Shape batch_;
  std::vector<int> order_;  // of the product's axes in the result; empty when they stay
};

}  // namespace

bool splits_batches(const Graph& graph, const AttentionPattern& pattern, NodeId view) {
  return Arranger(graph, pattern).splits(view);
}

Result<Graph> arrange_attention(const Graph& graph) {
  const auto pattern = find_attention(graph);
  if (!pattern) return graph;
  auto arranged = Arranger(graph, *pattern).run();
  return arranged ? std::move(arranged) : Result<Graph>(graph);
}

}  // namespace kiln
