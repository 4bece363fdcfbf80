#include <algorithm>
#include <map>

#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

using Users = std::vector<std::vector<NodeId>>;

// How all readers of a product round it, each in a View of its own.
struct Rounding {
  explicit Rounding(DType to, NodeId added = kInvalidNode) : half(to), bias(added) {}

  DType half;
  NodeId bias;  // added before, or kInvalidNode: an element a channel; read by way of a Cast
  // By Cast: the View of the product, or of another such View, that it rounds.
  std::map<NodeId, NodeId> casts;
  std::vector<NodeId> selected;  // Views that a Select reads before they are rounded
};

class Rounder {
 public:
  explicit Rounder(const Graph& graph)
      : rewrite_(graph), graph_(graph), users_(users_of(graph)), is_output_(outputs_of(graph)) {}

  Result<Graph> run() {
    GraphBuilder& b = rewrite_.builder;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kInput) continue;
      b.set_origin(graph_.origin_of(id));
      if (const auto rounded = views_.find(id); rounded != views_.end()) {
        rewrite_[id] = viewed(rounded->second.first, rounded->second.second);
        continue;
      }
      if (const auto selected = selected_.find(id); selected != selected_.end()) {
        rewrite_[id] = b.cast(viewed(selected->second, id), node.dtype);
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

  // What `view` is of the rounded product: that itself, or a View of a View of it.
  NodeId viewed(NodeId product, NodeId view) {
    if (view == product) return product_[product];
    const auto& attr = std::get<ViewAttr>(node(view).attr);
    return rewrite_.builder.view(viewed(product, node(view).operands[0]), node(view).shape,
                                 attr.strides, attr.offset);
  }

  // How the elements of a bias are repeated: one for each of `count` channels, each of which has
  // `inner` neighbouring elements.
  struct Channels {
    int64_t count, inner;
  };
  size_t channel_axis(NodeId product) const {
    return node(product).op == Op::kConvolution ? 1 : node(product).shape.size() - 1;
  }
  std::optional<Channels> channels_of(NodeId product) const {
    const Shape& shape = node(product).shape;
    const size_t axis = channel_axis(product);
    Dim inner = 1;
    for (size_t i = axis + 1; i < shape.size(); ++i) inner = inner * shape[i];
    if (!shape[axis].is_constant() || !inner.is_constant()) return std::nullopt;
    if (shape[axis].is(0) || inner.is(0)) return std::nullopt;
    return Channels{shape[axis].constant(), inner.constant()};
  }

  void round(NodeId product, const Rounding& rounding) {
    GraphBuilder& b = rewrite_.builder;
    NodeId value = rewrite_[product];
    const bool turns = ends_channels_last(product);
    if (turns) value = b.permute(value, {0, 2, 3, 1});
    if (rounding.bias != kInvalidNode) {
      const Shape shape = b.shape(value);
      std::vector<Dim> strides(shape.size(), 0);
      strides[turns ? shape.size() - 1 : channel_axis(product)] = 1;
      const NodeId row = b.view(rewrite_[rounding.bias], shape, strides, 0);
      value = b.binary(Op::kAdd, value, b.cast(row, node(product).dtype));
    }
    value = b.cast(value, rounding.half);
    product_[product] = turns ? b.permute(value, {0, 3, 1, 2}) : value;
    for (const auto& [cast, view] : rounding.casts) views_[cast] = {product, view};
    for (const NodeId view : rounding.selected) selected_[view] = product;
  }
  // A convolution of which all read the channels as neighbours.
  bool ends_channels_last(NodeId product) const {
    return may_end_channels_last(graph_, product) &&
           std::ranges::all_of(users(product), [&](NodeId user) {
             return node(user).op == Op::kView && channels_last(user, *channels_of(product));
           });
  }

  // Where some read several Views, or one that is no order of the product's axes.
  std::optional<Rounding> rounding_of(NodeId product) const {
    const std::optional<Channels> channels = channels_of(product);
    Readers readers;
    if (!channels || is_output_[static_cast<size_t>(product)] ||
        !add_readers(readers, product, product, *channels))
      return std::nullopt;
    const std::optional<Rounding>& all = readers.all;
    if (node(product).op == Op::kConvolution)
      return readers.views > 0 && users(product).size() >= 2 ? all : std::nullopt;
    const bool helps =
        readers.views >= 2 || (readers.rearranged && all && all->bias != kInvalidNode);
    return helps ? all : std::nullopt;
  }

  struct Readers {
    std::optional<Rounding> all;
    int views = 0;  // whose elements some reader takes, not Views of them alone
    bool rearranged = false;
  };
  // Those of `from`, the product or a View of it, where `channels` says how its channels lie.
  bool add_readers(Readers& readers, NodeId product, NodeId from, const Channels& channels) const {
    return std::ranges::all_of(users(from), [&](NodeId user) {
      if (node(user).op != Op::kView)
        return (from != product && add_select(readers.all, user, from)) ||
               add_reader(readers, user, from, from, channels);
      if (!std::ranges::all_of(users(user), [&](NodeId id) { return node(id).op == Op::kView; }))
        ++readers.views;
      const bool in_order = from == product && walk_order(graph_, node(user));
      readers.rearranged = readers.rearranged || !in_order;
      if (is_output_[static_cast<size_t>(user)]) return false;
      if (const auto kept = channels_last(user, channels))
        return add_readers(readers, product, user, *kept);
      return std::ranges::all_of(users(user), [&](NodeId reader) {
        return add_select(readers.all, reader, user) ||
               add_reader(readers, reader, user, from, channels);
      });
    });
  }

  // A place among channels, and among the elements behind its channel.
  struct Place {
    int64_t channel, behind;
  };
  static std::optional<Place> place_of(const Dim& place, const Channels& channels) {
    if (!place.is_constant() || place.constant() < 0) return std::nullopt;
    return Place{place.constant() / channels.inner % channels.count,
                 place.constant() % channels.inner};
  }

  // Where a View begins, and how far it goes along each axis.
  struct Walk {
    Place first;
    std::vector<Place> steps;
  };
  // Nothing where a place carries into the next channel, or into the next group of all channels.
  static std::optional<Walk> walk_of(const Shape& shape, const ViewAttr& view,
                                     const Channels& channels) {
    const std::optional<Place> first = place_of(view.offset, channels);
    if (!first) return std::nullopt;
    Walk walk{*first, {}};
    Place last = *first;
    for (size_t i = 0; i < shape.size(); ++i) {
      const auto step = shape[i].is(1) ? Place{0, 0} : place_of(view.strides[i], channels);
      if (!step) return std::nullopt;
      walk.steps.push_back(*step);
      if (step->channel == 0 && step->behind == 0) continue;
      if (!shape[i].is_constant()) return std::nullopt;
      last.channel += step->channel * (shape[i].constant() - 1);
      last.behind += step->behind * (shape[i].constant() - 1);
    }
    const bool stays = last.channel < channels.count && last.behind < channels.inner;
    return stays ? std::optional(std::move(walk)) : std::nullopt;
  }

  // How channels lie in a View whose last axis is all of them.
  std::optional<Channels> channels_last(NodeId view, const Channels& channels) const {
    const Shape& shape = node(view).shape;
    const auto& attr = std::get<ViewAttr>(node(view).attr);
    if (shape.empty() || !shape.back().is(channels.count) ||
        !attr.strides.back().is(channels.inner))
      return std::nullopt;
    const std::optional<Walk> walk = walk_of(shape, attr, channels);
    const auto stays = [](const Place& step) { return step.channel == 0; };
    if (!walk || !stays(walk->first) ||
        !std::all_of(walk->steps.begin(), walk->steps.end() - 1, stays))
      return std::nullopt;
    return Channels{channels.count, 1};
  }

  // `reader` reads `view`, which is `from` or a View of it: a Cast to a half type, or Casts of a sum
  // with a bias.
  bool add_reader(Readers& readers, NodeId reader, NodeId view, NodeId from,
                  const Channels& channels) const {
    if (is_cast(reader)) return add_cast(readers.all, Rounding(node(reader).dtype), reader, view);
    const Node& sum = node(reader);
    if (sum.op != Op::kAdd || is_output_[static_cast<size_t>(reader)]) return false;
    const NodeId other = sum.operands[sum.operands[0] == view ? 1 : 0];
    const std::optional<NodeId> bias = bias_of(other, view, from, channels);
    if (!bias || users(reader).empty()) return false;
    return std::ranges::all_of(users(reader), [&](NodeId cast) {
      return is_cast(cast) && add_cast(readers.all, Rounding(node(cast).dtype, *bias), cast, view);
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
    if (!all) all = Rounding(half);
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

  // The vector of which `added` is the element of the channel at each place of `view`.
  std::optional<NodeId> bias_of(NodeId added, NodeId view, NodeId from,
                                const Channels& channels) const {
    NodeId at = added;
    if (node(at).op == Op::kCast) at = node(at).operands[0];
    if (node(at).op != Op::kView) return std::nullopt;
    // Both may be read in one order of their own: then the values that are read are compared.
    const NodeId in_order = node(at).operands[0];
    if (view != from && node(in_order).op == Op::kView &&
        node(in_order).shape == node(from).shape && node(at).attr == node(view).attr) {
      at = in_order;
      view = from;
    }
    const NodeId bias = node(at).operands[0];
    if (node(bias).op != Op::kInput || node(bias).shape != Shape{Dim(channels.count)})
      return std::nullopt;
    const auto& read = std::get<ViewAttr>(node(at).attr);
    const Shape& shape = node(view).shape;
    const auto walk = walk_of(
        shape,
        view == from ? ViewAttr{contiguous_strides(shape), 0} : std::get<ViewAttr>(node(view).attr),
        channels);
    if (!walk || !read.offset.is(walk->first.channel)) return std::nullopt;
    for (size_t i = 0; i < shape.size(); ++i)
      if (!shape[i].is(1) && !read.strides[i].is(walk->steps[i].channel)) return std::nullopt;
    return bias;
  }

  Rewrite rewrite_;
  const Graph& graph_;
  const Users users_;
  const std::vector<bool> is_output_;
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
