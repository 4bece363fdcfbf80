#include <algorithm>
#include <map>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

using Users = std::vector<std::vector<NodeId>>;

// How all readers of a product round it, each in a View of its own.
struct Rounding {
  DType half = DType::kBF16;
  NodeId bias = kInvalidNode;  // added before: an element a column; read by way of a Cast
  // By Cast: the View of the product that it rounds.
  std::map<NodeId, NodeId> casts;
  std::vector<NodeId> selected;  // Views that a Select reads before they are rounded
};

class Rounder {
 public:
  explicit Rounder(const Graph& graph)
      : rewrite_(graph),
        graph_(graph),
        users_(users_of(graph)),
        is_output_(static_cast<size_t>(graph.size()), false) {
    for (NodeId id : graph.outputs()) is_output_[static_cast<size_t>(id)] = true;
  }

  Result<Graph> run() {
    GraphBuilder& b = rewrite_.builder;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kInput) continue;
      b.set_origin(graph_.origin_of(id));
      if (const auto rounded = views_.find(id); rounded != views_.end()) {
        const auto& [product, view] = rounded->second;
        rewrite_[id] = view == product ? product_[product] : viewed(product, graph_.node(view));
        continue;
      }
      if (const auto selected = selected_.find(id); selected != selected_.end()) {
        rewrite_[id] = b.cast(viewed(selected->second, node), node.dtype);
        continue;
      }
      rewrite_[id] = emit(b, node, rewrite_.operands(node));
      if (traits(node.op).kind != OpKind::kContract) continue;
      if (const auto rounding = rounding_of(id)) round(id, *rounding);
    }
    return rewrite_.finish();
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<size_t>(id)]; }

  NodeId viewed(NodeId product, const Node& view) {
    const auto& attr = std::get<ViewAttr>(view.attr);
    return rewrite_.builder.view(product_[product], view.shape, attr.strides, attr.offset);
  }

  void round(NodeId product, const Rounding& rounding) {
    GraphBuilder& b = rewrite_.builder;
    NodeId value = rewrite_[product];
    if (rounding.bias != kInvalidNode) {
      std::vector<Dim> strides(node(product).shape.size(), 0);
      strides.back() = 1;
      const NodeId row = b.view(rewrite_[rounding.bias], node(product).shape, strides, 0);
      value = b.binary(Op::kAdd, value, b.cast(row, node(product).dtype));
    }
    product_[product] = b.cast(value, rounding.half);
    for (const auto& [cast, view] : rounding.casts) views_[cast] = {product, view};
    for (const NodeId view : rounding.selected) selected_[view] = product;
  }

  // Where some read several Views, or one that is no order of the product's axes.
  std::optional<Rounding> rounding_of(NodeId product) const {
    std::optional<Rounding> all;
    int views = 0;
    bool rearranged = false;
    if (is_output_[static_cast<size_t>(product)]) return std::nullopt;
    for (NodeId user : users(product)) {
      const bool is_view = node(user).op == Op::kView;
      if (!is_view) {
        if (!add_reader(all, user, product, product)) return std::nullopt;
        continue;
      }
      ++views;
      rearranged = rearranged || !walk_order(graph_, node(user));
      if (is_output_[static_cast<size_t>(user)]) return std::nullopt;
      for (NodeId reader : users(user))
        if (!add_select(all, reader, user) && !add_reader(all, reader, user, product))
          return std::nullopt;
    }
    if (node(product).op == Op::kConvolution) {
      // Its bias belongs to its channels, which are not its last axis.
      const bool is_plain = all && all->bias == kInvalidNode;
      return is_plain && views > 0 && users(product).size() >= 2 ? all : std::nullopt;
    }
    const bool helps = views >= 2 || (rearranged && all && all->bias != kInvalidNode);
    return helps ? all : std::nullopt;
  }

  // `reader` reads `view` of the product: a Cast to a half type, or Casts of a sum with a bias.
  bool add_reader(std::optional<Rounding>& all, NodeId reader, NodeId view, NodeId product) const {
    if (is_cast(reader))
      return add_cast(all, {node(reader).dtype, kInvalidNode, {}, {}}, reader, view);
    const Node& sum = node(reader);
    if (sum.op != Op::kAdd || is_output_[static_cast<size_t>(reader)]) return false;
    const NodeId other = sum.operands[sum.operands[0] == view ? 1 : 0];
    const std::optional<NodeId> bias = bias_of(other, node(view), node(product).shape.back());
    if (!bias || users(reader).empty()) return false;
    return std::ranges::all_of(users(reader), [&](NodeId cast) {
      return is_cast(cast) && add_cast(all, {node(cast).dtype, *bias, {}, {}}, cast, view);
    });
  }
  // `reader` takes elements of `view` or others, and all of it is rounded: to round them before changes
  // nothing.
  bool add_select(std::optional<Rounding>& all, NodeId reader, NodeId view) const {
    const Node& select = node(reader);
    if (select.op != Op::kSelect || is_output_[static_cast<size_t>(reader)]) return false;
    if (users(reader).empty()) return false;
    const DType half = node(users(reader)[0]).dtype;
    const bool rounds = std::ranges::all_of(
        users(reader), [&](NodeId cast) { return is_cast(cast) && node(cast).dtype == half; });
    if (!rounds || (all && (all->half != half || all->bias != kInvalidNode))) return false;
    if (!all) all = Rounding{half, kInvalidNode, {}, {}};
    all->selected.push_back(view);
    return true;
  }
  bool is_cast(NodeId id) const { return node(id).op == Op::kCast && is_half(node(id).dtype); }
  static bool add_cast(std::optional<Rounding>& all, Rounding one, NodeId cast, NodeId view) {
    if (!all)
      all = std::move(one);
    else if (all->half != one.half || all->bias != one.bias)
      return false;
    all->casts[cast] = view;
    return true;
  }

  // The vector of which `added` is the element of the product's column at each place of `view`.
  std::optional<NodeId> bias_of(NodeId added, const Node& view, const Dim& columns) const {
    NodeId at = added;
    if (node(at).op == Op::kCast) at = node(at).operands[0];
    if (node(at).op != Op::kView || !columns.is_constant()) return std::nullopt;
    const NodeId bias = node(at).operands[0];
    if (node(bias).op != Op::kInput || node(bias).shape != Shape{columns}) return std::nullopt;
    const auto& read = std::get<ViewAttr>(node(at).attr);
    std::vector<Dim> strides = contiguous_strides(view.shape);
    Dim offset = 0;
    if (view.op == Op::kView) {
      strides = std::get<ViewAttr>(view.attr).strides;
      offset = std::get<ViewAttr>(view.attr).offset;
    }
    // Columns of the walk, of which none carries into the next row.
    const auto column = [&](const Dim& place) -> std::optional<int64_t> {
      if (!place.is_constant() || place.constant() < 0) return std::nullopt;
      return place.constant() % columns.constant();
    };
    std::optional<int64_t> last = column(offset);
    if (!last || !read.offset.is(*last)) return std::nullopt;
    for (size_t i = 0; i < strides.size(); ++i) {
      if (view.shape[i].is(1)) continue;
      const auto step = column(strides[i]);
      if (!step || !read.strides[i].is(*step)) return std::nullopt;
      if (*step == 0) continue;
      if (!view.shape[i].is_constant()) return std::nullopt;
      *last += *step * (view.shape[i].constant() - 1);
    }
    return *last < columns.constant() ? std::optional(bias) : std::nullopt;
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const Users users_;
  std::vector<bool> is_output_;
  std::map<NodeId, NodeId> product_;                   // rounded
  std::map<NodeId, std::pair<NodeId, NodeId>> views_;  // by Cast: the product, and its View
  std::map<NodeId, NodeId> selected_;                  // by View that a Select reads: the product
};

}  // namespace

Result<Graph> round_products(const Graph& graph) {
  TRY(const Graph rounded, Rounder(graph).run());
  return rewrite_nodes(rounded, emit);  // without what nobody reads any more
}

}  // namespace kiln
