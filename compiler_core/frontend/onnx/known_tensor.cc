#include "compiler_core/frontend/onnx/known_tensor.h"

#include <algorithm>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {
namespace {

constexpr size_t kFew = 64;

bool is_uniform(const KnownTensor& known) {
  const auto all_equal = [](const auto& values) {
    return std::all_of(values.begin(), values.end(),
                       [&](const auto& value) { return value == values.front(); });
  };
  return is_float(known.dtype) ? all_equal(known.reals) : all_equal(known.integers);
}

// The step of integers that rise or fall evenly.
std::optional<int64_t> even_step(const KnownTensor& known) {
  if (known.integers.size() < 2 || known.is_symbolic() || !is_integer(known.dtype))
    return std::nullopt;
  const int64_t step = (known.integers[1] - known.integers[0]).constant();
  for (size_t i = 2; i < known.integers.size(); ++i)
    if (!(known.integers[i] - known.integers[i - 1]).is(step)) return std::nullopt;
  return step;
}

NodeId element_node(GraphBuilder& b, const KnownTensor& known, size_t i) {
  return is_float(known.dtype) ? b.constant(known.dtype, known.reals[i])
                               : size_value(b, known.integers[i], known.dtype);
}

}  // namespace

bool KnownTensor::is_symbolic() const {
  return std::any_of(integers.begin(), integers.end(),
                     [](const Dim& value) { return !value.is_constant(); });
}

KnownTensor known_scalar(DType dtype, const Dim& value) {
  return {dtype, {}, {value}, {}};
}

KnownTensor known_vector(std::vector<Dim> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return {DType::kI64, {count}, std::move(values), {}};
}

KnownTensor known_of(const Tensor& tensor) {
  KnownTensor known{tensor.dtype(), tensor.sizes(), {}, {}};
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (is_float(known.dtype))
      known.reals.push_back(tensor.get(i));
    else
      known.integers.emplace_back(tensor.get_int(i));
  return known;
}

Tensor to_tensor(const KnownTensor& known) {
  Tensor tensor(known.dtype, known.sizes);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (is_float(known.dtype))
      tensor.set(i, known.reals[static_cast<size_t>(i)]);
    else
      tensor.set_int(i, known.integers[static_cast<size_t>(i)].constant());
  return tensor;
}

bool is_compact(const KnownTensor& known) {
  return known.numel() <= kFew || is_uniform(known) || even_step(known);
}

NodeId node_of(GraphBuilder& b, const KnownTensor& known) {
  const Shape shape = known.shape();
  const size_t count = known.numel();
  if (count == 0) return b.broadcast(b.reshape(b.constant(known.dtype, 0), {}), shape);
  if (is_uniform(known)) return b.broadcast(element_node(b, known, 0), shape);
  const Dim length = static_cast<int64_t>(count);
  if (const std::optional<int64_t> step = even_step(known)) {
    NodeId line = b.iota(known.dtype, length);
    const auto constant = [&](int64_t value) {
      return b.broadcast(b.constant_int(known.dtype, value), {length});
    };
    if (*step != 1) line = b.binary(Op::kMul, line, constant(*step));
    if (!known.integers[0].is(0))
      line = b.binary(Op::kAdd, line, constant(known.integers[0].constant()));
    return b.reshape(line, shape);
  }
  std::vector<NodeId> elements;
  for (size_t i = 0; i < count; ++i) elements.push_back(b.reshape(element_node(b, known, i), {1}));
  return b.reshape(b.concat(elements, 0), shape);
}

}  // namespace kiln
