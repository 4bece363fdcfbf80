#include "worker/runner/cuda/cuda_evaluation_device.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/custom_call.h"

namespace kiln::runner {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kReduceItems = 64;          // a thread folds at least, where there are enough
constexpr int64_t kReducePartials = 4 << 20;  // at most
constexpr int64_t kScanChunk = 128;
constexpr int64_t kScatterThreads = 1 << 16;
constexpr int64_t kManyLines = 1 << 16;  // scanned whole, a thread each

int64_t count(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t k = sizes.size(); k-- > 1;) strides[k - 1] = strides[k] * sizes[k];
  return strides;
}

// Rank, sizes, strides, as the kernels read them; axes that run on into each other are one.
Sizes shape_list(const Sizes& sizes, const Sizes& strides) {
  Sizes merged_sizes, merged_strides;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] == 1) continue;
    if (!merged_sizes.empty() && merged_strides.back() == strides[k] * sizes[k]) {
      merged_sizes.back() *= sizes[k];
      merged_strides.back() = strides[k];
    } else {
      merged_sizes.push_back(sizes[k]);
      merged_strides.push_back(strides[k]);
    }
  }
  Sizes list{static_cast<int64_t>(merged_sizes.size())};
  list.insert(list.end(), merged_sizes.begin(), merged_sizes.end());
  list.insert(list.end(), merged_strides.begin(), merged_strides.end());
  return list;
}

int64_t integer_least(DType dtype) {
  return dtype == DType::kU8 ? 0 : INT64_MIN >> (64 - 8 * size_of(dtype));
}
int64_t integer_greatest(DType dtype) {
  return dtype == DType::kU8 ? 255 : INT64_MAX >> (64 - 8 * size_of(dtype));
}

// The bits of what a reduction begins with.
int64_t identity(Op op, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (op == Op::kReduceSum) return 0;  // of either kind
  if (op == Op::kReduceProd) return is_float(dtype) ? parameter(1.0) : 1;
  const bool max = op == Op::kReduceMax;
  if (is_float(dtype)) return parameter(max ? -infinity : infinity);
  return max ? integer_least(dtype) : integer_greatest(dtype);
}

// Plans all launches before the first is made, so that the shapes travel to the device at once.
// Memory is taken and given back in the order of the plan, which is the order of the stream.
class Evaluation {
 public:
  Evaluation(CudaEvaluationDevice& device, const Graph& graph, std::span<const int64_t> symbols,
             Precision precision)
      : device_(device),
        graph_(graph),
        symbols_(symbols),
        high_(precision == Precision::kHigh ? 1 : 0),
        values_(static_cast<size_t>(graph.size())) {}

  Status run(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs) {
    TRY_STATUS(reserve_shapes());
    const std::vector<NodeId> last_use = last_uses();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      Value& out = value(id);
      TRY(out.sizes, sizes_of(node.shape));
      TRY(const int64_t bytes, checked_bytes(DType::kF64, out.sizes));
      TRY(out.memory, device_.pool().allocate(bytes));
      out.count = count(out.sizes);
      TRY_STATUS(plan(node, out, inputs));
      for (const NodeId operand : node.operands)
        if (last_use[static_cast<size_t>(operand)] == id) value(operand).memory = {};
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const NodeId id = graph_.outputs()[i];
      add("kiln_store", value(id).count,
          {at(id), parameter(outputs[i]), code(graph_.node(id).dtype), value(id).count});
    }
    return launch();
  }

 private:
  struct Value {
    Sizes sizes;
    int64_t count = 0;
    PooledMemory memory;
  };
  struct Step {
    const char* entry;
    int64_t work;
    std::vector<int64_t> parameters;
  };

  Value& value(NodeId id) { return values_[static_cast<size_t>(id)]; }
  int64_t at(NodeId id) { return parameter(value(id).memory.data()); }
  static int64_t code(DType dtype) { return static_cast<int64_t>(dtype); }
  static int64_t code(Op op) { return static_cast<int64_t>(op); }

  std::vector<NodeId> last_uses() const {
    std::vector<NodeId> last(static_cast<size_t>(graph_.size()), kInvalidNode);
    for (NodeId id = 0; id < graph_.size(); ++id)
      for (const NodeId operand : graph_.node(id).operands) last[static_cast<size_t>(operand)] = id;
    for (const NodeId id : graph_.outputs()) last[static_cast<size_t>(id)] = kInvalidNode;
    return last;
  }

  Result<Sizes> sizes_of(const std::vector<Dim>& dims) const {
    Sizes sizes;
    for (const Dim& dim : dims) {
      TRY(const int64_t size, dim.evaluate(symbols_));
      sizes.push_back(size);
    }
    return sizes;
  }

  void add(const char* entry, int64_t work, std::vector<int64_t> parameters) {
    steps_.push_back({entry, work, std::move(parameters)});
  }

  // Room for every shape list there can be: three a node and operand and stage of a reduction; or
  // what a convolution or a scatter needs.
  Status reserve_shapes() {
    size_t words = 0;
    for (const Node& node : graph_.nodes()) {
      size_t rank = node.shape.size();
      for (const NodeId operand : node.operands)
        rank = std::max(rank, graph_.node(operand).shape.size());
      words += (node.operands.size() + 1) * 2 * (2 * rank + 1) + kReduceStageWords;
    }
    TRY(shapes_, device_.pool().allocate(static_cast<int64_t>(words * sizeof(int64_t))));
    return {};
  }
  int64_t shape(const Sizes& list) {
    const auto offset = static_cast<int64_t>(shape_words_.size() * sizeof(int64_t));
    shape_words_.insert(shape_words_.end(), list.begin(), list.end());
    CHECK(static_cast<int64_t>(shape_words_.size() * sizeof(int64_t)) <= shapes_.bytes(),
          "reserve_shapes counts them");
    return parameter(shapes_.data()) + offset;
  }

  Status launch() {
    const auto* bytes = reinterpret_cast<const uint8_t*>(shape_words_.data());
    TRY_STATUS(device_.synchronize());  // the copy is not ordered after what is queued
    if (!shape_words_.empty())
      TRY_STATUS(device_.device().copy_to_device(shapes_.data(),
                                                 {bytes, shape_words_.size() * sizeof(int64_t)}));
    for (const Step& step : steps_)
      TRY_STATUS(device_.launch(step.entry, step.work, step.parameters));
    return {};
  }

  Status plan(const Node& node, const Value& out, std::span<const DevicePtr> inputs) {
    switch (traits(node.op).kind) {
      case OpKind::kSource:
        source(node, out, inputs);
        return {};
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        elementwise(node, out);
        return {};
      case OpKind::kIndexMap:
        return index_map(node, out);
      case OpKind::kReduce:
        return reduce(node, out);
      case OpKind::kScan:
        return scan(node, out);
      case OpKind::kContract:
        node.op == Op::kConvolution ? convolution(node, out) : contract(node, out);
        return {};
      case OpKind::kGather:
        gather(node, out);
        return {};
      case OpKind::kScatter:
        scatter(node, out);
        return {};
      case OpKind::kSort:
        return argsort(node, out);
      case OpKind::kRandom:
        add("kiln_philox", (out.count + 3) / 4,
            {at(node.operands[0]), std::get<PhiloxAttr>(node.attr).stream,
             parameter(out.memory.data()), out.count});
        return {};
      case OpKind::kCustom:
        break;
    }
    CHECK(false, "custom calls were replaced by their references");
  }

  void source(const Node& node, const Value& out, std::span<const DevicePtr> inputs) {
    const int64_t to = parameter(out.memory.data());
    if (node.op == Op::kInput) {
      const auto index = static_cast<size_t>(std::get<InputAttr>(node.attr).index);
      add("kiln_load", out.count, {parameter(inputs[index]), code(node.dtype), to, out.count});
    } else if (node.op == Op::kConstant) {
      constant(std::get<ConstantAttr>(node.attr), out);
    } else {
      add("kiln_iota", out.count, {to, code(node.dtype), high_, out.count});
    }
  }
  // The bits of a constant are those of a node's element.
  void constant(const ConstantAttr& attr, const Value& out) {
    add("kiln_constant", out.count,
        {parameter(out.memory.data()), static_cast<int64_t>(attr.bits), out.count});
  }

  void elementwise(const Node& node, const Value& out) {
    const int64_t to = parameter(out.memory.data()), n = out.count;
    const auto operand = [&](size_t i) { return at(node.operands[i]); };
    const DType from = graph_.node(node.operands[0]).dtype;
    const OpKind kind = traits(node.op).kind;
    if (node.op == Op::kCast)
      add("kiln_cast", n, {operand(0), code(from), to, code(node.dtype), high_, n});
    else if (kind == OpKind::kUnary)
      add("kiln_unary", n, {code(node.op), operand(0), to, code(node.dtype), high_, n});
    else if (kind == OpKind::kBinary)
      add("kiln_binary", n,
          {code(node.op), operand(0), operand(1), to, code(node.dtype), high_, n});
    else if (kind == OpKind::kCompare)
      add("kiln_relation", n, {code(node.op), operand(0), operand(1), is_float(from), to, n});
    else
      add("kiln_select", n, {operand(0), operand(1), operand(2), to, n});
  }

  Status index_map(const Node& node, const Value& out) {
    const int64_t to = parameter(out.memory.data());
    const NodeId x = node.operands[0];
    if (node.op == Op::kView) {
      const auto& view = std::get<ViewAttr>(node.attr);
      TRY(const Sizes strides, sizes_of(view.strides));
      TRY(const int64_t offset, view.offset.evaluate(symbols_));
      add("kiln_view", out.count,
          {at(x), offset, shape(shape_list(out.sizes, strides)), to, out.count});
      return {};
    }
    const Sizes strides = row_major(out.sizes);
    const auto place = [&](NodeId from, int64_t offset) {
      const Value& in = value(from);
      add("kiln_place", in.count,
          {at(from), offset, shape(shape_list(in.sizes, strides)), to, in.count});
    };
    int64_t offset = 0;
    if (node.op == Op::kPad) {
      const auto& pad = std::get<PadAttr>(node.attr);
      TRY(const Sizes low, sizes_of(pad.low));
      for (size_t k = 0; k < low.size(); ++k) offset += low[k] * strides[k];
      constant(pad.value, out);
      place(x, offset);
      return {};
    }
    const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    for (const NodeId operand : node.operands) {
      place(operand, offset);
      offset += value(operand).sizes[axis] * strides[axis];
    }
    return {};
  }

  // Stages of partial results, each of whose threads folds some tens of elements.
  Status reduce(const Node& node, const Value& out) {
    const Value& x = value(node.operands[0]);
    const auto& axes = std::get<ReduceAttr>(node.attr).axes;
    const Sizes strides = row_major(x.sizes);
    Sizes kept_sizes, kept_strides, sizes, reduced_strides;
    for (size_t k = 0; k < x.sizes.size(); ++k) {
      const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int>(k));
      (reduced ? sizes : kept_sizes).push_back(x.sizes[k]);
      (reduced ? reduced_strides : kept_strides).push_back(strides[k]);
    }
    const Op combine = node.op == Op::kReduceSum    ? Op::kAdd
                       : node.op == Op::kReduceProd ? Op::kMul
                       : node.op == Op::kReduceMax  ? Op::kMax
                                                    : Op::kMin;
    const bool floats = is_float(node.dtype);
    Sizes kept = shape_list(kept_sizes, kept_strides), reduced = shape_list(sizes, reduced_strides);
    int64_t length = count(sizes), from = parameter(x.memory.data());
    PooledMemory partial;
    for (;;) {
      const int64_t most = std::max<int64_t>(1, kReducePartials / std::max<int64_t>(1, out.count));
      const int64_t segments =
          std::clamp<int64_t>((length + kReduceItems - 1) / kReduceItems, 1, most);
      const bool last = segments == 1;
      PooledMemory next;
      if (!last) {
        TRY(next, device_.pool().allocate(out.count * segments * 8));
      }
      const int64_t to = parameter(last ? out.memory.data() : next.data());
      const DType rounding = last ? node.dtype : floats ? DType::kF64 : DType::kI64;
      const bool by_segment = reduced[0] > 0 && reduced.back() == 1;
      // Every stage's threads have as much to do as the elements they read.
      add("kiln_reduce", out.count * segments * 4,
          {from, to, floats, identity(node.op, node.dtype), code(combine), shape(kept),
           shape(reduced), out.count, length, segments, by_segment, code(rounding), high_});
      if (last) return {};
      partial = std::move(next);
      from = to;
      kept = shape_list({out.count}, {segments});
      reduced = shape_list({segments}, {1});
      length = segments;
    }
  }

  Status scan(const Node& node, const Value& out) {
    const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    const std::span<const int64_t> sizes(out.sizes);
    const int64_t inner = count(sizes.subspan(axis + 1));
    return scan_lines(at(node.operands[0]), parameter(out.memory.data()), count(sizes.first(axis)),
                      out.sizes[axis], inner, node.dtype, is_float(node.dtype));
  }
  // Scans [outer, size, inner] along size: sums of chunks, their running sums, then those of
  // elements.
  Status scan_lines(int64_t x, int64_t out, int64_t outer, int64_t size, int64_t inner,
                    DType rounding, bool floats) {
    const int64_t lines = outer * inner;
    const int64_t chunk = lines >= kManyLines ? std::max<int64_t>(size, 1) : kScanChunk;
    const int64_t chunks = (size + chunk - 1) / chunk;
    int64_t before = 0;
    PooledMemory sums, running;
    if (chunks > 1) {
      TRY(sums, device_.pool().allocate(lines * chunks * 8));
      TRY(running, device_.pool().allocate(lines * chunks * 8));
      before = parameter(running.data());
      add("kiln_chunk_sums", lines * chunks * 4,
          {x, parameter(sums.data()), floats, lines, size, inner, chunk});
      TRY_STATUS(scan_lines(parameter(sums.data()), before, outer, chunks, inner,
                            floats ? DType::kF64 : DType::kI64, floats));
    }
    add("kiln_running_sums", lines * chunks * 4,
        {x, before, out, floats, lines, size, inner, chunk, code(rounding), high_});
    return {};
  }

  void contract(const Node& node, const Value& out) {
    const Value& a = value(node.operands[0]);
    const size_t rank = out.sizes.size();
    const int64_t m = out.sizes[rank - 2], n = out.sizes[rank - 1], k = a.sizes[rank - 1];
    const int64_t batches = count(std::span(out.sizes).first(rank - 2));
    add("kiln_matmul", batches * ((m + 7) / 8) * n * 4,
        {at(node.operands[0]), at(node.operands[1]), parameter(out.memory.data()), batches, m, n, k,
         code(node.dtype), high_});
  }

  // Three spatial axes, whatever the node has: those in front are of size 1.
  void convolution(const Node& node, const Value& out) {
    const auto& attr = std::get<ConvolutionAttr>(node.attr);
    const Sizes &x = value(node.operands[0]).sizes, &w = value(node.operands[1]).sizes;
    Sizes list = {x[1], w[1], w[0], w[0] / attr.groups};
    const auto put = [&](std::span<const int64_t> values, int64_t missing) {
      list.insert(list.end(), 3 - values.size(), missing);
      list.insert(list.end(), values.begin(), values.end());
    };
    for (const Sizes* sizes : {&x, &w, &out.sizes}) put(std::span(*sizes).subspan(2), 1);
    put(attr.stride, 1);
    put(attr.dilation, 1);
    put(attr.low, 0);
    add("kiln_convolution", out.count * 4,
        {at(node.operands[0]), at(node.operands[1]), parameter(out.memory.data()), shape(list),
         out.count, code(node.dtype), high_});
  }

  void scatter(const Node& node, const Value& out) {
    const Value &x = value(node.operands[0]), &index = value(node.operands[1]);
    const int64_t to = parameter(out.memory.data());
    const int64_t rows = x.sizes[0], row = count(std::span(x.sizes).subspan(1));
    const int64_t shares = std::clamp<int64_t>(kScatterThreads / std::max<int64_t>(row, 1), 1,
                                               std::max<int64_t>(rows, 1));
    add("kiln_place", x.count, {at(node.operands[0]), 0, shape({1, x.count, 1}), to, x.count});
    add("kiln_scatter", shares * row * 4,
        {scatter_op(std::get<ScatterAttr>(node.attr).combine), is_float(node.dtype), to, rows, row,
         at(node.operands[1]), at(node.operands[2]), index.count, shares});
    add("kiln_cast", out.count, {to, code(node.dtype), to, code(node.dtype), high_, out.count});
  }
  static int64_t scatter_op(Combine combine) {
    switch (combine) {
      case Combine::kSet:
        return -1;
      case Combine::kAdd:
        return code(Op::kAdd);
      case Combine::kMul:
        return code(Op::kMul);
      case Combine::kMax:
        return code(Op::kMax);
      case Combine::kMin:
        return code(Op::kMin);
    }
    return -1;
  }

  // Merges runs of 1, 2, 4, ... positions, back and forth between two buffers.
  Status argsort(const Node& node, const Value& out) {
    const Value& x = value(node.operands[0]);
    const int64_t size = x.sizes.back(), to = parameter(out.memory.data());
    if (size == 0) return {};
    TRY(const PooledMemory other, device_.pool().allocate(out.count * 8));
    const int64_t merges = std::bit_width(static_cast<uint64_t>(size - 1));
    int64_t from = merges % 2 == 0 ? to : parameter(other.data());
    add("kiln_positions", out.count, {from, size, out.count});
    for (int64_t run = 1; run < size; run *= 2) {
      const int64_t next = from == to ? parameter(other.data()) : to;
      add("kiln_merge_runs", out.count,
          {at(node.operands[0]), is_float(graph_.node(node.operands[0]).dtype), from, next,
           x.count / size, size, run, std::get<SortAttr>(node.attr).descending});
      from = next;
    }
    return {};
  }

  void gather(const Node& node, const Value& out) {
    const Value& x = value(node.operands[0]);
    const int64_t rows = x.sizes[0], row = count(std::span(x.sizes).subspan(1));
    if (rows == 0) return constant({}, out);
    add("kiln_gather", out.count,
        {at(node.operands[0]), rows, row, at(node.operands[1]), parameter(out.memory.data()),
         out.count});
  }

  static constexpr size_t kReduceStageWords = 2 * 3 * 16;  // a stage divides by 64 at least

  CudaEvaluationDevice& device_;
  const Graph& graph_;
  const std::span<const int64_t> symbols_;
  const int64_t high_;
  std::vector<Value> values_;
  PooledMemory shapes_;
  std::vector<int64_t> shape_words_;
  std::vector<Step> steps_;
};

}  // namespace

Status CudaEvaluationDevice::evaluate(const Graph& graph, std::span<const int64_t> symbols,
                                      Precision precision, std::span<const DevicePtr> inputs,
                                      std::span<const DevicePtr> outputs) {
  CHECK(inputs.size() == graph.inputs().size() && outputs.size() == graph.outputs().size(),
        "the graph's inputs and outputs");
  if (has_custom_calls(graph)) {
    TRY(const Graph plain, inline_custom_calls(graph));
    return Evaluation(*this, plain, symbols, precision).run(inputs, outputs);
  }
  return Evaluation(*this, graph, symbols, precision).run(inputs, outputs);
}

}  // namespace kiln::runner
