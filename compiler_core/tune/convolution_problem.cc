#include "compiler_core/tune/convolution_problem.h"

#include <algorithm>
#include <optional>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

struct Source {
  int input = 0;
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

Source source_of(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::vector<Dim> strides = contiguous_strides(node.shape);
  Source source;
  const Node* input = &node;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    strides = view.strides;
    source.offset = view.offset.constant();
    input = &graph.node(node.operands[0]);
  }
  CHECK(input->op == Op::kInput, "a convolution's operands are views of inputs");
  source.input = std::get<InputAttr>(input->attr).index;
  for (const Dim& stride : strides) source.strides.push_back(stride.constant());
  return source;
}

std::vector<int64_t> without_images(const Shape& shape) {
  return constant_sizes(Shape(shape.begin() + 1, shape.end()));
}

// The axes of `all` from `first` on, behind axes of `absent`.
Spatial spatial(const std::vector<int64_t>& all, size_t first, int64_t absent) {
  Spatial result;
  result.fill(absent);
  const size_t count = all.size() - first;
  for (size_t i = 0; i < count; ++i) result[3 - count + i] = all[first + i];
  return result;
}

// The stride with which one loop walks the weight's channels and window; nothing when none does.
std::optional<int64_t> flat_stride(const ConvolutionProblem& p) {
  const std::array<int64_t, 4> sizes = {p.channels, p.window[0], p.window[1], p.window[2]};
  const std::array<int64_t, 4> strides = {p.w_channel, p.w_at[0], p.w_at[1], p.w_at[2]};
  int64_t inner = 0, expected = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (expected == 0)
      inner = expected = strides[i];
    else if (strides[i] != expected)
      return std::nullopt;
    expected *= sizes[i];
  }
  return inner == 0 ? 1 : inner;
}

}  // namespace

Spatial ConvolutionProblem::reach() const {
  Spatial result;
  for (size_t i = 0; i < 3; ++i)
    result[i] = (out[i] - 1) * stride[i] + (window[i] - 1) * dilation[i] + 1;
  return result;
}

bool ConvolutionProblem::is_inside() const {
  const Spatial far = reach();
  for (size_t i = 0; i < 3; ++i)
    if (low[i] > 0 || far[i] > in[i]) return false;
  return true;
}

int64_t ConvolutionProblem::plane() const {
  const Spatial far = reach();
  return far[0] * far[1] * far[2];
}

ConvolutionProblem ConvolutionProblem::of(const Graph& workload) {
  const auto nodes = workload.nodes();
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [](const Node& n) { return n.op == Op::kConvolution; });
  CHECK(node != nodes.end(), "a convolution workload has a convolution");
  const auto& attr = std::get<ConvolutionAttr>(node->attr);
  const Source x = source_of(workload, node->operands[0]);
  const Source w = source_of(workload, node->operands[1]);
  const Shape& images = workload.node(node->operands[0]).shape;
  const std::vector<int64_t> in = without_images(images), out = without_images(node->shape);
  const std::vector<int64_t> weight = constant_sizes(workload.node(node->operands[1]).shape);

  ConvolutionProblem p;
  p.images = images[0];
  p.groups = attr.groups;
  p.channels = weight[1];
  p.in = spatial(in, 1, 1);
  p.out = spatial(out, 1, 1);
  p.window = spatial(weight, 2, 1);
  p.stride = spatial(attr.stride, 0, 1);
  p.dilation = spatial(attr.dilation, 0, 1);
  p.low = spatial(attr.low, 0, 0);
  p.x_channel = x.strides[1];
  p.x_at = spatial(x.strides, 2, 0);
  p.w_channel = w.strides[1];
  p.w_at = spatial(w.strides, 2, 0);
  const std::optional<int64_t> flat = flat_stride(p);
  p.flat_weight = flat.has_value();

  MatmulProblem& product = p.product;
  product.product = static_cast<NodeId>(node - nodes.begin());
  product.stored = workload.node(node->operands[0]).dtype;
  product.result = node->dtype;
  product.batch = {p.images.is_constant() ? p.images.constant() : 1, p.groups};
  product.batches = product.batch[0] * p.groups;
  product.m = weight[0] / p.groups;
  product.n = p.out[0] * p.out[1] * p.out[2];
  product.k = p.channels * p.window[0] * p.window[1] * p.window[2];
  product.a = {w.input, w.offset, {0, product.m * w.strides[0]}, w.strides[0], flat.value_or(0)};
  product.b = {x.input, x.offset, {x.strides[0], p.channels * x.strides[1]}, 0, 0};
  return p;
}

}  // namespace kiln
