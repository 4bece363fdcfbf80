#include "compiler_core/ir/builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/base/half.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

size_t mix(size_t hash, size_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

size_t hash_dim(const Dim& dim) {
  return dim.is_constant() ? static_cast<size_t>(dim.constant())
                           : std::hash<std::string>{}(dim.to_string());
}

size_t hash_dims(size_t hash, const std::vector<Dim>& dims) {
  for (const Dim& dim : dims) hash = mix(hash, hash_dim(dim));
  return mix(hash, dims.size());
}

struct AttrHash {
  size_t operator()(std::monostate) const { return 0; }
  size_t operator()(const InputAttr& a) const { return static_cast<size_t>(a.index); }
  size_t operator()(const ConstantAttr& a) const { return a.bits; }
  size_t operator()(const ViewAttr& a) const {
    return mix(hash_dims(1, a.strides), hash_dim(a.offset));
  }
  size_t operator()(const PadAttr& a) const {
    return mix(hash_dims(hash_dims(2, a.low), a.high), a.value.bits);
  }
  size_t operator()(const AxisAttr& a) const { return static_cast<size_t>(a.axis); }
  size_t operator()(const ReduceAttr& a) const {
    size_t hash = 3;
    for (int axis : a.axes) hash = mix(hash, static_cast<size_t>(axis));
    return hash;
  }
  size_t operator()(const ConvolutionAttr& a) const {
    size_t hash = mix(4, static_cast<size_t>(a.groups));
    for (const auto* list : {&a.stride, &a.dilation, &a.low, &a.high})
      for (const int64_t value : *list) hash = mix(hash, static_cast<size_t>(value));
    return hash;
  }
  size_t operator()(const ScatterAttr& a) const { return static_cast<size_t>(a.combine); }
  size_t operator()(const SortAttr& a) const { return static_cast<size_t>(a.descending); }
  size_t operator()(const PhiloxAttr& a) const { return static_cast<size_t>(a.stream); }
  size_t operator()(const CustomAttr& a) const { return std::hash<std::string>{}(a.call->name); }
};

size_t hash_node(const Node& node) {
  size_t hash = mix(static_cast<size_t>(node.op), static_cast<size_t>(node.dtype));
  for (NodeId operand : node.operands) hash = mix(hash, static_cast<size_t>(operand));
  hash = hash_dims(hash, node.shape);
  return mix(hash, std::visit(AttrHash{}, node.attr));
}

}  // namespace

ConstantAttr constant_bits(DType dtype, double value) {
  if (!is_float(dtype)) return {static_cast<uint64_t>(static_cast<int64_t>(value))};
  if (dtype == DType::kF32) value = static_cast<float>(value);
  value = round_to_half(dtype, value);
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  return {std::bit_cast<uint64_t>(value)};
}

const Node& GraphBuilder::node(NodeId id) const {
  static const Node kNowhere{Op::kConstant, DType::kF32, {}, {}, ConstantAttr{}};
  return id < 0 || id >= graph_.size() ? kNowhere : graph_.node(id);
}

NodeId GraphBuilder::fail_with(Error error) {
  if (!error_) error_ = std::move(error);
  return kInvalidNode;
}

bool GraphBuilder::valid(std::initializer_list<NodeId> ids) const {
  if (error_) return false;
  for (NodeId id : ids) CHECK(id >= 0 && id < graph_.size(), "operands come from this builder");
  return true;
}

NodeId GraphBuilder::intern(Node node) {
  if (error_) return kInvalidNode;
  const size_t hash = hash_node(node);
  const auto [begin, end] = interned_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (graph_.node(it->second) == node) return it->second;
  if (auto status = verify_node(node, graph_.nodes_, graph_.symbols_); !status)
    return fail_with(std::move(status).error());
  const NodeId id = graph_.size();
  graph_.nodes_.push_back(std::move(node));
  graph_.origin_of_.push_back(origin_);
  interned_.emplace(hash, id);
  return id;
}

NodeId GraphBuilder::add(Node node) {
  if (error_) return kInvalidNode;
  if (node.op == Op::kInput) {
    const auto* attr = std::get_if<InputAttr>(&node.attr);
    if (attr == nullptr || attr->index != static_cast<int>(graph_.inputs_.size()))
      return fail_with({Code::kInvalidArgument, "inputs are numbered 0, 1, 2, ... in order", 0});
    return input(node.dtype, std::move(node.shape));
  }
  return intern(std::move(node));
}

void GraphBuilder::begin_origin(Origin origin) {
  if (!new_origins_) new_origins_ = std::make_shared<std::vector<Origin>>();
  if (new_origins_->empty() || new_origins_->back() != origin)
    new_origins_->push_back(std::move(origin));
  graph_.origins_ = new_origins_;
  origin_ = static_cast<OriginId>(new_origins_->size()) - 1;
}

void GraphBuilder::carry_origins(const Graph& graph) {
  graph_.origins_ = graph.origins_;
}

SymbolId GraphBuilder::symbol(SymbolRange range, int64_t hint) {
  if (range.min < 0 || range.max < range.min)
    fail_with({Code::kInvalidArgument, "a symbol's range is empty or negative", 0});
  graph_.symbols_.push_back({range, hint});
  return static_cast<SymbolId>(graph_.symbols_.size()) - 1;
}

NodeId GraphBuilder::input(DType dtype, Shape shape) {
  const int index = static_cast<int>(graph_.inputs_.size());
  const NodeId id = intern({Op::kInput, dtype, std::move(shape), {}, InputAttr{index}});
  if (id != kInvalidNode) graph_.inputs_.push_back(id);
  return id;
}

NodeId GraphBuilder::constant(DType dtype, double value) {
  return intern({Op::kConstant, dtype, {}, {}, constant_bits(dtype, value)});
}

NodeId GraphBuilder::constant_int(DType dtype, int64_t value) {
  if (is_float(dtype)) return constant(dtype, static_cast<double>(value));
  if (dtype == DType::kBool) value = value != 0;
  return intern({Op::kConstant, dtype, {}, {}, ConstantAttr{static_cast<uint64_t>(value)}});
}

NodeId GraphBuilder::iota(DType dtype, Dim size) {
  return intern({Op::kIota, dtype, {std::move(size)}, {}, {}});
}

NodeId GraphBuilder::unary(Op op, NodeId x) {
  if (!valid({x})) return kInvalidNode;
  return intern({op, dtype(x), shape(x), {x}, {}});
}

NodeId GraphBuilder::binary(Op op, NodeId a, NodeId b) {
  if (!valid({a, b})) return kInvalidNode;
  const bool compares = traits(op).kind == OpKind::kCompare;
  return intern({op, compares ? DType::kBool : dtype(a), shape(a), {a, b}, {}});
}

NodeId GraphBuilder::select(NodeId condition, NodeId a, NodeId b) {
  if (!valid({condition, a, b})) return kInvalidNode;
  return intern({Op::kSelect, dtype(a), shape(a), {condition, a, b}, {}});
}

NodeId GraphBuilder::cast(NodeId x, DType to) {
  if (!valid({x}) || dtype(x) == to) return error_ ? kInvalidNode : x;
  return intern({Op::kCast, to, shape(x), {x}, {}});
}

NodeId GraphBuilder::view(NodeId x, Shape shape, std::vector<Dim> strides, Dim offset) {
  if (!valid({x})) return kInvalidNode;
  ViewAttr attr = canonical_view(shape, {std::move(strides), std::move(offset)});
  Node direct{Op::kView, dtype(x), std::move(shape), {x}, std::move(attr)};
  if (auto status = verify_node(direct, graph_.nodes_, graph_.symbols_); !status)
    return fail_with(std::move(status).error());
  while (node(direct.operands[0]).op == Op::kView) {
    const Node& inner = node(direct.operands[0]);
    auto composed = compose_views(inner, direct.shape, std::get<ViewAttr>(direct.attr));
    if (!composed) break;
    direct.attr = canonical_view(direct.shape, *std::move(composed));
    direct.operands[0] = NodeId{inner.operands[0]};
  }
  const NodeId source = direct.operands[0];
  if (is_identity_view(this->shape(source), direct.shape, std::get<ViewAttr>(direct.attr)))
    return source;
  return intern(std::move(direct));
}

NodeId GraphBuilder::reshape(NodeId x, Shape to) {
  if (!valid({x})) return kInvalidNode;
  if (numel(shape(x)) != numel(to))
    return fail_with({Code::kInvalidArgument,
                      "cannot reshape " + to_string(shape(x)) + " to " + to_string(to), 0});
  std::vector<Dim> strides = contiguous_strides(to);
  return view(x, std::move(to), std::move(strides), 0);
}

NodeId GraphBuilder::permute(NodeId x, std::span<const int> axes) {
  if (!valid({x})) return kInvalidNode;
  const size_t rank = shape(x).size();
  std::vector<bool> seen(rank);
  bool good = axes.size() == rank;
  for (int axis : axes) {
    good =
        good && axis >= 0 && static_cast<size_t>(axis) < rank && !seen[static_cast<size_t>(axis)];
    if (good) seen[static_cast<size_t>(axis)] = true;
  }
  if (!good) return fail_with({Code::kInvalidArgument, "permute needs each axis once", 0});
  const std::vector<Dim> from = contiguous_strides(shape(x));
  Shape to;
  std::vector<Dim> strides;
  for (int axis : axes) {
    to.push_back(shape(x)[static_cast<size_t>(axis)]);
    strides.push_back(from[static_cast<size_t>(axis)]);
  }
  return view(x, std::move(to), std::move(strides), 0);
}

NodeId GraphBuilder::broadcast_in(NodeId x, Shape to, std::span<const int> axes) {
  if (!valid({x})) return kInvalidNode;
  const std::vector<Dim> from = contiguous_strides(shape(x));
  std::vector<Dim> strides(to.size(), Dim(0));
  if (axes.size() != shape(x).size())
    return fail_with({Code::kInvalidArgument, "broadcast needs one place for each axis", 0});
  for (size_t i = 0; i < axes.size(); ++i) {
    const Dim& size = shape(x)[i];
    if (axes[i] < 0 || static_cast<size_t>(axes[i]) >= to.size() ||
        (!size.is(1) && size != to[static_cast<size_t>(axes[i])]))
      return fail_with({Code::kInvalidArgument,
                        "cannot broadcast " + to_string(shape(x)) + " to " + to_string(to), 0});
    if (!size.is(1)) strides[static_cast<size_t>(axes[i])] = from[i];
  }
  return view(x, std::move(to), std::move(strides), 0);
}

NodeId GraphBuilder::broadcast(NodeId x, Shape to) {
  if (!valid({x})) return kInvalidNode;
  const size_t rank = shape(x).size();
  if (rank > to.size())
    return fail_with({Code::kInvalidArgument,
                      "cannot broadcast " + to_string(shape(x)) + " to " + to_string(to), 0});
  std::vector<int> axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int>(to.size() - rank + i));
  return broadcast_in(x, std::move(to), axes);
}

NodeId GraphBuilder::slice(NodeId x, int axis, const Dim& start, Dim size, int64_t step) {
  if (!valid({x})) return kInvalidNode;
  if (axis < 0 || static_cast<size_t>(axis) >= shape(x).size() || step == 0)
    return fail_with({Code::kInvalidArgument, "slice has a bad axis or a step of 0", 0});
  Shape to = shape(x);
  std::vector<Dim> strides = contiguous_strides(to);
  const size_t at = static_cast<size_t>(axis);
  // Bounds along the axis; verify only sees the flat index.
  const Dim last = start + (size - Dim(1)) * Dim(step);
  const bool empty = size.is(0);
  for (const Dim& edge : {start, last})
    if (!empty && (lower_bound(edge, graph_.symbols_) < 0 ||
                   lower_bound(to[at] - Dim(1) - edge, graph_.symbols_) < 0))
      return fail_with({Code::kInvalidArgument,
                        "slice " + start.to_string() + " to " + last.to_string() +
                            " leaves an axis of size " + to[at].to_string(),
                        0});
  Dim offset = empty ? Dim(0) : start * strides[at];
  strides[at] = strides[at] * Dim(step);
  to[at] = std::move(size);
  return view(x, std::move(to), std::move(strides), std::move(offset));
}

NodeId GraphBuilder::pad(NodeId x, std::vector<Dim> low, std::vector<Dim> high,
                         ConstantAttr value) {
  if (!valid({x})) return kInvalidNode;
  Shape to = shape(x);
  if (low.size() != to.size() || high.size() != to.size())
    return fail_with({Code::kInvalidArgument, "pad needs two sizes for each axis", 0});
  for (size_t i = 0; i < to.size(); ++i) to[i] = low[i] + to[i] + high[i];
  const DType type = dtype(x);
  return intern(
      {Op::kPad, type, std::move(to), {x}, PadAttr{std::move(low), std::move(high), value}});
}

NodeId GraphBuilder::concat(std::span<const NodeId> xs, int axis) {
  if (xs.empty()) return fail_with({Code::kInvalidArgument, "concat of nothing", 0});
  for (NodeId x : xs)
    if (!valid({x})) return kInvalidNode;
  Shape to = shape(xs[0]);
  if (axis < 0 || static_cast<size_t>(axis) >= to.size())
    return fail_with({Code::kInvalidArgument, "concat has a bad axis", 0});
  for (NodeId x : xs.subspan(1))
    if (shape(x).size() == to.size())
      to[static_cast<size_t>(axis)] =
          to[static_cast<size_t>(axis)] + shape(x)[static_cast<size_t>(axis)];
  if (xs.size() == 1) return xs[0];
  return intern({Op::kConcat, dtype(xs[0]), std::move(to), {xs.begin(), xs.end()}, AxisAttr{axis}});
}

NodeId GraphBuilder::reduce(Op op, NodeId x, std::vector<int> axes, bool keep_dims) {
  if (!valid({x})) return kInvalidNode;
  std::sort(axes.begin(), axes.end());
  Shape kept, without;
  for (size_t i = 0; i < shape(x).size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int>(i));
    kept.push_back(reduced ? Dim(1) : shape(x)[i]);
    if (!reduced) without.push_back(shape(x)[i]);
  }
  if (axes.empty()) return x;
  const NodeId result =
      intern({op, dtype(x), std::move(without), {x}, ReduceAttr{std::move(axes)}});
  return keep_dims && result != kInvalidNode ? reshape(result, std::move(kept)) : result;
}

NodeId GraphBuilder::scan_sum(NodeId x, int axis) {
  if (!valid({x})) return kInvalidNode;
  return intern({Op::kScanSum, dtype(x), shape(x), {x}, AxisAttr{axis}});
}

NodeId GraphBuilder::matmul(NodeId a, NodeId b) {
  if (!valid({a, b})) return kInvalidNode;
  Shape to = shape(a);
  if (to.size() >= 2 && shape(b).size() >= 2) to.back() = shape(b).back();
  return intern({Op::kMatmul, compute_type(dtype(a)), std::move(to), {a, b}, {}});
}

NodeId GraphBuilder::convolution(NodeId x, NodeId w, ConvolutionAttr attr) {
  if (!valid({x, w})) return kInvalidNode;
  auto to = convolution_shape(shape(x), shape(w), attr);
  if (!to) return fail_with(std::move(to).error());
  return intern(
      {Op::kConvolution, compute_type(dtype(x)), *std::move(to), {x, w}, std::move(attr)});
}

NodeId GraphBuilder::scatter(NodeId x, NodeId index, NodeId updates, Combine combine) {
  if (!valid({x, index, updates})) return kInvalidNode;
  return intern({Op::kScatter, dtype(x), shape(x), {x, index, updates}, ScatterAttr{combine}});
}

NodeId GraphBuilder::argsort(NodeId x, bool descending) {
  if (!valid({x})) return kInvalidNode;
  return intern({Op::kArgsort, DType::kI64, shape(x), {x}, SortAttr{descending}});
}

NodeId GraphBuilder::philox(NodeId seed, Shape to, int64_t stream) {
  if (!valid({seed})) return kInvalidNode;
  return intern({Op::kPhilox, DType::kI64, std::move(to), {seed}, PhiloxAttr{stream}});
}

NodeId GraphBuilder::custom_call(std::shared_ptr<const CustomCall> call,
                                 std::span<const NodeId> operands) {
  for (NodeId id : operands)
    if (!valid({id})) return kInvalidNode;
  if (call == nullptr || call->reference.outputs().size() != 1)
    return fail_with(
        {Code::kInvalidArgument, "a custom call needs a reference with one output", 0});
  const Node& result = call->reference.node(call->reference.outputs()[0]);
  return intern({Op::kCustomCall,
                 result.dtype,
                 result.shape,
                 {operands.begin(), operands.end()},
                 CustomAttr{std::move(call)}});
}

NodeId GraphBuilder::gather(NodeId x, NodeId index) {
  if (!valid({x, index})) return kInvalidNode;
  Shape to = shape(index);
  if (!shape(x).empty()) to.insert(to.end(), shape(x).begin() + 1, shape(x).end());
  return intern({Op::kGather, dtype(x), std::move(to), {x, index}, {}});
}

Result<Graph> GraphBuilder::finish(std::vector<NodeId> outputs) {
  if (error_) return fail(*error_);
  for (NodeId id : outputs)
    if (id < 0 || id >= graph_.size()) return fail(Code::kInvalidArgument, "an output is no node");
  graph_.outputs_ = std::move(outputs);
  interned_.clear();
  return std::move(graph_);
}

}  // namespace kiln
