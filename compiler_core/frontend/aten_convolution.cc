// Convolutions, transposed ones, and their gradients. The accumulator has the compute type; the
// bias is added there, and the result is rounded once.
#include <algorithm>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/decompositions_convolution.h"

namespace kiln {
namespace {

// One number for each of `count` axes: all of them, or one for all. `fallback` when absent.
std::vector<int64_t> numbers(Call& c, std::string_view name, size_t count, int64_t fallback) {
  std::vector<int64_t> result(count, fallback);
  if (!c.has(name)) return result;
  const std::vector<Dim> given = c.sizes(name);
  if (!c.ok()) return result;
  if (given.size() != 1 && given.size() != count) {
    c.invalid("needs one or " + std::to_string(count) + " numbers in " + std::string(name));
    return result;
  }
  for (size_t i = 0; i < count; ++i) {
    const Dim& value = given[given.size() == 1 ? 0 : i];
    if (!value.is_constant()) {
      c.unsupported("a dynamic " + std::string(name) + " is not covered");
      return result;
    }
    result[i] = value.constant();
  }
  return result;
}

ConvolutionAttr read_attr(Call& c, size_t spatial) {
  ConvolutionAttr attr;
  attr.stride = numbers(c, "stride", spatial, 1);
  attr.dilation = numbers(c, "dilation", spatial, 1);
  attr.low = attr.high = numbers(c, "padding", spatial, 0);
  attr.groups = c.integer("groups", 1);
  const auto positive = [](int64_t value) { return value >= 1; };
  if (attr.groups < 1 || !std::all_of(attr.stride.begin(), attr.stride.end(), positive) ||
      !std::all_of(attr.dilation.begin(), attr.dilation.end(), positive))
    c.invalid("stride, dilation and groups must be positive");
  return attr;
}

// The bias, one number a channel, added to the accumulator, which is rounded to `type`.
NodeId finish(Call& c, NodeId product, NodeId bias, DType type) {
  GraphBuilder& b = c.b;
  if (!c.ok()) return kInvalidNode;
  if (bias != kInvalidNode) {
    const int channels = 1;
    const NodeId wide = b.cast(bias, b.dtype(product));
    product = b.binary(Op::kAdd, product,
                       b.broadcast_in(wide, b.shape(product), std::span(&channels, 1)));
  }
  return b.cast(product, type);
}

// The operands, with a batch of one where the program has none.
struct Operands {
  NodeId x = kInvalidNode, weight = kInvalidNode, bias = kInvalidNode;
  size_t spatial = 0;
  bool batched = true;
};
Operands read_operands(Call& c) {
  Operands o{c.tensor("input"), c.tensor("weight"), c.optional_tensor("bias"), 0, true};
  if (!c.ok()) return o;
  const size_t rank = c.b.shape(o.weight).size();
  Shape shape = c.b.shape(o.x);
  if (rank < 3 || rank > 5 || (shape.size() != rank && shape.size() + 1 != rank)) {
    c.invalid("needs an input and a weight with one to three spatial axes");
    return o;
  }
  if (!is_float(c.b.dtype(o.x)) || c.b.dtype(o.x) != c.b.dtype(o.weight)) {
    c.unsupported("operands of different dtypes, or that are no floats, are not covered");
    return o;
  }
  o.spatial = rank - 2;
  o.batched = shape.size() == rank;
  if (!o.batched) {
    shape.insert(shape.begin(), 1);
    o.x = c.b.reshape(o.x, shape);
  }
  return o;
}
Values result_of(Call& c, const Operands& o, NodeId product) {
  const NodeId result = finish(c, product, o.bias, c.b.dtype(o.x));
  if (!c.ok() || o.batched) return {result};
  const Shape& shape = c.b.shape(result);
  return {c.b.reshape(result, Shape(shape.begin() + 1, shape.end()))};
}

Values convolution(Call& c) {
  const Operands o = read_operands(c);
  if (!c.ok()) return {};
  const ConvolutionAttr attr = read_attr(c, o.spatial);
  if (!c.ok()) return {};
  if (c.flag("transposed", false)) {
    const NodeId product = transposed_convolution(c.b, o.x, o.weight, attr,
                                                  numbers(c, "output_padding", o.spatial, 0));
    return result_of(c, o, product);
  }
  return result_of(c, o, c.b.convolution(o.x, o.weight, attr));
}

Values transposed(Call& c) {
  const Operands o = read_operands(c);
  if (!c.ok()) return {};
  const ConvolutionAttr attr = read_attr(c, o.spatial);
  const std::vector<int64_t> more = numbers(c, "output_padding", o.spatial, 0);
  if (!c.ok()) return {};
  return result_of(c, o, transposed_convolution(c.b, o.x, o.weight, attr, more));
}

// Padding given as a word: "valid" is none, "same" keeps the sizes, with the odd zero at the end.
Values padded_by_name(Call& c) {
  const Operands o = read_operands(c);
  const std::string_view word = c.text("padding", "valid");
  if (!c.ok()) return {};
  if (word != "valid" && word != "same") return {c.invalid("padding is 'valid' or 'same'")};
  ConvolutionAttr attr;
  attr.stride = numbers(c, "stride", o.spatial, 1);
  attr.dilation = numbers(c, "dilation", o.spatial, 1);
  attr.low.assign(o.spatial, 0);
  attr.high = attr.low;
  attr.groups = c.integer("groups", 1);
  for (size_t i = 0; i < o.spatial && word == "same" && c.ok(); ++i) {
    const Dim& window = c.b.shape(o.weight)[i + 2];
    if (!window.is_constant()) return {c.unsupported("a weight of dynamic size is not covered")};
    const int64_t zeros = attr.dilation[i] * (window.constant() - 1);
    attr.low[i] = zeros / 2;
    attr.high[i] = zeros - zeros / 2;
  }
  if (!c.ok()) return {};
  return result_of(c, o, c.b.convolution(o.x, o.weight, attr));
}

// Gradients of a transposed convolution: of x a convolution, of the weight that of the convolution
// whose input gradient it is.
Values backward(Call& c) {
  GraphBuilder& b = c.b;
  const NodeId gradient = c.tensor("grad_output"), x = c.tensor("input");
  const NodeId w = c.tensor("weight");
  const std::vector<bool> wanted = c.flags("output_mask");
  if (!c.ok()) return {};
  if (wanted.size() != 3 || b.shape(w).size() < 3)
    return {c.invalid("needs three flags and a weight with spatial axes")};
  const ConvolutionAttr attr = read_attr(c, b.shape(w).size() - 2);
  const bool transposed = c.flag("transposed", false);
  if (!c.ok()) return {};
  const DType type = b.dtype(x);
  Values values(3, kInvalidNode);
  if (wanted[0])
    values[0] = transposed ? b.convolution(gradient, w, attr)
                           : convolution_input_gradient(b, gradient, w, attr, b.shape(x));
  if (wanted[1])
    values[1] = transposed ? convolution_weight_gradient(b, x, gradient, attr, b.shape(w))
                           : convolution_weight_gradient(b, gradient, x, attr, b.shape(w));
  if (wanted[2]) values[2] = convolution_bias_gradient(b, gradient);
  for (NodeId& value : values)
    if (value != kInvalidNode) value = b.cast(value, type);
  return values;
}

constexpr Lowering kConvolutionLowerings[] = {
    {"aten.conv1d.default", convolution},
    {"aten.conv2d.default", convolution},
    {"aten.conv3d.default", convolution},
    {"aten.convolution.default", convolution},
    {"aten.conv1d.padding", padded_by_name},
    {"aten.conv2d.padding", padded_by_name},
    {"aten.conv3d.padding", padded_by_name},
    {"aten.conv_transpose1d.default", transposed},
    {"aten.conv_transpose2d.input", transposed},
    {"aten.conv_transpose3d.input", transposed},
    {"aten.convolution_backward.default", backward},
};

}  // namespace

std::span<const Lowering> convolution_lowerings() {
  return kConvolutionLowerings;
}

}  // namespace kiln
