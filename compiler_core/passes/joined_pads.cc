#include "compiler_core/passes/joined_pads.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler_core/passes/constant_value.h"

namespace kiln {
namespace {

constexpr size_t kMostParts = 32;

// The Pads that a value adds up.
class PadSum {
 public:
  explicit PadSum(const GraphBuilder& b) : b_(b) {}

  // Adds those of `x`. False: it is no sum of Pads of one dtype.
  bool add(NodeId x) {
    const bool widens = is_cast(x) && is_half(b_.dtype(operand(x)));
    if (widens) x = operand(x);
    if (is_cast(x) && is_half(b_.dtype(x))) {
      rounded_.insert(b_.dtype(x));
      x = operand(x);
    }
    const Node& node = b_.node(x);
    if (node.op == Op::kAdd) return add(node.operands[0]) && add(b_.node(x).operands[1]);
    if (node.op != Op::kPad || pads_.size() == kMostParts) return false;
    pads_.push_back(x);
    return b_.dtype(x) == b_.dtype(pads_[0]);
  }

  // Along which axis the Pads lie side by side, which sorts them; nothing where they do not cover it.
  // And nothing where partial sums are rounded to another dtype.
  std::optional<int> axis() {
    for (const DType dtype : rounded_)
      if (dtype != b_.dtype(pads_[0])) return std::nullopt;
    for (size_t k = 0; k < b_.shape(pads_[0]).size(); ++k)
      if (!attr(pads_[0]).low[k].is(0) || !attr(pads_[0]).high[k].is(0))
        return covers(k) ? std::optional(static_cast<int>(k)) : std::nullopt;
    return std::nullopt;
  }
  const std::vector<NodeId>& pads() const { return pads_; }

 private:
  bool is_cast(NodeId x) const { return b_.node(x).op == Op::kCast; }
  NodeId operand(NodeId x) const { return b_.node(x).operands[0]; }
  const PadAttr& attr(NodeId pad) const { return std::get<PadAttr>(b_.node(pad).attr); }

  bool covers(size_t axis) {
    const auto is_constant = [&](NodeId pad) { return attr(pad).low[axis].is_constant(); };
    if (!std::ranges::all_of(pads_, is_constant)) return false;
    std::ranges::sort(pads_, {}, [&](NodeId pad) { return attr(pad).low[axis].constant(); });
    Dim begin = 0;
    for (const NodeId pad : pads_) {
      const PadAttr& of = attr(pad);
      const Shape& inner = b_.shape(operand(pad));
      for (size_t k = 0; k < inner.size(); ++k)
        if (k != axis && (!of.low[k].is(0) || !of.high[k].is(0))) return false;
      if (of.value.bits != 0 || of.low[axis] != begin) return false;
      begin = begin + inner[axis];
    }
    return attr(pads_.back()).high[axis].is(0);
  }

  const GraphBuilder& b_;
  std::vector<NodeId> pads_;
  std::set<DType> rounded_;  // what partial sums are rounded to
};

}  // namespace

NodeId joined_pads(GraphBuilder& b, NodeId x, NodeId y) {
  PadSum sum(b);
  if (!sum.add(x) || !sum.add(y)) return kInvalidNode;
  const std::optional<int> axis = sum.axis();
  if (!axis) return kInvalidNode;
  std::vector<NodeId> parts;
  for (const NodeId pad : sum.pads()) parts.push_back(b.node(pad).operands[0]);
  const DType dtype = b.dtype(x);
  NodeId joined = b.concat(parts, *axis);
  if (b.dtype(joined) != dtype) joined = b.cast(joined, dtype);
  if (!is_float(dtype)) return joined;
  const NodeId zero = filled(b, dtype, ConstantAttr{0}, Shape(b.shape(joined)));
  return b.binary(Op::kAdd, joined, zero);
}

}  // namespace kiln
