// Products: Gemm, MatMul, Einsum, convolutions and their transposes.
#include "compiler_core/frontend/decompositions_convolution.h"
#include "compiler_core/frontend/onnx/spatial.h"

namespace kiln {
namespace {

Values matmul(OnnxCall& c) {
  return {c.aten("aten.matmul.default", {{"self", c.tensor(0)}, {"other", c.tensor(1)}}).id};
}

// alpha * A * B + beta * C. As PyTorch's exporters write linear and addmm, it is one of them.
Values gemm(OnnxCall& c) {
  Expr x = c.tensor(0), y = c.tensor(1);
  const Expr bias = c.optional_tensor(2);
  if (!c.ok()) return {};
  if (x.shape().size() != 2 || y.shape().size() != 2) return {c.invalid("needs two matrices")};
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  const bool plain = alpha == 1 && (beta == 1 || !c.has(2));
  if (c.flag("transA", false)) x = transposed(x);
  if (plain && c.flag("transB", false) && is_float(x.dtype()) &&
      (!c.has(2) || bias.shape().size() == 1))
    return {c.aten("aten.linear.default", {{"input", x}, {"weight", y}, {"bias", bias}}).id};
  if (c.flag("transB", false)) y = transposed(y);
  if (plain && !c.has(2)) return matmul(c);
  // On the accumulator, which is rounded once.
  Expr product = {&c.b, c.b.matmul(x.id, y.id)};
  if (alpha != 1) product = product * alpha;
  if (c.has(2)) {
    const Expr wide_bias = bias.cast(product.dtype());
    product = product + (beta != 1 ? wide_bias * beta : wide_bias).broadcast(product.shape());
  }
  return {product.cast(x.dtype()).id};
}

Values einsum(OnnxCall& c) {
  std::vector<Expr> operands;
  for (size_t i = 0; i < c.input_count(); ++i) operands.push_back(c.tensor(i));
  return {
      c.aten("aten.einsum.default", {{"equation", c.text("equation", "")}, {"tensors", operands}})
          .id};
}

// The operands of a convolution, with windows over spatial sizes of x.
struct Convolution {
  Expr x, weight, bias;
  SpatialWindows windows;
  ConvolutionAttr attr;
};
Convolution read_convolution(OnnxCall& c) {
  Convolution result{c.tensor(0), c.tensor(1), c.optional_tensor(2), {}, {}};
  if (!c.ok()) return result;
  const Shape spatial = spatial_sizes(c, result.x.shape());
  const Shape weight = result.weight.shape();
  if (!c.ok() || weight.size() != spatial.size() + 2) {
    c.invalid("the weight " + to_string(weight) + " does not fit its operand");
    return result;
  }
  if (!is_float(result.x.dtype()) || result.x.dtype() != result.weight.dtype()) {
    c.unsupported("a convolution of integers, or of two types, is not covered");
    return result;
  }
  std::vector<int64_t> size;
  for (size_t i = 2; i < weight.size(); ++i)
    size.push_back(weight[i].is_constant() ? weight[i].constant() : 0);
  const auto kernel = c.list("kernel_shape");
  if (kernel && !kernel->empty() && *kernel != size) c.invalid("kernel_shape is not the weight's");
  result.windows = read_spatial(c, spatial, size);
  const SpatialWindows& w = result.windows;
  result.attr = {w.stride, w.dilation, w.low, w.high, c.integer("group", 1)};
  if (result.attr.groups < 1) c.invalid("attribute 'group' must be positive");
  return result;
}

Values with_bias(OnnxCall& c, const Convolution& conv, NodeId product) {
  if (!c.ok()) return {};
  GraphBuilder& b = c.b;
  if (c.has(2)) {
    const int channels = 1;
    const NodeId wide = b.cast(conv.bias.id, b.dtype(product));
    product = b.binary(Op::kAdd, product,
                       b.broadcast_in(wide, b.shape(product), std::span(&channels, 1)));
  }
  return {b.cast(product, conv.x.dtype())};
}

Values convolution(OnnxCall& c) {
  const Convolution conv = read_convolution(c);
  if (!c.ok()) return {};
  return with_bias(c, conv, c.b.convolution(conv.x.id, conv.weight.id, conv.attr));
}

// The spatial sizes that output_shape names, by pads; the odd one goes where auto_pad says.
void pad_to_output(OnnxCall& c, const std::vector<int64_t>& output, const Shape& spatial,
                   const std::vector<int64_t>& more, ConvolutionAttr& attr,
                   const std::vector<int64_t>& size) {
  const bool upper = c.text("auto_pad", "NOTSET") == "SAME_UPPER";
  for (size_t i = 0; i < spatial.size(); ++i) {
    if (!spatial[i].is_constant()) {
      c.unsupported("output_shape or auto_pad over a dynamic size is not covered");
      return;
    }
    const int64_t full = (spatial[i].constant() - 1) * attr.stride[i] + more[i] +
                         attr.dilation[i] * (size[i] - 1) + 1;
    const int64_t total = full - output[i];
    if (total < 0) {
      c.unsupported("an output_shape beyond what the windows reach is not covered");
      return;
    }
    attr.low[i] = upper ? total / 2 : total - total / 2;
    attr.high[i] = total - attr.low[i];
  }
}

Values transposed_convolution_of(OnnxCall& c) {
  Convolution conv = read_convolution(c);
  if (!c.ok()) return {};
  const Shape spatial = spatial_sizes(c, conv.x.shape());
  const std::vector<int64_t> more = list_or(c, "output_padding", spatial.size(), 0);
  const std::string_view automatic = c.text("auto_pad", "NOTSET");
  std::vector<int64_t> output = c.list("output_shape").value_or(std::vector<int64_t>());
  if (output.size() > spatial.size())  // batch and channels may stand before
    output.erase(output.begin(), output.end() - static_cast<std::ptrdiff_t>(spatial.size()));
  if (output.empty() && automatic.starts_with("SAME"))
    for (size_t i = 0; i < spatial.size(); ++i)
      output.push_back(spatial[i].is_constant() ? spatial[i].constant() * conv.attr.stride[i] : 0);
  if (!output.empty() && output.size() != spatial.size())
    return {c.invalid("output_shape needs a size for each spatial axis")};
  if (!output.empty()) pad_to_output(c, output, spatial, more, conv.attr, conv.windows.size);
  if (!c.ok()) return {};
  return with_bias(c, conv,
                   transposed_convolution(c.b, conv.x.id, conv.weight.id, conv.attr, more));
}

constexpr OnnxLowering kOnnxProductLowerings[] = {
    {"MatMul", matmul},
    {"Gemm", gemm},
    {"Einsum", einsum},
    {"Conv", convolution},
    {"ConvTranspose", transposed_convolution_of},
};

}  // namespace

std::span<const OnnxLowering> onnx_product_lowerings() {
  return kOnnxProductLowerings;
}

}  // namespace kiln
