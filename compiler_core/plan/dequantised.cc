#include "compiler_core/plan/dequantised.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler_core/plan/workload.h"

namespace kiln {
namespace {

constexpr size_t kMostNodes = 32;

bool is_float_cast(const Graph& graph, const Node& node) {
  const DType from = graph.node(node.operands[0]).dtype;
  return is_float(from) && is_float(node.dtype) && !is_8_bit_float(from) &&
         !is_8_bit_float(node.dtype);
}

bool is_small_integer(const Node& node) {
  if (node.op != Op::kConstant || !(is_float(node.dtype) || is_integer(node.dtype))) return false;
  const double value = std::get<ConstantAttr>(node.attr).as_double();
  return std::abs(value) <= 256 && value == std::floor(value);
}

// Whether a walk along another axis than `axis` moves the multiples of `unit` at which groups begin:
// their strides are no multiples of it, and together come to `room` or more.
bool moves_groups(const Node& view, size_t axis, int64_t unit, int64_t room) {
  const auto& attr = std::get<ViewAttr>(view.attr);
  if (!attr.offset.is(0)) return true;
  int64_t below = 0;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (i == axis || view.shape[i].is(1)) continue;
    if (!attr.strides[i].is_constant() || !view.shape[i].is_constant()) return true;
    const int64_t stride = attr.strides[i].constant();
    if (stride < 0) return true;
    if (stride % unit != 0) below += stride * (view.shape[i].constant() - 1);
  }
  return below >= room;
}

// Along `axis` of `id`, Casts of at most two Views of something smaller: how many neighbours, from
// multiples of so many on, are the same element. All of them: the axis' size. 0: that is not known.
int64_t repeated_along(const Graph& graph, NodeId id, size_t axis) {
  while (graph.node(id).op == Op::kCast) id = graph.node(id).operands[0];
  const Node& outer = graph.node(id);
  if (outer.op != Op::kView || !outer.shape[axis].is_constant()) return 0;
  const int64_t size = outer.shape[axis].constant();
  const Dim& stride = std::get<ViewAttr>(outer.attr).strides[axis];
  if (stride.is(0) || size == 1) return size;
  const Node& inner = graph.node(outer.operands[0]);
  if (inner.op != Op::kView || !stride.is_constant() || stride.constant() < 1) return 0;
  // Inner axes that one step along `axis` passes over, then those along which elements repeat.
  const auto& reads = std::get<ViewAttr>(inner.attr).strides;
  int64_t passed = 1;
  size_t at = inner.shape.size();
  for (; at > 0 && passed < stride.constant(); --at) {
    if (!inner.shape[at - 1].is_constant()) return 0;
    passed *= inner.shape[at - 1].constant();
  }
  if (passed != stride.constant()) return 0;
  int64_t repeats = 1;
  for (; at > 0 && repeats < size && (reads[at - 1].is(0) || inner.shape[at - 1].is(1)); --at) {
    if (!inner.shape[at - 1].is_constant()) return 0;
    repeats *= inner.shape[at - 1].constant();
  }
  if (moves_groups(outer, axis, passed * repeats, passed)) return 0;
  return std::min(repeats, size);
}

// A View that changes nothing but the shape.
bool keeps_order(const Node& view, const Node& from) {
  const auto& attr = std::get<ViewAttr>(view.attr);
  if (!attr.offset.is(0) || numel(view.shape) != numel(from.shape)) return false;
  const std::vector<Dim> strides = contiguous_strides(view.shape);
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (!view.shape[i].is(1) && attr.strides[i] != strides[i]) return false;
  return true;
}

class Finder {
 public:
  Finder(const Graph& graph, size_t depth, size_t line, bool may_be_packed)
      : graph_(graph), depth_(depth), line_(line), may_be_packed_(may_be_packed) {}

  std::optional<Dequantised> find(NodeId operand) {
    const Node* root = &graph_.node(operand);
    if (root->op == Op::kView && is_elementwise(graph_.node(root->operands[0]).op)) {
      if (!look_behind(*root)) return std::nullopt;
      found_.nodes.push_back(operand);
      operand = root->operands[0];
    }
    if (!is_elementwise(graph_.node(operand).op) || !visit(operand)) return std::nullopt;
    if (found_.zero != kInvalidNode) {
      NodeId at = found_.zero;
      while (node(at).op == Op::kCast || node(at).op == Op::kView) at = node(at).operands[0];
      found_.zero_dtype = is_small_integer(node(at)) ? DType::kI64 : node(at).dtype;
    }
    if (found_.scale != kInvalidNode) found_.lines = repeated_along(graph_, found_.scale, line_);
    const Node& stored = graph_.node(found_.stored);
    const std::vector<Dim> strides = stored.op == Op::kView
                                         ? std::get<ViewAttr>(stored.attr).strides
                                         : contiguous_strides(stored.shape);
    found_.depth_inner = found_.in_byte() > 1 || strides[depth_].is(1);
    return std::move(found_);
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  // Finds where the depth is behind a View that only puts axes into another order.
  bool look_behind(const Node& view) {
    const auto& attr = std::get<ViewAttr>(view.attr);
    const Shape& shape = node(view.operands[0]).shape;
    if (!attr.offset.is(0) || shape.size() != view.shape.size()) return false;
    const std::vector<Dim> strides = contiguous_strides(shape);
    std::optional<size_t> depth, line;
    for (size_t i = 0; i < view.shape.size(); ++i) {
      if (view.shape[i].is(1)) continue;
      const auto axis = std::ranges::find(strides, attr.strides[i]) - strides.begin();
      const auto place = static_cast<size_t>(axis);
      if (place == strides.size() || shape[place] != view.shape[i]) return false;
      if (i == depth_) depth = place;
      if (i == line_) line = place;
    }
    if (!depth) return false;
    line_ = line.value_or(*depth == 0 ? 1 : *depth - 1);  // an axis of size 1
    depth_ = *depth;
    return true;
  }

  bool visit(NodeId id) {
    const Node& at = node(id);
    if (found_.nodes.size() >= kMostNodes || !is_elementwise(at.op)) return false;
    if (reach_stored(id)) return true;
    found_.nodes.push_back(id);
    if (at.op == Op::kCast) return is_float_cast(graph_, at) && visit(at.operands[0]);
    if (at.op == Op::kMul) {
      if (found_.scale != kInvalidNode) return false;
      return visit_with(at.operands[0], at.operands[1], found_.scale) ||
             visit_with(at.operands[1], at.operands[0], found_.scale);
    }
    if ((at.op != Op::kSub && at.op != Op::kAdd) || found_.zero != kInvalidNode) return false;
    if (at.op == Op::kSub) return visit_with(at.operands[0], at.operands[1], found_.zero);
    found_.adds_zero = true;
    if (visit_with(at.operands[0], at.operands[1], found_.zero) ||
        visit_with(at.operands[1], at.operands[0], found_.zero))
      return true;
    found_.adds_zero = false;
    if (found_.scale != kInvalidNode || found_.shift != kInvalidNode) return false;
    return visit_with(at.operands[0], at.operands[1], found_.shift) ||
           visit_with(at.operands[1], at.operands[0], found_.shift);
  }

  // One operand goes on to what is stored, the other is `factor`. Nothing is scaled before zero is
  // subtracted. Leaves no trace where that is not so.
  bool visit_with(NodeId on, NodeId factor, NodeId& kept) {
    const Dequantised before = found_;
    if (&kept == &found_.scale && found_.zero != kInvalidNode) return false;
    kept = factor;
    if (is_spread(factor) && visit(on)) return true;
    found_ = before;
    return false;
  }

  // Casts of Views of something smaller.
  bool is_spread(NodeId id) {
    while (node(id).op == Op::kCast) {
      found_.nodes.push_back(id);
      id = node(id).operands[0];
    }
    const int64_t repeats = repeated_along(graph_, id, depth_);
    if (repeats == 0) return false;
    const Dim& size = node(id).shape[depth_];
    if (!size.is(repeats))
      found_.group = found_.group == 0 ? repeats : std::gcd(found_.group, repeats);
    for (; node(id).op == Op::kView; id = node(id).operands[0]) found_.nodes.push_back(id);
    return true;
  }

  // Casts that lose nothing, down to 8 bits.
  bool reach_stored(NodeId id) {
    const NodeId narrow = stored_operand(graph_, id);
    if (narrow == id) return false;
    for (NodeId cast = id; cast != narrow; cast = node(cast).operands[0])
      found_.nodes.push_back(cast);
    found_.stored = narrow;
    if (may_be_packed_) reach_packed(narrow);
    return true;
  }

  // Values of 4 bits, maybe less a zero in i8, which holds the difference.
  void reach_packed(NodeId id) {
    const Dequantised before = found_;
    const Node& difference = node(id);
    if ((difference.op == Op::kAdd || difference.op == Op::kSub) && found_.zero == kInvalidNode &&
        difference.dtype == DType::kI8) {
      const bool is_first =
          difference.op == Op::kAdd && node(difference.operands[1]).op == Op::kCast;
      found_.zero = difference.operands[is_first ? 0 : 1];
      found_.adds_zero = difference.op == Op::kAdd;
      found_.nodes.push_back(id);
      id = difference.operands[is_first ? 1 : 0];
      if (!is_small_constant(found_.zero)) id = kInvalidNode;
    }
    if (id != kInvalidNode && node(id).op == Op::kCast && node(id).dtype == DType::kI8) {
      found_.nodes.push_back(id);
      id = node(id).operands[0];
    }
    if (id == kInvalidNode || !(take_apart(id) || take_from_words(id))) found_ = before;
  }
  bool take_from_words(NodeId id) {
    auto packed = find_packed_words(graph_, id, depth_, line_);
    if (!packed) return false;
    found_.unpacked = id;
    found_.packing = Packing::kWords;
    found_.stored = packed->words;
    found_.word_depth = packed->word_depth;
    found_.nodes.insert(found_.nodes.end(), packed->nodes.begin(), packed->nodes.end());
    return true;
  }
  // A constant that 4 bits can be moved by.
  bool is_small_constant(NodeId id) {
    for (; node(id).op == Op::kView; id = node(id).operands[0]) found_.nodes.push_back(id);
    const Node& constant = node(id);
    if (constant.op != Op::kConstant) return false;
    return std::abs(std::get<ConstantAttr>(constant.attr).as_int()) <= 112;
  }
  // `id` reads bytes of which each has two neighbours of the depth.
  bool take_apart(NodeId id) {
    const Node& view = node(id);
    if (view.op != Op::kView) return false;
    const auto halves = find_halves(graph_, view.operands[0]);
    const auto& attr = std::get<ViewAttr>(view.attr);
    if (!halves || !attr.strides[depth_].is(1) || !is_even(attr.offset) ||
        !is_even(view.shape[depth_]))
      return false;
    for (size_t i = 0; i < view.shape.size(); ++i)
      if (i != depth_ && !view.shape[i].is(1) && !is_even(attr.strides[i])) return false;
    found_.unpacked = id;
    found_.packing = halves->packing;
    found_.stored = halves->bytes;
    const Node& joined = node(view.operands[0]);
    found_.nodes.insert(found_.nodes.end(), {id, view.operands[0]});
    for (const NodeId half : joined.operands) {
      found_.nodes.push_back(half);
      for (NodeId operand : node(half).operands)
        if (operand != halves->bytes)
          for (; node(operand).op == Op::kView; operand = node(operand).operands[0])
            found_.nodes.push_back(operand);
    }
    const Node& bytes = node(halves->bytes);
    if (bytes.op != Op::kView) return true;
    found_.nodes.push_back(halves->bytes);
    found_.stored = bytes.operands[0];
    return keeps_order(bytes, node(found_.stored));
  }
  static bool is_even(const Dim& x) { return x.is_constant() && x.constant() % 2 == 0; }

  const Graph& graph_;
  size_t depth_, line_;
  const bool may_be_packed_;
  Dequantised found_;
};

}  // namespace

std::optional<Dequantised> find_dequantised(const Graph& graph, const Node& matmul,
                                            size_t operand) {
  const size_t last = matmul.shape.size() - 1;
  const bool is_a = operand == 0;
  return Finder(graph, is_a ? last : last - 1, is_a ? last - 1 : last, !is_a)
      .find(matmul.operands[operand]);
}

}  // namespace kiln
