#include "compiler_core/plan/joined_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler_core/ir/affine.h"
#include "compiler_core/plan/rms_norm.h"

namespace kiln {
namespace {

constexpr int64_t kLineUnit = 8;  // halves in 16 bytes

tl::unexpected<Error> refuse(std::string_view rule) {
  return fail(Code::kUnsupported, fmt::format("products of one first operand: {}", rule));
}

bool is_source(Op op) {
  return traits(op).kind == OpKind::kSource;
}

// The matmuls that `output` needs, ascending.
std::vector<NodeId> products_of(const Graph& graph, NodeId output) {
  std::set<NodeId> met, products;
  std::vector<NodeId> stack = {output};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (!met.insert(id).second) continue;
    const Node& node = graph.node(id);
    if (node.op == Op::kMatmul)
      products.insert(id);
    else
      stack.insert(stack.end(), node.operands.begin(), node.operands.end());
  }
  return {products.begin(), products.end()};
}

Status check_products(const Graph& graph, const JoinedProducts& joined) {
  const Node& first = graph.node(joined.first_operand);
  const auto norm = find_rms_norm(graph, joined.first_operand);
  if (!line_pitch(graph, norm ? norm->rows : joined.first_operand, true))
    return refuse("its rows do not lie in lines");
  if (first.shape[1].constant() % kLineUnit != 0 || numel(first.shape).is(0))
    return refuse("its depth is not of whole 16 bytes");
  std::optional<int64_t> pitch;
  for (const JoinedOutput& output : joined.outputs)
    for (NodeId id : output.products) {
      const Node& product = graph.node(id);
      const NodeId second = product.operands[1];
      const auto lines = line_pitch(graph, second, false);
      if (!lines || graph.node(second).dtype != first.dtype || product.dtype != DType::kF32)
        return refuse("a second operand does not lie in lines");
      if (pitch && *pitch != *lines) return refuse("second operands have lines of several lengths");
      pitch = lines;
    }
  return {};
}

// Arithmetic of the output's shape over its products, Inputs and Views of leaves.
Status check_epilogue(const Graph& graph, const JoinedOutput& output) {
  const Shape& space = graph.node(output.output).shape;
  if (!is_16_bit_float(graph.node(output.output).dtype) || space.empty() ||
      !space.back().is_constant() || space.back().constant() % kLineUnit != 0)
    return refuse("a result is not of halves in whole 16 bytes");
  std::set<NodeId> met;
  std::vector<NodeId> stack = {output.output};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    const Node& node = graph.node(id);
    if (is_source(node.op) || !met.insert(id).second) continue;
    if (node.op == Op::kView && is_source(graph.node(node.operands[0]).op)) continue;
    if (node.shape != space) return refuse("a value is outside the product's shape");
    if (node.op == Op::kMatmul) continue;
    if (!is_elementwise(node.op) || node.op == Op::kPhilox)
      return refuse("a value is no epilogue of a product");
    stack.insert(stack.end(), node.operands.begin(), node.operands.end());
  }
  return {};
}

}  // namespace

std::optional<int64_t> line_pitch(const Graph& graph, NodeId operand, bool rows) {
  const Node* node = &graph.node(operand);
  if (node->shape.size() != 2 || !node->shape[1].is_constant() ||
      (!rows && !node->shape[0].is_constant()))
    return std::nullopt;
  std::vector<Dim> strides = contiguous_strides(node->shape);
  if (node->op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node->attr);
    if (!view.offset.is_constant() || view.offset.constant() % kLineUnit != 0) return std::nullopt;
    strides = view.strides;
    node = &graph.node(node->operands[0]);
  }
  if (node->op != Op::kInput || !is_16_bit_float(node->dtype)) return std::nullopt;
  const Dim &inner = strides[rows ? 1 : 0], &outer = strides[rows ? 0 : 1];
  const bool lines = inner.is(1) && outer.is_constant() && outer.constant() > 0 &&
                     outer.constant() % kLineUnit == 0;
  return lines ? std::optional(outer.constant()) : std::nullopt;
}

std::optional<JoinedProducts> find_joined_products(const Graph& graph) {
  JoinedProducts found;
  int products = 0;
  for (const Node& node : graph.nodes()) {
    if (traits(node.op).kind != OpKind::kContract) continue;
    if (node.op != Op::kMatmul) return std::nullopt;
    if (products++ > 0 && node.operands[0] != found.first_operand) return std::nullopt;
    found.first_operand = node.operands[0];
  }
  if (products < 2) return std::nullopt;
  for (NodeId id : graph.outputs()) found.outputs.push_back({id, products_of(graph, id)});
  return found;
}

Status check_joined_products(const Graph& graph) {
  const JoinedProducts joined = *find_joined_products(graph);
  const size_t of_each = joined.outputs[0].products.size();
  if (of_each > kMostProductsOfOutput) return refuse("a result has more than two");
  std::set<NodeId> met;
  size_t products = 0;
  for (const JoinedOutput& output : joined.outputs) {
    if (output.products.size() != of_each || of_each == 0)
      return refuse("results have different numbers of products");
    products += of_each;
    met.insert(output.products.begin(), output.products.end());
  }
  if (met.size() != products) return refuse("two results need one product");
  if (products > kMostJoinedProducts) return refuse("there are more than eight");
  TRY_STATUS(check_products(graph, joined));
  for (const JoinedOutput& output : joined.outputs) TRY_STATUS(check_epilogue(graph, output));
  return {};
}

}  // namespace kiln
