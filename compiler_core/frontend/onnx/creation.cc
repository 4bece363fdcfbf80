// Tensors out of nothing but sizes and numbers.
#include <cmath>

#include "compiler_core/frontend/onnx/call.h"
#include "compiler_core/frontend/onnx/tensor.h"

namespace kiln {
namespace {

// The one element of attribute `value`, or 0 as f32.
Expr fill_value(OnnxCall& c) {
  const OnnxAttribute* given = c.attribute("value");
  if (given == nullptr) return {&c.b, c.b.constant(DType::kF32, 0)};
  const auto header = parse_onnx_tensor(given->tensor);
  if (!header) return {&c.b, c.b.fail_with(header.error())};
  if (header->external || header->dims.size() > 1 ||
      (header->dims.size() == 1 && header->dims[0] != 1))
    return {&c.b, c.invalid("attribute 'value' is not one element")};
  const auto tensor = read_onnx_tensor(*header, std::nullopt);
  if (!tensor) return {&c.b, c.b.fail_with(tensor.error())};
  return Expr{&c.b, node_of(c.b, known_of(*tensor))}.reshape({});
}

Values constant_of_shape(OnnxCall& c) {
  const std::vector<Dim> sizes = c.sizes(0, "shape");
  const Expr value = fill_value(c);
  for (const Dim& size : sizes)
    if (!c.is_never_negative(size)) return {c.invalid("a size is negative")};
  return {c.ok() ? value.broadcast(sizes).id : kInvalidNode};
}

// start, start + delta, ..., before limit; of symbolic sizes in steps of 1.
Values range(OnnxCall& c) {
  const KnownTensor* start = c.known(0);
  const KnownTensor* limit = c.known(1);
  const KnownTensor* delta = c.known(2);
  if (start == nullptr || limit == nullptr || delta == nullptr || start->numel() != 1 ||
      limit->numel() != 1 || delta->numel() != 1)
    return {
        c.unsupported("a range between values that are computed from data has no size that "
                      "Kiln could know; export it with sizes or constants")};
  const DType type = start->dtype;
  if (is_float(type)) {
    const double from = start->reals[0], step = delta->reals[0];
    const double count = step == 0 ? -1 : std::ceil((limit->reals[0] - from) / step);
    if (!(count < 1 << 30) || step == 0) return {c.invalid("the range has no end")};
    const Expr line = {&c.b, c.b.iota(DType::kI64, static_cast<int64_t>(std::max(count, 0.0)))};
    return {(line.cast(compute_type(type)) * step + from).cast(type).id};
  }
  const Dim from = start->integers[0], to = limit->integers[0];
  const Dim step = delta->integers[0];
  if (!step.is_constant() || step.is(0)) return {c.invalid("the range has no step")};
  Dim count = to - from;
  if (count.is_constant()) {
    const int64_t each = step.constant();
    const int64_t all = count.constant();
    const bool forwards = each > 0;
    count = (all > 0) == forwards && all != 0 ? (all + each - (forwards ? 1 : -1)) / each : 0;
  } else if (!step.is(1) || !c.is_never_negative(count)) {
    return {c.unsupported("a range over a dynamic size in steps other than 1 is not covered")};
  }
  Expr line = {&c.b, c.b.iota(type, count)};
  const auto value = [&](const Dim& size) {
    return Expr{&c.b, size_value(c.b, size, type)}.broadcast({count});
  };
  if (!step.is(1)) line = line * value(step);
  if (!from.is(0)) line = line + value(from);
  return {line.id};
}

Values eye_like(OnnxCall& c) {
  const Expr x = c.tensor(0);
  const DType type = c.dtype("dtype", x.dtype());
  const int64_t k = c.integer("k", 0);
  if (!c.ok()) return {};
  const Shape shape = x.shape();
  if (shape.size() != 2) return {c.invalid("needs a matrix")};
  const Expr row = {&c.b, coordinate(c.b, shape, 0)}, column = {&c.b, coordinate(c.b, shape, 1)};
  const Expr shift = Expr{&c.b, c.b.constant_int(DType::kI64, k)}.broadcast(shape);
  return {(column == row + shift).cast(type).id};
}

constexpr OnnxLowering kOnnxCreationLowerings[] = {
    {"ConstantOfShape", constant_of_shape},
    {"Range", range},
    {"EyeLike", eye_like},
};

}  // namespace

std::span<const OnnxLowering> onnx_creation_lowerings() {
  return kOnnxCreationLowerings;
}

}  // namespace kiln
