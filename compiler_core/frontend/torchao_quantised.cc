// Quantisation as torchao's library of ops writes it: a scale, and maybe a zero point, for each block of
// a tensor. Every step is rounded to the dtype that torchao's own steps have.
#include <cmath>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// A tensor cut into blocks: an axis that is cut becomes two, of the blocks and within one.
struct Blocks {
  Shape parts;              // of the tensor, with these axes
  Shape parameters;         // of what there is one of for each block; broadcasts with `parts`
  Shape counts;             // the same, with one axis for each of the tensor's
  std::vector<int> within;  // the axes of `parts` along which a block lies
};

std::optional<Blocks> blocks_of(const Shape& shape, const std::vector<Dim>& sizes) {
  if (sizes.size() != shape.size()) return std::nullopt;
  Blocks blocks;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const Dim &all = shape[axis], &size = sizes[axis];
    if (size.is(1) || size == all) {
      if (!size.is(1)) blocks.within.push_back(static_cast<int>(blocks.parts.size()));
      const Dim count = size.is(1) ? all : Dim(1);
      blocks.parts.push_back(all);
      blocks.parameters.push_back(count);
      blocks.counts.push_back(count);
      continue;
    }
    if (!all.is_constant() || !size.is_constant() || size.constant() < 1 ||
        all.constant() % size.constant() != 0)
      return std::nullopt;
    const Dim count(all.constant() / size.constant());
    blocks.within.push_back(static_cast<int>(blocks.parts.size()) + 1);
    blocks.parts.insert(blocks.parts.end(), {count, size});
    blocks.parameters.insert(blocks.parameters.end(), {count, Dim(1)});
    blocks.counts.push_back(count);
  }
  return blocks;
}

// Rounds `x` to `type`; the result has its compute type.
Expr rounded(Expr x, DType type) {
  return x.cast(type).cast(compute_type(type));
}

struct Range {
  double least = 0, most = 0;
};
// The integers that a quantised value of `type` may be.
Range range_of(Call& c, DType type) {
  const bool known = type == DType::kI8 || type == DType::kU8;
  if (!known && (!c.has("quant_min") || !c.has("quant_max"))) {
    c.unsupported("the range of this dtype is not known: give quant_min and quant_max");
    return {};
  }
  const Range whole = type == DType::kI8 ? Range{-128, 127} : Range{0, 255};
  return {c.real("quant_min", whole.least), c.real("quant_max", whole.most)};
}

Expr least_of(Expr x, const Blocks& blocks) {
  return {x.b, x.b->reduce(Op::kReduceMin, x.id, blocks.within, true)};
}
Expr greatest_of(Expr x, const Blocks& blocks) {
  return {x.b, x.b->reduce(Op::kReduceMax, x.id, blocks.within, true)};
}

std::optional<Blocks> reduced_blocks(Call& c, Expr x) {
  if (!c.ok()) return std::nullopt;
  auto blocks = blocks_of(x.shape(), c.sizes("block_size"));
  if (!blocks || blocks->within.empty()) {
    c.invalid("the tensor is not divided by 'block_size'");
    return std::nullopt;
  }
  return blocks;
}

Values choose_qparams(Call& c) {
  const Expr x = tensor(c, "input");
  const auto blocks = reduced_blocks(c, x);
  const Range range = range_of(c, c.dtype("target_dtype", DType::kI8));
  const std::string_view mapping = c.text("mapping_type", "SYMMETRIC");
  if (!c.ok() || !blocks) return {kInvalidNode, kInvalidNode};
  const DType type = x.dtype();
  const Expr elements = x.cast(compute_type(type)).reshape(blocks->parts);
  const Expr least = min(least_of(elements, *blocks), 0);
  const Expr most = max(greatest_of(elements, *blocks), 0);
  const double eps = c.real("eps", type == DType::kF16 ? 0x1p-14 : 0x1p-126);
  const Expr smallest = rounded(most.like(eps), type);
  const auto ratio = [&](Expr y, double z) { return rounded(y / z, type); };
  Expr scale = most, zero = most.like(std::trunc((range.most + range.least + 1) / 2));
  DType zero_type = type;
  if (mapping == "SYMMETRIC") {
    scale = max(ratio(max(-least, most), (range.most - range.least) / 2), smallest);
  } else if (mapping == "SYMMETRIC_NO_CLIPPING_ERR") {
    const Expr below = ratio(least, range.least), above = ratio(most, range.most);
    scale = max(choose(below > above, below, above), smallest);
  } else if (mapping == "ASYMMETRIC") {
    scale = max(ratio(rounded(most - least, type), range.most - range.least), smallest);
    const Expr places = apply(Op::kRound, rounded(least / scale, type));
    zero = min(max(rounded(range.least - places, type), range.least), range.most);
    zero_type = DType::kI32;
  } else {
    return {c.unsupported("this mapping is not covered"), kInvalidNode};
  }
  Shape shape = blocks->counts;
  if (!c.flag("keepdim", false)) {
    shape = blocks->parameters;
    for (size_t i = blocks->within.size(); i-- > 0;) shape.erase(shape.begin() + blocks->within[i]);
  }
  return {scale.reshape(shape).cast(type).cast(c.dtype("scale_dtype", type)).id,
          zero.reshape(shape).cast(c.dtype("zero_point_dtype", zero_type)).id};
}

// Reads a scale or zero point: an argument with one element for each block.
Expr parameter(Call& c, std::string_view name, const Blocks& blocks) {
  const Expr x = tensor(c, name);
  if (!c.ok() || numel(x.shape()) == numel(blocks.parameters)) return x.reshape(blocks.parameters);
  return {&c.b, c.invalid("argument '" + std::string(name) + "' has not one element a block")};
}

Values quantize_affine(Call& c) {
  const Expr x = tensor(c, "input");
  const DType stored = c.dtype("output_dtype", DType::kI8);
  const Range range = range_of(c, stored);
  const auto blocks =
      c.ok() ? blocks_of(x.shape(), c.sizes("block_size")) : std::optional<Blocks>();
  if (!blocks) return {c.invalid("the tensor is not divided by 'block_size'")};
  const Expr scale = parameter(c, "scale", *blocks), zero = parameter(c, "zero_point", *blocks);
  if (!c.ok()) return {};
  const DType type = promote_types(x.dtype(), scale.dtype()), compute = compute_type(type);
  const DType sum = promote_types(type, zero.dtype());
  const Expr inverse = rounded(1 / scale.cast(compute_type(scale.dtype())), scale.dtype());
  const Expr elements = x.reshape(blocks->parts).cast(compute);
  const Expr places = apply(Op::kRound, rounded(elements * inverse.cast(compute), type));
  const Expr moved = rounded(places.cast(compute_type(sum)) + zero.cast(compute_type(sum)), sum);
  return {min(max(moved, range.least), range.most).cast(stored).reshape(x.shape()).id};
}

Values dequantize_affine(Call& c) {
  const Expr x = tensor(c, "input");
  const DType type = c.dtype("output_dtype", DType::kF32), compute = compute_type(type);
  const auto blocks =
      c.ok() ? blocks_of(x.shape(), c.sizes("block_size")) : std::optional<Blocks>();
  if (!blocks) return {c.invalid("the tensor is not divided by 'block_size'")};
  const Expr scale = parameter(c, "scale", *blocks);
  Expr y = rounded(x.reshape(blocks->parts), type);
  if (c.has("zero_point")) {
    const Expr zero = parameter(c, "zero_point", *blocks);
    if (c.ok()) y = rounded(y - rounded(zero, type), type);
  }
  if (!c.ok()) return {};
  const DType product = promote_types(type, scale.dtype());
  y = rounded(y.cast(compute_type(product)) * scale.cast(compute_type(product)), product);
  return {y.cast(compute).cast(type).reshape(x.shape()).id};
}

double greatest_f8(Call& c, DType type) {
  if (type == DType::kF8E4M3) return 448;
  if (type == DType::kF8E5M2) return 57344;
  c.unsupported("the dtype is no float8 that is covered");
  return 1;
}

Values choose_scale_float8(Call& c) {
  const Expr x = tensor(c, "tensor");
  const auto blocks = reduced_blocks(c, x);
  const double most = greatest_f8(c, c.dtype("float8_dtype", DType::kF8E4M3));
  if (c.dtype("scale_dtype", DType::kF32) != DType::kF32)
    return {c.unsupported("scales of other dtypes than float32 are not covered")};
  if (!c.ok() || !blocks) return {};
  const DType type = x.dtype();
  Expr greatest = greatest_of(abs(x.cast(compute_type(type)).reshape(blocks->parts)), *blocks);
  const auto bound = [&](std::string_view name) {
    return rounded(greatest.like(c.real(name)), type);
  };
  if (c.has("hp_value_lb")) greatest = max(greatest, bound("hp_value_lb"));
  if (c.has("hp_value_ub")) greatest = min(greatest, bound("hp_value_ub"));
  const Expr scale = rounded(greatest / most, type);
  return {scale.reshape(blocks->counts).cast(DType::kF32).id};
}

// A scale repeated over the elements that it is for, in f32.
Expr over_elements(Call& c, Expr scale, const Shape& shape) {
  if (!c.ok()) return scale;
  const Expr given = scale.cast(DType::kF32);
  if (numel(given.shape()).is(1)) return given.reshape({});
  const Shape counts = given.shape();
  std::vector<Dim> sizes;
  for (size_t axis = 0; axis < shape.size() && counts.size() == shape.size(); ++axis) {
    const Dim &count = counts[axis], &all = shape[axis];
    const bool cut = count.is_constant() && all.is_constant() && count.constant() > 0;
    if (count == all)
      sizes.push_back(Dim(1));
    else
      sizes.push_back(count.is(1) ? all : Dim(cut ? all.constant() / count.constant() : 0));
  }
  const auto blocks = blocks_of(shape, sizes);
  if (!blocks || blocks->counts != counts)
    return {&c.b, c.invalid("the tensor is not divided by its scales")};
  return given.reshape(blocks->parameters).broadcast(blocks->parts).reshape(shape);
}

Values quantize_affine_float8(Call& c) {
  const Expr x = tensor(c, "tensor");
  const DType type = c.dtype("float8_dtype", DType::kF8E4M3);
  const double most = greatest_f8(c, type);
  const Expr scale = over_elements(c, tensor(c, "scale"), c.ok() ? x.shape() : Shape());
  if (!c.ok()) return {};
  return {min(max(x.cast(DType::kF32) / scale, -most), most).cast(type).id};
}

Values dequantize_affine_float8(Call& c) {
  const Expr x = tensor(c, "tensor");
  const Expr scale = over_elements(c, tensor(c, "scale"), c.ok() ? x.shape() : Shape());
  const DType type = c.dtype("output_dtype", DType::kF32);
  if (!c.ok()) return {};
  return {(x.cast(DType::kF32) * scale).cast(type).id};
}

constexpr Lowering kTorchaoLowerings[] = {
    {"torchao.choose_qparams_affine.default", choose_qparams},
    {"torchao.quantize_affine.default", quantize_affine},
    {"torchao.dequantize_affine.default", dequantize_affine},
    {"torchao.choose_scale_float8.default", choose_scale_float8},
    {"torchao.quantize_affine_float8_non_decomposed.default", quantize_affine_float8},
    {"torchao.dequantize_affine_float8_non_decomposed.default", dequantize_affine_float8},
};

}  // namespace

std::span<const Lowering> torchao_lowerings() {
  return kTorchaoLowerings;
}

}  // namespace kiln
