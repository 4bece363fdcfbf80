// check_attention: the rules of attention.h as a checker.
#include <algorithm>
#include <set>

#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/attention/computed_operands.h"

namespace kiln {
namespace {

class Rules {
 public:
  Rules(const Graph& graph, AttentionPattern pattern)
      : graph_(graph),
        pattern_(std::move(pattern)),
        result_(attention_result(graph, pattern_)),
        inside_(pattern_.inside.begin(), pattern_.inside.end()) {}

  Status check() {
    TRY_STATUS(operands());
    TRY_STATUS(result());
    std::set<NodeId> of_operands;
    for (NodeId matmul : {pattern_.query_key, pattern_.product})
      for (NodeId id : computed_operand(graph_, node(matmul).operands[1])) of_operands.insert(id);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& x = node(id);
      if (is_leaf(x.op) || inside_.count(id) || id == pattern_.product || id == result_) continue;
      if (of_operands.contains(id)) continue;
      if (x.op == Op::kView && is_leaf(node(x.operands[0]).op)) continue;
      if (!is_elementwise(x.op)) return refuse(x, "is no part of an attention kernel");
      const bool of_scores = x.shape == node(pattern_.scores).shape && id < pattern_.scores;
      if (!of_scores && x.shape != node(result_).shape)
        return refuse(x, "is outside the shapes of scores and output");
    }
    return {};
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  static tl::unexpected<Error> refuse(const Node& node, std::string_view rule) {
    return fail(Code::kUnsupported, std::string(to_string(node.op)) + " " +
                                        std::string(to_string(node.dtype)) + to_string(node.shape) +
                                        ": " + std::string(rule));
  }

  Status operands() const {
    TRY_STATUS(check_computed_operands(graph_, pattern_));
    const auto& first = node(pattern_.query_key).operands;
    const NodeId value = node(pattern_.product).operands[1];
    for (NodeId id : {first[0], first[1], value}) {
      const Node& x = node(id);
      const bool view = x.op == Op::kView && node(x.operands[0]).op == Op::kInput;
      const bool is_computed = id != first[0] && !computed_operand(graph_, id).empty();
      if (x.op != Op::kInput && !view && !is_computed)
        return refuse(x, "an attention operand is no view of an input");
      if (x.dtype != node(value).dtype) return refuse(x, "attention operands have one dtype");
      if (x.dtype != DType::kF32 && x.dtype != DType::kF16 && x.dtype != DType::kBF16)
        return refuse(x, "attention operands are f32, f16 or bf16");
    }
    return {};
  }

  // One output beside log_sums, in the order of the result; the result's last axis is the product's.
  Status result() const {
    const Node& product = node(pattern_.product);
    const AttentionOutputs outputs = attention_outputs(graph_, pattern_);
    if (graph_.outputs().size() != (outputs.log_sums < 0 ? 1 : 2) || outputs.result < 0)
      return refuse(product,
                    "an attention kernel has one output beside the logarithms of its sums");
    if ((pattern_.log_sums != kInvalidNode) != (outputs.log_sums >= 0))
      return refuse(product, "the logarithms of an attention's sums are an output");
    const NodeId output = graph_.outputs()[static_cast<size_t>(outputs.result)];
    if (node(output).shape != node(result_).shape)
      return refuse(node(output), "the output has not the result's shape");
    if (output != result_ && !is_elementwise(node(output).op))
      return refuse(node(output), "is no epilogue of an attention kernel");
    if (result_ == pattern_.product) return {};
    const Node& view = node(result_);
    const auto& attr = std::get<ViewAttr>(view.attr);
    std::vector<std::pair<Dim, Dim>> axes, expected;  // stride, size
    for (size_t i = 0; i < view.shape.size(); ++i)
      axes.emplace_back(attr.strides[i], view.shape[i]);
    const std::vector<Dim> strides = contiguous_strides(product.shape);
    for (size_t i = 0; i < strides.size(); ++i)
      expected.emplace_back(product.shape[i].is(1) ? Dim(0) : strides[i], product.shape[i]);
    const bool last = axes.back() == expected.back();
    std::sort(axes.begin(), axes.end());
    std::sort(expected.begin(), expected.end());
    if (!attr.offset.is(0) || axes != expected || !last)
      return refuse(view, "is not the product with its axes reordered, the last in place");
    return {};
  }

  const Graph& graph_;
  const AttentionPattern pattern_;
  const NodeId result_;
  const std::set<NodeId> inside_;
};

}  // namespace

Status check_attention(const Graph& graph) {
  auto pattern = find_attention(graph);
  if (!pattern)
    return fail(Code::kUnsupported,
                "no kernel has matmuls and reductions that are not matmul, softmax, matmul");
  return Rules(graph, *std::move(pattern)).check();
}

}  // namespace kiln
