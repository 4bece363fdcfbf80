#include "compiler_core/plan/rewrites/graph_rewrites.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "compiler_core/ir/scalar_ops.h"
#include "compiler_core/passes/rewrite.h"

namespace kiln {
namespace {

constexpr int64_t kMostElements = 64;
constexpr size_t kMostArithmetic = 64;  // nodes below a reduction that are looked at

bool is_reduced(const std::vector<int>& axes, size_t axis) {
  return std::binary_search(axes.begin(), axes.end(), static_cast<int>(axis));
}

// An axis along which a View reads: how far a step goes, and over how many elements.
struct Walked {
  int64_t stride = 0, size = 1;
  bool reduced = false;
};

// By stride, the innermost first; axes that repeat or have one element say nothing. Nothing when a
// size is known only at run time but matters.
std::optional<std::vector<Walked>> walked_axes(const Node& view, const std::vector<int>& reduced) {
  const auto& attr = std::get<ViewAttr>(view.attr);
  std::vector<Walked> axes;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i].is(1) || attr.strides[i].is(0)) continue;
    if (!attr.strides[i].is_constant()) return std::nullopt;
    // A dynamic axis counts as the longest: a batch.
    const int64_t size = view.shape[i].is_constant() ? view.shape[i].constant() : INT32_MAX;
    axes.push_back({std::abs(attr.strides[i].constant()), size, is_reduced(reduced, i)});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Walked& a, const Walked& b) { return a.stride < b.stride; });
  return axes;
}

bool reads_windows(const Node& view, const std::vector<int>& reduced) {
  const auto axes = walked_axes(view, reduced);
  if (!axes) return false;
  int64_t extent = 1;  // of all axes further in
  int runs = 0;        // of reduced axes
  bool overlap = false, previous = false;
  for (const Walked& axis : *axes) {
    overlap = overlap || axis.stride < extent;
    extent += (std::min<int64_t>(axis.size, INT32_MAX) - 1) * axis.stride;
    runs += axis.reduced && !previous;
    previous = axis.reduced;
  }
  return runs > 0 && (overlap || runs > 1);
}

// Which reductions are over windows.
class Unroller {
 public:
  explicit Unroller(const Graph& graph) : graph_(graph) {
    // By node: how often what lies below it is written out. A window over windows multiplies.
    std::vector<int64_t> copies;
    for (const Node& node : graph.nodes()) {
      int64_t below = 1;
      const bool passes = is_elementwise(node.op) || traits(node.op).kind == OpKind::kIndexMap;
      if (passes || traits(node.op).kind == OpKind::kReduce)
        for (NodeId operand : node.operands)
          below = std::max(below, copies[static_cast<size_t>(operand)]);
      const int64_t elements = window_elements(node);
      const bool unrolled = elements > 1 && elements * below <= kMostElements;
      if (unrolled) unrolled_.insert(&node);
      copies.push_back(unrolled ? elements * below : passes ? below : 1);
    }
  }

  bool applies(const Node& node) const { return unrolled_.count(&node) != 0; }
  bool empty() const { return unrolled_.empty(); }

 private:
  // 1 for what is no reduction over a small window.
  int64_t window_elements(const Node& node) const {
    if (traits(node.op).kind != OpKind::kReduce) return 1;
    const auto& axes = std::get<ReduceAttr>(node.attr).axes;
    const Shape& shape = graph_.node(node.operands[0]).shape;
    int64_t elements = 1;
    for (int axis : axes) {
      const Dim& size = shape[static_cast<size_t>(axis)];
      if (!size.is_constant() || size.constant() < 1 || size.constant() > kMostElements) return 1;
      elements *= size.constant();
      if (elements > kMostElements) return 1;
    }
    return stands_on_windows(node.operands[0], axes) ? elements : 1;
  }

  bool stands_on_windows(NodeId root, const std::vector<int>& axes) const {
    std::vector<NodeId> seen = {root};
    for (size_t i = 0; i < seen.size() && i < kMostArithmetic; ++i) {
      const Node& node = graph_.node(seen[i]);
      // A distance between places, as masks have it, is computed and not read.
      const bool reads = node.op == Op::kView && graph_.node(node.operands[0]).op != Op::kIota;
      if (reads && reads_windows(node, axes)) return true;
      if (!is_elementwise(node.op)) continue;
      for (NodeId operand : node.operands)
        if (std::find(seen.begin(), seen.end(), operand) == seen.end()) seen.push_back(operand);
    }
    return false;
  }

  const Graph& graph_;
  std::unordered_set<const Node*> unrolled_;
};

// The slices of x that the reduction combines, in row-major order of the reduced axes.
std::vector<NodeId> elements_of(GraphBuilder& b, NodeId x, const Node& node) {
  const auto& axes = std::get<ReduceAttr>(node.attr).axes;
  const Shape shape = b.shape(x);
  const std::vector<Dim> dense = contiguous_strides(shape);
  std::vector<Dim> strides;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!is_reduced(axes, i)) strides.push_back(dense[i]);
  std::vector<Dim> offsets = {0};
  for (int axis : axes) {
    const size_t at = static_cast<size_t>(axis);
    std::vector<Dim> next;
    for (const Dim& offset : offsets)
      for (int64_t i = 0; i < shape[at].constant(); ++i)
        next.push_back(offset + dense[at] * Dim(i));
    offsets = std::move(next);
  }
  std::vector<NodeId> elements;
  for (const Dim& offset : offsets) elements.push_back(b.view(x, node.shape, strides, offset));
  return elements;
}

}  // namespace

Result<Graph> unroll_windows(const Graph& graph) {
  const Unroller unroller(graph);
  if (unroller.empty()) return graph;
  return rewrite_nodes(graph, [&](GraphBuilder& b, const Node& node, std::vector<NodeId> operands) {
    if (!unroller.applies(node)) return emit(b, node, std::move(operands));
    const DType compute = compute_type(node.dtype);
    std::vector<NodeId> terms = elements_of(b, operands[0], node);
    for (NodeId& term : terms) term = b.cast(term, compute);
    // Neighbours first: a tree is shallow, and rounds less than a chain.
    while (terms.size() > 1) {
      std::vector<NodeId> joined;
      for (size_t i = 0; i + 1 < terms.size(); i += 2)
        joined.push_back(b.binary(combining_op(node.op), terms[i], terms[i + 1]));
      if (terms.size() % 2 == 1) joined.push_back(terms.back());
      terms = std::move(joined);
    }
    return b.cast(terms[0], node.dtype);
  });
}

}  // namespace kiln
