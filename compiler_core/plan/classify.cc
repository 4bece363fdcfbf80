// classify: the rules of workload.h as a checker. What it accepts, code generation may rely on.
#include <algorithm>
#include <optional>
#include <set>

#include "compiler_core/base/check.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/attention/attention_gradient.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/dequantised.h"
#include "compiler_core/plan/joined_products.h"
#include "compiler_core/plan/picked_products.h"
#include "compiler_core/plan/rms_norm.h"
#include "compiler_core/plan/workload.h"

namespace kiln {
namespace {

tl::unexpected<Error> refuse(const Node& node, std::string_view rule) {
  return fail(Code::kUnsupported, std::string(to_string(node.op)) + " " +
                                      std::string(to_string(node.dtype)) + to_string(node.shape) +
                                      ": " + std::string(rule));
}

class Classifier {
 public:
  explicit Classifier(const Graph& graph) : graph_(graph) {}

  Result<Family> run() {
    TRY_STATUS(common());
    int matmuls = 0, reduces = 0;
    for (const Node& node : graph_.nodes()) {
      if (stands_alone(node.op)) return single_op(node);
      matmuls += traits(node.op).kind == OpKind::kContract;
      reduces += traits(node.op).kind == OpKind::kReduce;
    }
    if (matmuls > 2 && reduces == 0 && find_attention_gradient(graph_)) {
      TRY_STATUS(check_attention_gradient(graph_));
      return Family::kAttentionGradient;
    }
    rms_norm_ = reduces == 1 ? find_rms_norm_of_operand() : std::nullopt;
    if (matmuls > 0 && reduces > 0 && !rms_norm_) {
      TRY_STATUS(check_attention(graph_));
      return Family::kAttention;
    }
    if (matmuls > 1 && find_joined_products(graph_)) {
      TRY_STATUS(check_joined_products(graph_));
      return Family::kProducts;
    }
    if (matmuls > 0) return matmul();
    if (reduces > 0) return reduction();
    return pointwise();
  }

 private:
  const Node& operand(const Node& node, size_t i) const { return graph_.node(node.operands[i]); }

  Status common() const {
    const std::vector<bool> live = live_nodes(graph_);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (!live[static_cast<size_t>(id)]) return refuse(node, "no output needs it");
      for (const Dim& size : node.shape)
        if (size.is_constant() ? size.constant() < 1 : lower_bound(size, graph_.symbols()) < 0)
          return refuse(node, "a size is not a positive constant, or may be negative");
      TRY_STATUS(half_is_only_moved(node));
      TRY_STATUS(f8_is_only_moved(node));
    }
    std::set<NodeId> seen;
    if (graph_.outputs().empty()) return fail(Code::kUnsupported, "a kernel has outputs");
    for (NodeId id : graph_.outputs()) {
      if (!seen.insert(id).second) return refuse(graph_.node(id), "is an output twice");
    }
    return {};
  }

  // 8-bit floats are moved and converted, and read by kernels that their author wrote.
  Status f8_is_only_moved(const Node& node) const {
    const OpKind kind = traits(node.op).kind;
    if (kind == OpKind::kIndexMap || kind == OpKind::kGather || kind == OpKind::kCustom) return {};
    if (is_elementwise(node.op) || kind == OpKind::kReduce) return {};  // as half_is_only_moved()
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (is_8_bit_float(operand(node, i).dtype))
        return refuse(node, "8-bit floats are only moved or converted; cast to bf16 before");
    return {};
  }

  Status half_is_only_moved(const Node& node) const {
    if (node.op == Op::kCast) {
      const DType from = operand(node, 0).dtype;
      const bool direct = (!is_half(from) || node.dtype == DType::kF32) &&
                          (!is_half(node.dtype) || from == DType::kF32);
      return direct ? Status{} : Status(refuse(node, "half types convert through f32"));
    }
    if (!is_elementwise(node.op) && traits(node.op).kind != OpKind::kReduce) return {};
    bool half = is_half(node.dtype);
    for (size_t i = 0; i < node.operands.size(); ++i)
      half = half || is_half(operand(node, i).dtype);
    return half ? Status(refuse(node, "half types are only moved or converted")) : Status{};
  }

  Result<Family> single_op(const Node& node) const {
    if (graph_.outputs().size() != 1 || &graph_.node(graph_.outputs()[0]) != &node)
      return refuse(node, "is a kernel of its own");
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (operand(node, i).op != Op::kInput) return refuse(node, "reads inputs only");
    switch (traits(node.op).kind) {
      case OpKind::kScan:
        return Family::kScan;
      case OpKind::kSort:
        return Family::kSort;
      case OpKind::kScatter:
        return Family::kScatter;
      default:
        return Family::kCustom;
    }
  }

  // The rows of the first operand of the first matmul, where a norm scales them.
  std::optional<RmsNorm> find_rms_norm_of_operand() const {
    const auto nodes = graph_.nodes();
    const auto matmul =
        std::ranges::find_if(nodes, [](const Node& node) { return node.op == Op::kMatmul; });
    return matmul == nodes.end() ? std::nullopt : find_rms_norm(graph_, matmul->operands[0]);
  }

  Status outputs_are_computed() const {
    for (NodeId id : graph_.outputs())
      if (is_leaf(graph_.node(id).op) || graph_.node(id).op == Op::kView)
        return refuse(graph_.node(id), "is an output beside a matmul or reduction");
    return {};
  }

  Result<Family> pointwise() const {
    const Shape& space = graph_.node(graph_.outputs()[0]).shape;
    for (NodeId id : graph_.outputs())
      if (graph_.node(id).shape != space)
        return refuse(graph_.node(id), "outputs of a pointwise kernel have one shape");
    for (const Node& node : graph_.nodes()) {
      if (node.op == Op::kView && is_elementwise(operand(node, 0).op))
        return refuse(node, "a view stands on arithmetic");
      if (node.op == Op::kPhilox && !is_seed(operand(node, 0)))
        return refuse(node, "the seed is neither a leaf nor a view of one");
    }
    return Family::kPointwise;
  }

  bool is_seed(const Node& node) const {
    return is_leaf(node.op) || (node.op == Op::kView && is_leaf(operand(node, 0).op));
  }

  Result<Family> matmul() const {
    std::optional<NodeId> product;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (traits(graph_.node(id).op).kind != OpKind::kContract) continue;
      if (product) return refuse(graph_.node(id), "a kernel has one matmul or convolution");
      product = id;
    }
    const Node& matmul = graph_.node(*product);
    const NodeId result = convolution_result(graph_, *product);
    if (graph_.outputs().size() != 1 || graph_.outputs()[0] != result)
      TRY_STATUS(outputs_are_computed());
    std::set<NodeId> inside;  // of the operands: no part of an epilogue
    const auto picked = picked_matrices(graph_, matmul);
    if (rms_norm_ && (picked || find_dequantised(graph_, matmul, 1)))
      return refuse(matmul, "rows that a norm scales are multiplied with what lies in memory");
    if (picked) TRY_STATUS(picked_operands(matmul, *picked));
    if (picked) inside.insert(picked->gather);
    for (size_t i = 0; i < 2; ++i) {
      NodeId at = picked && i == 1 ? picked->table : matmul.operands[i];
      std::optional<Dequantised> narrow;
      if (matmul.op == Op::kMatmul && !picked) narrow = find_dequantised(graph_, matmul, i);
      if (narrow) {
        TRY_STATUS(factor_is_read(narrow->zero));
        TRY_STATUS(factor_is_read(narrow->scale));
        TRY_STATUS(factor_is_read(narrow->shift));
        inside.insert(narrow->nodes.begin(), narrow->nodes.end());
        at = narrow->stored;
      }
      if (i == 0 && rms_norm_) {
        inside.insert(rms_norm_->nodes.begin(), rms_norm_->nodes.end());
        at = rms_norm_->rows;
      }
      const Node& x = graph_.node(at);
      const bool view = x.op == Op::kView && operand(x, 0).op == Op::kInput;
      if (x.op != Op::kInput && !view) return refuse(matmul, "operands are views of inputs");
    }
    if (graph_.outputs().size() != 1) return refuse(matmul, "a product's kernel has one output");
    const Shape& space = graph_.node(result).shape;
    if (graph_.node(graph_.outputs()[0]).shape != space)
      return refuse(matmul, "the output has the product's shape");
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (id != result && !inside.contains(id)) TRY_STATUS(epilogue(graph_.node(id), space));
    if (matmul.op == Op::kMatmul) return Family::kMatmul;
    if (!operand(matmul, 0).shape[1].is_constant() || !walks_known_sizes(operand(matmul, 1)))
      return refuse(matmul, "only images, their number and sizes, may be known at run time");
    return Family::kConvolution;
  }

  Status picked_operands(const Node& matmul, const PickedMatrices& picked) const {
    if (!is_picked_product(graph_, matmul)) return refuse(matmul, "cannot pick its matrices");
    if (graph_.node(picked.index).op != Op::kInput)
      return refuse(matmul, "matrices are picked by an input");
    if (!reads_in_lines(graph_, matmul.operands[0], true) ||
        !reads_in_lines(graph_, picked.table, false))
      return refuse(matmul, "operands of a picked product do not lie in lines");
    return {};
  }

  // A zero or a scale: Casts of Views of a leaf.
  Status factor_is_read(NodeId id) const {
    if (id == kInvalidNode) return {};
    NodeId at = id;
    while (graph_.node(at).op == Op::kCast || graph_.node(at).op == Op::kView)
      at = graph_.node(at).operands[0];
    return is_leaf(graph_.node(at).op) ? Status{}
                                       : Status(refuse(graph_.node(at),
                                                       "is computed in a kernel "
                                                       "that is to read it"));
  }

  static bool walks_known_sizes(const Node& x) {
    const auto constant = [](const Dim& dim) { return dim.is_constant(); };
    const bool sizes = std::all_of(x.shape.begin(), x.shape.end(), constant);
    if (x.op != Op::kView) return sizes;
    const auto& view = std::get<ViewAttr>(x.attr);
    return sizes && view.offset.is_constant() &&
           std::all_of(view.strides.begin(), view.strides.end(), constant);
  }

  Status epilogue(const Node& node, const Shape& space) const {
    if (is_leaf(node.op) || traits(node.op).kind == OpKind::kContract) return {};
    if (node.op == Op::kView)
      return is_leaf(operand(node, 0).op) ? Status{}
                                          : Status(refuse(node, "is not a view of a leaf"));
    if (!is_elementwise(node.op)) return refuse(node, "is no epilogue of a product");
    return node.shape == space ? Status{} : Status(refuse(node, "is outside the product's shape"));
  }

  Result<Family> reduction() {
    TRY_STATUS(find_space());
    TRY_STATUS(outputs_are_computed());
    for (NodeId id = 0; id < graph_.size(); ++id) TRY_STATUS(place(id));
    for (NodeId id : graph_.outputs()) {
      const Shape& shape = graph_.node(id).shape;
      if (shape != space_.shape && shape != reduced_shape_)
        return refuse(graph_.node(id), "an output is outside the iteration space");
    }
    return row() ? Family::kRowReduction : Family::kColumnReduction;
  }

  Status find_space() {
    bool found = false;
    for (const Node& node : graph_.nodes()) {
      if (traits(node.op).kind != OpKind::kReduce) continue;
      const auto& axes = std::get<ReduceAttr>(node.attr).axes;
      ReductionSpace space{operand(node, 0).shape, axes.front(), axes.back() + 1};
      if (static_cast<int>(axes.size()) != space.reduced_end - space.reduced_begin)
        return refuse(node, "reduced axes are not adjacent");
      if (found && !(space == space_)) return refuse(node, "two reductions have different spaces");
      found = true;
      space_ = std::move(space);
      reduced_shape_ = node.shape;
    }
    spread_strides_ = contiguous_strides(reduced_shape_);
    const auto at = spread_strides_.begin() + space_.reduced_begin;
    spread_strides_.insert(at, static_cast<size_t>(space_.reduced_end - space_.reduced_begin),
                           Dim(0));
    for (size_t i = 0; i < space_.shape.size(); ++i)
      if (space_.shape[i].is(1)) spread_strides_[i] = 0;
    return {};
  }

  Status place(NodeId id) const {
    const Node& node = graph_.node(id);
    if (is_leaf(node.op) || is_table(id)) return {};
    const bool full = node.shape == space_.shape, reduced = node.shape == reduced_shape_;
    if (!full && !reduced) return refuse(node, "is outside the iteration space");
    if (node.op == Op::kView) {
      if (is_leaf(operand(node, 0).op)) return {};
      const auto& view = std::get<ViewAttr>(node.attr);
      const bool spread = full && operand(node, 0).shape == reduced_shape_ && view.offset.is(0) &&
                          view.strides == spread_strides_ && operand(node, 0).op != Op::kView;
      return spread ? Status{} : Status(refuse(node, "is neither a view of a leaf nor a spread"));
    }
    if (node.op == Op::kGather) {
      const bool picks = reduced && row() && is_table(node.operands[0]);
      return picks ? Status{} : Status(refuse(node, "does not pick one element a row"));
    }
    if (traits(node.op).kind != OpKind::kReduce && !is_elementwise(node.op))
      return refuse(node, "does not occur beside a reduction");
    return {};
  }

  bool row() const { return static_cast<size_t>(space_.reduced_end) == space_.shape.size(); }
  // An input, flattened, that Gathers alone read.
  bool is_table(NodeId id) const {
    const Node& node = graph_.node(id);
    const bool input =
        node.op == Op::kInput || (node.op == Op::kView && operand(node, 0).op == Op::kInput);
    if (!input || node.shape.size() != 1) return false;
    for (const Node& user : graph_.nodes())
      for (size_t i = 0; i < user.operands.size(); ++i)
        if (user.operands[i] == id && (user.op != Op::kGather || i > 0)) return false;
    return true;
  }

  const Graph& graph_;
  std::optional<RmsNorm> rms_norm_;
  ReductionSpace space_;
  Shape reduced_shape_;
  std::vector<Dim> spread_strides_;
};

}  // namespace

Result<Family> classify(const Graph& subgraph) {
  return Classifier(subgraph).run();
}

ReductionSpace reduction_space(const Graph& workload) {
  for (const Node& node : workload.nodes()) {
    if (traits(node.op).kind != OpKind::kReduce) continue;
    const auto& axes = std::get<ReduceAttr>(node.attr).axes;
    return {workload.node(node.operands[0]).shape, axes.front(), axes.back() + 1};
  }
  CHECK(false, "a reduction workload has a reduction");
}

}  // namespace kiln
