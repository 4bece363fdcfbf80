#include "worker/runner/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler_core/base/check.h"

namespace kiln::runner {
namespace {

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF8E4M3:
      return 0x1p-4;
    case DType::kF8E5M2:
      return 0x1p-3;
    case DType::kF8E8M0:
      return 0.5;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kBool:
      return 0;
  }
  return 0;
}

// Inputs, constants and views pass values on unchanged; only other nodes round.
bool rounds(const Node& node) {
  const OpKind kind = traits(node.op).kind;
  return kind != OpKind::kSource && kind != OpKind::kIndexMap && kind != OpKind::kGather;
}

double size_at(const Dim& dim, std::span<const int64_t> symbols) {
  const auto size = dim.evaluate(symbols);
  return size ? std::max(1.0, static_cast<double>(*size)) : 1.0;
}

// How many terms each element of `node` sums up.
double terms(const Graph& graph, const Node& node, std::span<const int64_t> symbols) {
  if (node.operands.empty()) return 1;
  const Shape& operand = graph.node(node.operands[0]).shape;
  if (node.op == Op::kMatmul) return size_at(operand.back(), symbols);
  if (node.op == Op::kConvolution) {  // an output element: channels of a group * window
    double taps = 1;
    const Shape& weight = graph.node(node.operands[1]).shape;
    for (size_t i = 1; i < weight.size(); ++i) taps *= size_at(weight[i], symbols);
    return taps;
  }
  if (node.op == Op::kScatter) {  // every update may go to one row
    const Combine combine = std::get<ScatterAttr>(node.attr).combine;
    if (combine != Combine::kAdd && combine != Combine::kMul) return 1;
    return 1 + size_at(numel(graph.node(node.operands[1]).shape), symbols);
  }
  if (node.op == Op::kScanSum)
    return size_at(operand[static_cast<size_t>(std::get<AxisAttr>(node.attr).axis)], symbols);
  double product = 1;
  // A product's relative error is the sum of its factors'.
  if (node.op == Op::kReduceSum || node.op == Op::kReduceProd)
    for (const int axis : std::get<ReduceAttr>(node.attr).axes)
      product *= size_at(operand[static_cast<size_t>(axis)], symbols);
  return product;
}

bool is_step(const Graph& graph, const Node& node) {
  if (node.operands.empty() || !is_float(graph.node(node.operands[0]).dtype)) return false;
  switch (node.op) {
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound:
    case Op::kSign:
    case Op::kRem:
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
      return true;
    case Op::kCast:
      return !is_float(node.dtype);
    default:
      return false;
  }
}

bool quantises(const Graph& graph, const Node& node) {
  const bool makes_8_bits = node.dtype == DType::kI8 || node.dtype == DType::kU8;
  return is_step(graph, node) && (node.op == Op::kRound || (node.op == Op::kCast && makes_8_bits));
}

double root_mean_square(const Tensor& tensor) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = tensor.get(i);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

bool is_close(double got, double want, double slack) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (std::isinf(got) || std::isinf(want)) return got == want;
  return std::fabs(got - want) <= slack;
}

// s of integers.
double scale_of(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 ? 4 : 0;
}

}  // namespace

double integer_scale(const Graph& graph, NodeId output) {
  const auto is_widened = [&](const Node& node) {
    return node.op == Op::kCast && scale_of(node.dtype) == 0 && is_integer(node.dtype);
  };
  while (is_widened(graph.node(output))) output = graph.node(output).operands[0];
  return scale_of(graph.node(output).dtype);
}

Tolerance tolerance_of(const Graph& graph, std::span<const int64_t> symbols) {
  Tolerance tolerance;
  double roundoff = 0, compute_roundoff = 0, total_terms = 1;
  for (const Node& node : graph.nodes()) {
    total_terms *= terms(graph, node, symbols);
    tolerance.has_steps |= is_step(graph, node);
    tolerance.quantises |= quantises(graph, node);
    if (!is_float(node.dtype)) continue;
    if (rounds(node)) roundoff = std::max(roundoff, unit_roundoff(node.dtype));
    compute_roundoff = std::max(compute_roundoff, unit_roundoff(compute_type(node.dtype)));
  }
  tolerance.relative = 4 * roundoff + (256 + 8 * std::sqrt(total_terms)) * compute_roundoff;
  return tolerance;
}

std::optional<Difference> compare(const Tensor& got, const Tensor& want, const Tensor* declared,
                                  const Tolerance& tolerance) {
  CHECK(got.dtype() == want.dtype() && got.sizes() == want.sizes(), "made from one specification");
  const bool floats = is_float(want.dtype());
  const double scale = tolerance.scale >= 0 ? tolerance.scale
                       : floats             ? root_mean_square(want)
                                            : scale_of(want.dtype());
  const auto is_right = [&](int64_t i) {
    if (!floats) return got.get_int(i) == want.get_int(i);
    const double g = got.get(i), w = want.get(i);
    const double slack = tolerance.relative * (std::fabs(w) + scale);
    if (is_close(g, w, slack)) return true;
    if (declared == nullptr) return false;
    const double d = declared->get(i);
    return std::isfinite(d) && std::isfinite(w) ? is_close(g, w, slack + 8 * std::fabs(d - w))
                                                : is_close(g, d, slack);
  };
  const auto is_neighbour = [&](int64_t i) {
    if (floats) return std::fabs(got.get(i) - want.get(i)) <= scale / 4;
    return std::abs(static_cast<double>(got.get_int(i)) - static_cast<double>(want.get_int(i))) <=
           scale / 4;
  };
  Difference difference;
  for (int64_t i = 0; i < want.numel(); ++i) {
    if (is_right(i)) continue;
    if (difference.count++ == 0) difference.first = i;
    difference.neighbours += is_neighbour(i);
  }
  if (difference.is_excused(tolerance, want.numel())) return std::nullopt;
  return difference;
}

bool Difference::is_excused(const Tolerance& tolerance, int64_t elements) const {
  const int64_t excused = tolerance.excused(elements);
  return count <= excused ||
         (count - neighbours <= excused && neighbours <= tolerance.excused_neighbours(elements));
}

std::string describe_element(const Tensor& got, const Tensor& want, int64_t index) {
  const auto alone = [index](const Tensor& tensor) {
    Tensor element(tensor.dtype(), {});
    const auto bytes = static_cast<size_t>(size_of(tensor.dtype()));
    const auto from = tensor.bytes().subspan(static_cast<size_t>(index) * bytes, bytes);
    std::ranges::copy(from, element.bytes().begin());
    return element;
  };
  return describe_element(want.sizes(), index, alone(got), alone(want));
}

std::string describe_element(std::span<const int64_t> sizes, int64_t index, const Tensor& got,
                             const Tensor& want) {
  std::string position;
  int64_t rest = index;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    position.insert(0, fmt::format("{}{}", axis == 0 ? "" : ",", rest % sizes[axis]));
    rest /= sizes[axis];
  }
  const auto unsigned_nan = [](double x) { return std::isnan(x) ? std::fabs(x) : x; };
  if (is_float(want.dtype()))
    return fmt::format("element {} [{}] is {:.9g}, expected {:.9g}", index, position,
                       unsigned_nan(got.get(0)), unsigned_nan(want.get(0)));
  return fmt::format("element {} [{}] is {}, expected {}", index, position, got.get_int(0),
                     want.get_int(0));
}

}  // namespace kiln::runner
