#include "compiler_core/plan/shape_generic_key.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

// 0, 1, or anything else: whether an axis is repeated, contiguous, or strided.
int64_t kind_of_stride(const Dim& stride) {
  if (!stride.is_constant()) return 2;
  return stride.constant() == 0 || stride.constant() == 1 ? stride.constant() : 2;
}

void add_attr(Hasher& hasher, const Node& node) {
  if (const auto* view = std::get_if<ViewAttr>(&node.attr)) {
    hasher.begin_list(view->strides.size());
    for (const Dim& stride : view->strides) hasher.add(kind_of_stride(stride));
  } else if (const auto* constant = std::get_if<ConstantAttr>(&node.attr)) {
    // A mean's divisor follows from a size: values of floats are left out.
    if (!is_float(node.dtype)) hasher.add(constant->as_int());
  } else if (const auto* axis = std::get_if<AxisAttr>(&node.attr)) {
    hasher.add(int64_t{axis->axis});
  } else if (const auto* reduce = std::get_if<ReduceAttr>(&node.attr)) {
    for (const int reduced : reduce->axes) hasher.add(int64_t{reduced});
  }
}

Digest digest_of_node(const Node& node, const std::vector<Digest>& nodes) {
  Hasher hasher("kiln.kin.node.v1");
  hasher.add(to_string(node.op)).add(to_string(node.dtype));
  hasher.add(static_cast<int64_t>(node.shape.size()));
  add_attr(hasher, node);
  std::vector<Digest> operands;
  for (NodeId operand : node.operands) operands.push_back(nodes[static_cast<size_t>(operand)]);
  if (traits(node.op).commutative) std::sort(operands.begin(), operands.end());
  hasher.begin_list(operands.size());
  for (const Digest& operand : operands) hasher.add(operand);
  return hasher.finish();
}

bool decides(const Node& node) {
  const OpKind kind = traits(node.op).kind;
  return kind == OpKind::kReduce || kind == OpKind::kContract || stands_alone(node.op);
}

}  // namespace

ShapeGenericKey shape_generic_key(const Workload& workload) {
  const Graph& graph = workload.graph;
  std::vector<Digest> nodes;
  for (const Node& node : graph.nodes()) nodes.push_back(digest_of_node(node, nodes));
  Hasher hasher("kiln.kin.v1");
  hasher.add(to_string(workload.family));
  ShapeGenericKey key;
  const auto add_sizes = [&](const Node& node) {
    for (const Dim& size : node.shape) key.sizes.push_back(size_at_hints(graph, size));
  };
  hasher.begin_list(graph.outputs().size());
  for (NodeId id : graph.outputs()) {
    hasher.add(nodes[static_cast<size_t>(id)]);
    add_sizes(graph.node(id));
  }
  // The reductions of one kernel share one space, so the first says all.
  for (const Node& node : graph.nodes()) {
    if (!decides(node)) continue;
    for (NodeId operand : node.operands) add_sizes(graph.node(operand));
    break;
  }
  key.digest = hasher.add(static_cast<int64_t>(key.sizes.size())).finish();
  return key;
}

double distance(std::span<const int64_t> a, std::span<const int64_t> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i)
    total += std::abs(std::log2(std::max(static_cast<double>(a[i]), 0.5)) -
                      std::log2(std::max(static_cast<double>(b[i]), 0.5)));
  return total;
}

}  // namespace kiln
