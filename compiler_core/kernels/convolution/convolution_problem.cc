#include "compiler_core/kernels/convolution/convolution_problem.h"

#include <algorithm>
#include <optional>

#include "compiler_core/base/check.h"
#include "compiler_core/plan/channels_last.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

struct ImageSource {
  int input = 0;
  Dim offset = 0;
  std::vector<Dim> strides;
};

int64_t number(const Dim& size) {
  return size.is_constant() ? size.constant() : 1;
}

std::vector<int64_t> numbers(const std::vector<Dim>& sizes) {
  std::vector<int64_t> all;
  for (const Dim& size : sizes) all.push_back(number(size));
  return all;
}

ImageSource source_of(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  ImageSource source;
  source.strides = contiguous_strides(node.shape);
  const Node* input = &node;
  if (node.op == Op::kView) {
    const auto& view = std::get<ViewAttr>(node.attr);
    source.strides = view.strides;
    source.offset = view.offset;
    input = &graph.node(node.operands[0]);
  }
  CHECK(input->op == Op::kInput, "a convolution's operands are views of inputs");
  source.input = std::get<InputAttr>(input->attr).index;
  return source;
}

// The axes of `all` from `first` on, behind axes of `absent`.
template <class Size>
std::array<Size, 3> spatial(const std::vector<Size>& all, size_t first, int64_t absent) {
  std::array<Size, 3> result;
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

bool SizedImages::is_constant() const {
  const auto constant = [](const Dim& size) { return size.is_constant(); };
  return std::all_of(in.begin(), in.end(), constant) &&
         std::all_of(at.begin(), at.end(), constant) && constant(offset) && constant(image) &&
         constant(group) && constant(channel);
}

SizedSpatial ConvolutionProblem::sized_reach() const {
  SizedSpatial result;
  for (size_t i = 0; i < 3; ++i)
    result[i] = (sized.out[i] - Dim(1)) * Dim(stride[i]) + Dim((window[i] - 1) * dilation[i] + 1);
  return result;
}

bool ConvolutionProblem::is_inside() const {
  const SizedSpatial far = sized_reach();
  for (size_t i = 0; i < 3; ++i) {
    const Dim beyond = far[i] - sized.in[i];
    if (low[i] > 0 || !beyond.is_constant() || beyond.constant() > 0) return false;
  }
  return true;
}

Dim ConvolutionProblem::sized_plane() const {
  const SizedSpatial far = sized_reach();
  return far[0] * far[1] * far[2];
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
  const ImageSource x = source_of(workload, node->operands[0]);
  const ImageSource w = source_of(workload, node->operands[1]);
  const Shape& images = workload.node(node->operands[0]).shape;
  const std::vector<int64_t> w_strides = numbers(w.strides);
  const std::vector<int64_t> weight = constant_sizes(workload.node(node->operands[1]).shape);

  ConvolutionProblem p;
  p.images = images[0];
  p.groups = attr.groups;
  p.channels = weight[1];
  SizedImages& sized = p.sized;
  sized.in = spatial(images, 2, 1);
  sized.out = spatial(node->shape, 2, 1);
  sized.at = spatial(x.strides, 2, 0);
  sized.offset = x.offset;
  sized.image = x.strides[0];
  sized.channel = x.strides[1];
  sized.group = x.strides[1] * p.channels;
  sized.positions = sized.out[0] * sized.out[1] * sized.out[2];
  p.in = spatial(numbers(images), 2, 1);
  p.out = spatial(numbers(node->shape), 2, 1);
  p.window = spatial(weight, 2, 1);
  p.stride = spatial(attr.stride, 0, 1);
  p.dilation = spatial(attr.dilation, 0, 1);
  p.low = spatial(attr.low, 0, 0);
  p.x_channel = number(x.strides[1]);
  p.x_at = spatial(numbers(x.strides), 2, 0);
  p.w_channel = w_strides[1];
  p.w_at = spatial(w_strides, 2, 0);
  const std::optional<int64_t> flat = flat_stride(p);
  p.flat_weight = flat.has_value();

  MatmulProblem& product = p.product;
  product.product = static_cast<NodeId>(node - nodes.begin());
  p.channels_last = convolution_result(workload, product.product) != product.product;
  product.stored = workload.node(node->operands[0]).dtype;
  product.result = node->dtype;
  product.batch = {size_at_hints(workload, p.images), p.groups};
  product.batches = product.batch[0] * p.groups;
  product.m = weight[0] / p.groups;
  product.n = number(sized.positions);
  product.k = p.channels * p.window[0] * p.window[1] * p.window[2];
  product.a = {
      w.input, number(w.offset), {0, product.m * w_strides[0]}, w_strides[0], flat.value_or(0)};
  product.b = {x.input, number(x.offset), {number(sized.image), number(sized.group)}, 0, 0};
  product.a.dtype = product.b.dtype = product.stored;
  return p;
}

Status check_channels_are_second(const Workload& workload) {
  if (!ConvolutionProblem::of(workload.graph).channels_last) return {};
  return fail(Code::kUnsupported, "the kernel stores channel by channel, not channels last");
}

}  // namespace kiln
