#include "compiler_core/ir/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/base/half.h"
#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/oracle_ops.h"
#include "compiler_core/ir/scalar_ops.h"

namespace kiln {
namespace {

using oracle::count;
using oracle::Value;

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t k = sizes.size(); k-- > 1;) strides[k - 1] = strides[k] * sizes[k];
  return strides;
}

// Calls body(k) for every k of [0, count), in any order and on any core.
template <class Body>
void each(size_t count, Body body) {
  oracle::for_parts(static_cast<int64_t>(count), [&](int64_t begin, int64_t end) {
    for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) body(k);
  });
}

// Calls body(position, index) for every position of `sizes` in row-major order, where index is
// offset + sum of coordinate * stride.
template <class Body>
void walk(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset,
          Body body) {
  const int64_t total = count(sizes);
  if (total == 0) return;
  const size_t rank = sizes.size();
  const int64_t inner = rank == 0 ? 1 : sizes[rank - 1];
  const int64_t step = rank == 0 ? 0 : strides[rank - 1];
  std::vector<int64_t> at(rank, 0);
  int64_t base = offset;
  for (int64_t position = 0; position < total;) {
    for (int64_t j = 0; j < inner; ++j) body(position + j, base + j * step);
    position += inner;
    for (size_t k = rank < 2 ? 0 : rank - 1; k-- > 0;) {
      base += strides[k];
      if (++at[k] < sizes[k]) break;
      base -= strides[k] * sizes[k];
      at[k] = 0;
    }
  }
}

double round_to(DType dtype, double v, Precision precision) {
  switch (dtype) {
    case DType::kF32:
      return precision == Precision::kHigh ? v : static_cast<float>(v);
    default:
      return round_to_half(dtype, v);
  }
}

// Integers wrap.
void matmul(std::vector<int64_t>& out, const std::vector<int64_t>& a, const std::vector<int64_t>& b,
            int64_t batches, int64_t m, int64_t n, int64_t k) {
  for (int64_t row = 0; row < batches * m; ++row)
    for (int64_t p = 0; p < k; ++p) {
      const auto x = static_cast<uint64_t>(a[static_cast<size_t>(row * k + p)]);
      int64_t* const to = out.data() + row * n;
      const int64_t* const from = b.data() + (row / m * k + p) * n;
      for (int64_t j = 0; j < n; ++j)
        to[j] =
            static_cast<int64_t>(static_cast<uint64_t>(to[j]) + x * static_cast<uint64_t>(from[j]));
    }
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const Tensor* const> inputs,
              std::vector<int64_t> symbols, Precision precision)
      : graph_(graph),
        inputs_(inputs),
        symbols_(std::move(symbols)),
        precision_(precision),
        values_(static_cast<size_t>(graph.size())) {}

  Result<std::vector<Tensor>> run() {
    const std::vector<NodeId> last_use = last_uses();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      TRY(values_[static_cast<size_t>(id)].sizes, evaluate(node.shape));
      TRY_STATUS(checked_bytes(DType::kF64, value(id).sizes).map([](int64_t) {}));
      TRY_STATUS(evaluate_node(id));
      for (NodeId operand : node.operands)
        if (last_use[static_cast<size_t>(operand)] == id) value(operand) = {};
    }
    std::vector<Tensor> outputs;
    for (NodeId id : graph_.outputs())
      outputs.push_back(to_tensor(graph_.node(id).dtype, value(id)));
    return outputs;
  }

 private:
  Value& value(NodeId id) { return values_[static_cast<size_t>(id)]; }

  std::vector<NodeId> last_uses() const {
    std::vector<NodeId> last(static_cast<size_t>(graph_.size()), kInvalidNode);
    for (NodeId id = 0; id < graph_.size(); ++id)
      for (NodeId operand : graph_.node(id).operands) last[static_cast<size_t>(operand)] = id;
    for (NodeId id : graph_.outputs()) last[static_cast<size_t>(id)] = kInvalidNode;
    return last;
  }

  Result<std::vector<int64_t>> evaluate(const std::vector<Dim>& dims) const {
    std::vector<int64_t> sizes;
    for (const Dim& dim : dims) {
      TRY(const int64_t size, dim.evaluate(symbols_));
      sizes.push_back(size);
    }
    return sizes;
  }

  static Tensor to_tensor(DType dtype, const Value& value) {
    Tensor tensor(dtype, value.sizes);
    each(value.f.size(), [&](size_t k) { tensor.set(static_cast<int64_t>(k), value.f[k]); });
    each(value.i.size(), [&](size_t k) { tensor.set_int(static_cast<int64_t>(k), value.i[k]); });
    return tensor;
  }

  static void read_input(Value& out, const Tensor& tensor) {
    each(out.f.size(), [&](size_t k) { out.f[k] = tensor.get(static_cast<int64_t>(k)); });
    each(out.i.size(), [&](size_t k) { out.i[k] = tensor.get_int(static_cast<int64_t>(k)); });
  }

  Status evaluate_node(NodeId id) {
    const Node& node = graph_.node(id);
    Value& out = value(id);
    const size_t total = static_cast<size_t>(count(out.sizes));
    (is_float(node.dtype) ? (void)out.f.resize(total) : (void)out.i.resize(total));
    switch (traits(node.op).kind) {
      case OpKind::kSource:
        source(node, out);
        break;
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        elementwise(node, out);
        break;
      case OpKind::kIndexMap:
        TRY_STATUS(index_map(node, out));
        break;
      case OpKind::kReduce:
        reduce(node, out);
        break;
      case OpKind::kScan:
        scan(node, out);
        break;
      case OpKind::kContract:
        if (node.op == Op::kMatmul)
          contract(node, out);
        else
          oracle::convolution(std::get<ConvolutionAttr>(node.attr), value(node.operands[0]),
                              value(node.operands[1]), out);
        break;
      case OpKind::kGather:
        gather(node, out);
        break;
      case OpKind::kScatter:
        oracle::scatter(std::get<ScatterAttr>(node.attr), node.dtype, value(node.operands[0]),
                        value(node.operands[1]), value(node.operands[2]), out);
        break;
      case OpKind::kSort:
        oracle::argsort(std::get<SortAttr>(node.attr), value(node.operands[0]), out);
        break;
      case OpKind::kRandom:
        oracle::philox(std::get<PhiloxAttr>(node.attr), value(node.operands[0]).i[0], out);
        break;
      case OpKind::kCustom:
        CHECK(false, "interpret() put its reference in its place");
    }
    each(out.f.size(), [&](size_t k) { out.f[k] = round_to(node.dtype, out.f[k], precision_); });
    each(out.i.size(), [&](size_t k) { out.i[k] = wrap_to(node.dtype, out.i[k]); });
    return {};
  }

  void source(const Node& node, Value& out) {
    if (node.op == Op::kInput) {
      read_input(out, *inputs_[static_cast<size_t>(std::get<InputAttr>(node.attr).index)]);
    } else if (node.op == Op::kConstant) {
      const auto& constant = std::get<ConstantAttr>(node.attr);
      if (is_float(node.dtype))
        out.f[0] = constant.as_double();
      else
        out.i[0] = constant.as_int();
    } else {
      for (size_t k = 0; k < out.f.size(); ++k) out.f[k] = static_cast<double>(k);
      for (size_t k = 0; k < out.i.size(); ++k) out.i[k] = static_cast<int64_t>(k);
    }
  }

  void elementwise(const Node& node, Value& out) {
    const Value& a = value(node.operands[0]);
    const OpKind kind = traits(node.op).kind;
    if (node.op == Op::kCast) return cast(node, a, out);
    if (kind == OpKind::kUnary) {
      each(out.f.size(), [&](size_t k) { out.f[k] = apply_unary(node.op, a.f[k]); });
      each(out.i.size(), [&](size_t k) { out.i[k] = apply_unary(node.op, a.i[k], node.dtype); });
      return;
    }
    const Value& b = value(node.operands[1]);
    if (kind == OpKind::kSelect) {
      const Value& c = value(node.operands[2]);
      each(out.f.size(), [&](size_t k) { out.f[k] = a.i[k] != 0 ? b.f[k] : c.f[k]; });
      each(out.i.size(), [&](size_t k) { out.i[k] = a.i[k] != 0 ? b.i[k] : c.i[k]; });
    } else if (kind == OpKind::kCompare) {
      const bool floats = is_float(graph_.node(node.operands[0]).dtype);
      each(out.i.size(), [&](size_t k) {
        out.i[k] = floats ? apply_compare(node.op, a.f[k], b.f[k])
                          : apply_compare(node.op, a.i[k], b.i[k]);
      });
    } else {
      each(out.f.size(), [&](size_t k) { out.f[k] = apply_binary(node.op, a.f[k], b.f[k]); });
      each(out.i.size(), [&](size_t k) { out.i[k] = apply_binary(node.op, a.i[k], b.i[k]); });
    }
  }

  void cast(const Node& node, const Value& a, Value& out) {
    const bool from_float = is_float(graph_.node(node.operands[0]).dtype);
    each(out.f.size(),
         [&](size_t k) { out.f[k] = from_float ? a.f[k] : static_cast<double>(a.i[k]); });
    each(out.i.size(), [&](size_t k) {
      if (!from_float)
        out.i[k] = a.i[k];
      else if (node.dtype == DType::kBool)
        out.i[k] = a.f[k] != 0;
      else
        out.i[k] = std::fabs(a.f[k]) < 0x1p63 ? static_cast<int64_t>(a.f[k]) : INT64_MIN;
    });
  }

  // Copies element `from` of `in` to element `to` of `out`.
  static void copy(Value& out, int64_t to, const Value& in, int64_t from) {
    if (!out.f.empty())
      out.f[static_cast<size_t>(to)] = in.f[static_cast<size_t>(from)];
    else
      out.i[static_cast<size_t>(to)] = in.i[static_cast<size_t>(from)];
  }

  Status index_map(const Node& node, Value& out) {
    if (node.op == Op::kConcat) {
      concat(node, out);
      return {};
    }
    const Value& x = value(node.operands[0]);
    if (node.op == Op::kView) {
      const auto& view = std::get<ViewAttr>(node.attr);
      TRY(const std::vector<int64_t> strides, evaluate(view.strides));
      TRY(const int64_t offset, view.offset.evaluate(symbols_));
      walk(out.sizes, strides, offset, [&](int64_t to, int64_t from) { copy(out, to, x, from); });
      return {};
    }
    const auto& pad = std::get<PadAttr>(node.attr);
    TRY(const std::vector<int64_t> low, evaluate(pad.low));
    std::fill(out.f.begin(), out.f.end(), is_float(node.dtype) ? pad.value.as_double() : 0);
    std::fill(out.i.begin(), out.i.end(), pad.value.as_int());
    const std::vector<int64_t> strides = row_major(out.sizes);
    int64_t offset = 0;
    for (size_t k = 0; k < low.size(); ++k) offset += low[k] * strides[k];
    walk(x.sizes, strides, offset, [&](int64_t from, int64_t to) { copy(out, to, x, from); });
    return {};
  }

  void concat(const Node& node, Value& out) {
    const size_t axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    const std::vector<int64_t> strides = row_major(out.sizes);
    int64_t start = 0;
    for (NodeId operand : node.operands) {
      const Value& x = value(operand);
      walk(x.sizes, strides, start * strides[axis],
           [&](int64_t from, int64_t to) { copy(out, to, x, from); });
      start += x.sizes[axis];
    }
  }

  void reduce(const Node& node, Value& out) {
    const Value& x = value(node.operands[0]);
    const auto& axes = std::get<ReduceAttr>(node.attr).axes;
    // The result's stride of each operand axis; 0 along the reduced ones.
    const std::vector<int64_t> kept = row_major(out.sizes);
    std::vector<int64_t> strides;
    size_t next = 0;
    for (size_t k = 0; k < x.sizes.size(); ++k)
      strides.push_back(
          std::binary_search(axes.begin(), axes.end(), static_cast<int>(k)) ? 0 : kept[next++]);
    const Op combine = combining_op(node.op);
    std::fill(out.f.begin(), out.f.end(), neutral_real(combine));
    std::fill(out.i.begin(), out.i.end(), neutral_integer(combine, node.dtype));
    walk(x.sizes, strides, 0, [&](int64_t from, int64_t to) {
      const size_t f = static_cast<size_t>(from), t = static_cast<size_t>(to);
      if (!x.f.empty())
        out.f[t] = apply_binary(combine, out.f[t], x.f[f]);
      else
        out.i[t] = apply_binary(combine, out.i[t], x.i[f]);
    });
  }

  static double neutral_real(Op combine) {
    const double infinity = std::numeric_limits<double>::infinity();
    if (combine == Op::kAdd || combine == Op::kMul) return combine == Op::kMul;
    return combine == Op::kMax ? -infinity : infinity;
  }
  static int64_t neutral_integer(Op combine, DType dtype) {
    if (combine == Op::kAdd || combine == Op::kMul) return combine == Op::kMul;
    return combine == Op::kMax ? integer_least(dtype) : integer_greatest(dtype);
  }
  static int64_t integer_least(DType dtype) {
    if (dtype == DType::kU8) return 0;
    return INT64_MIN >> (64 - 8 * size_of(dtype));
  }
  static int64_t integer_greatest(DType dtype) {
    if (dtype == DType::kU8) return 255;
    return INT64_MAX >> (64 - 8 * size_of(dtype));
  }

  void scan(const Node& node, Value& out) {
    const Value& x = value(node.operands[0]);
    const size_t axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    const int64_t step = row_major(out.sizes)[axis], size = out.sizes[axis];
    for (int64_t k = 0; k < count(out.sizes); ++k) {
      copy(out, k, x, k);
      if (k / step % size == 0) continue;
      const size_t at = static_cast<size_t>(k), before = static_cast<size_t>(k - step);
      if (!out.f.empty())
        out.f[at] += out.f[before];
      else
        out.i[at] = apply_binary(Op::kAdd, out.i[at], out.i[before]);
    }
  }

  void contract(const Node& node, Value& out) {
    const Value &a = value(node.operands[0]), &b = value(node.operands[1]);
    const size_t rank = out.sizes.size();
    const int64_t m = out.sizes[rank - 2], n = out.sizes[rank - 1], k = a.sizes[rank - 1];
    const int64_t batches = count(std::span(out.sizes).first(rank - 2));
    if (is_float(node.dtype))
      oracle::multiply_reals(batches, m, n, k, a.f, b.f, out.f);
    else
      matmul(out.i, a.i, b.i, batches, m, n, k);
  }

  void gather(const Node& node, Value& out) {
    const Value &x = value(node.operands[0]), &index = value(node.operands[1]);
    const int64_t rows = x.sizes[0];
    const int64_t row = count(std::span(x.sizes).subspan(1));
    if (rows == 0) return;
    for (size_t k = 0; k < index.i.size(); ++k) {
      int64_t at = index.i[k] < 0 ? index.i[k] + rows : index.i[k];
      at = std::clamp<int64_t>(at, 0, rows - 1);
      for (int64_t j = 0; j < row; ++j)
        copy(out, static_cast<int64_t>(k) * row + j, x, at * row + j);
    }
  }

  const Graph& graph_;
  const std::span<const Tensor* const> inputs_;
  const std::vector<int64_t> symbols_;
  const Precision precision_;
  std::vector<Value> values_;
};

}  // namespace

Result<std::vector<int64_t>> bind_symbols(const Graph& graph,
                                          std::span<const Tensor* const> inputs) {
  if (inputs.size() != graph.inputs().size())
    return fail(Code::kInvalidArgument, "the graph has " + std::to_string(graph.inputs().size()) +
                                            " inputs, " + std::to_string(inputs.size()) +
                                            " were given");
  std::vector<int64_t> values(graph.symbols().size(), -1);
  const auto mismatch = [&](size_t i, std::string_view what) {
    const Node& node = graph.node(graph.inputs()[i]);
    std::string given(to_string(inputs[i]->dtype()));
    given += to_string(Shape(inputs[i]->sizes().begin(), inputs[i]->sizes().end()));
    return fail(Code::kInvalidArgument, "input " + std::to_string(i) + " is " + given +
                                            " but the graph takes " +
                                            std::string(to_string(node.dtype)) +
                                            to_string(node.shape) + ": " + std::string(what));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = graph.node(graph.inputs()[i]);
    if (inputs[i]->dtype() != node.dtype) return mismatch(i, "dtypes differ");
    if (inputs[i]->sizes().size() != node.shape.size()) return mismatch(i, "ranks differ");
    for (size_t k = 0; k < node.shape.size(); ++k) {
      const std::vector<SymbolId> ids = node.shape[k].symbols();
      if (ids.size() == 1 && node.shape[k] == Dim::symbol(ids[0]))
        values[static_cast<size_t>(ids[0])] = inputs[i]->sizes()[k];
    }
  }
  for (size_t s = 0; s < values.size(); ++s) {
    const SymbolRange& range = graph.symbols()[s].range;
    if (values[s] < range.min || values[s] > range.max)
      return fail(Code::kInvalidArgument,
                  values[s] < 0 ? "no input has size s" + std::to_string(s)
                                : "size " + std::to_string(values[s]) + " is outside " +
                                      std::to_string(range.min) + ".." + std::to_string(range.max));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = graph.node(graph.inputs()[i]);
    for (size_t k = 0; k < node.shape.size(); ++k) {
      TRY(const int64_t size, node.shape[k].evaluate(values));
      if (size != inputs[i]->sizes()[k]) return mismatch(i, "sizes differ");
    }
  }
  return values;
}

Result<std::vector<Tensor>> interpret(const Graph& graph, std::span<const Tensor* const> inputs,
                                      Precision precision) {
  if (has_custom_calls(graph)) {
    TRY(const Graph inlined, inline_custom_calls(graph));
    return interpret(inlined, inputs, precision);
  }
  TRY(std::vector<int64_t> symbols, bind_symbols(graph, inputs));
  return Interpreter(graph, inputs, std::move(symbols), precision).run();
}

}  // namespace kiln
