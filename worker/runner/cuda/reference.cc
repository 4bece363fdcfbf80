#include "worker/runner/cuda/cuda_evaluation_device.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/custom_call.h"
#include "compiler_core/plan/picked_products.h"
#include "worker/runner/cuda/reference_launches.h"
#include "worker/runner/cuda/reference_slices.h"

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

// Plans launches before they are made. Memory is taken and given back in the order of the plan,
// which is the order of the stream. Nodes that are too large for the whole are computed in slices.
class Evaluation {
 public:
  Evaluation(CudaEvaluationDevice& device, const Graph& graph, std::span<const int64_t> symbols,
             Precision precision)
      : device_(device),
        graph_(graph),
        symbols_(symbols),
        high_(precision == Precision::kHigh ? 1 : 0),
        launches_(device),
        values_(static_cast<size_t>(graph.size())),
        in_place_(gathers_in_place(graph)) {}

  Status run(std::span<const DevicePtr> inputs, std::span<const DevicePtr> outputs) {
    std::vector<Sizes> sizes;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      TRY(value(id).sizes, sizes_of(graph_.node(id).shape));
      TRY_STATUS(checked_bytes(DType::kF64, value(id).sizes));
      sizes.push_back(value(id).sizes);
    }
    TRY(const ReferenceSlices slices, ReferenceSlices::plan(graph_, std::move(sizes), symbols_,
                                                            device_.policy().reference_elements));
    TRY_STATUS(reserve_lists(slices));
    const std::vector<NodeId> last_use = last_uses(slices);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!slices.whole(id) || in_place_[static_cast<size_t>(id)]) continue;
      TRY_STATUS(hold(id, {0, count(value(id).sizes)}));
      for (const auto& slice : slices.slices(id)) {
        for (const auto& [node, part] : slice.before) {
          TRY_STATUS(hold(node, part));
          TRY_STATUS(plan(node, part, inputs));
        }
        TRY_STATUS(plan(id, slice.part, inputs));
        for (const auto& [node, part] : slice.before) value(node).memory = {};
      }
      for (NodeId node = 0; node < id; ++node)
        if (last_use[static_cast<size_t>(node)] == id) value(node).memory = {};
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const NodeId id = graph_.outputs()[i];
      const int64_t elements = count(value(id).sizes);
      add("kiln_store", elements,
          {at(id), parameter(outputs[i]), code(graph_.node(id).dtype), elements});
    }
    return launches_.launch();
  }

 private:
  struct Value {
    Sizes sizes;
    PooledMemory memory;
    Interval held;  // what is in the memory
  };

  Value& value(NodeId id) { return values_[static_cast<size_t>(id)]; }
  const Sizes& sizes(NodeId id) const { return values_[static_cast<size_t>(id)].sizes; }
  // Where element `first` of a node is, or would be if it was held from there on.
  int64_t at(NodeId id, int64_t first = 0) {
    return parameter(value(id).memory.data()) + (first - value(id).held.begin) * 8;
  }
  static int64_t code(DType dtype) { return static_cast<int64_t>(dtype); }
  static int64_t code(Op op) { return static_cast<int64_t>(op); }

  // By node: a Gather of matrices that only products read, which find them in the table.
  static std::vector<bool> gathers_in_place(const Graph& graph) {
    std::vector<bool> in_place(static_cast<size_t>(graph.size()), false);
    const auto users = users_of(graph);
    for (NodeId id = 0; id < graph.size(); ++id) {
      const auto& readers = users[static_cast<size_t>(id)];
      const auto picks = [&](NodeId reader) {
        const auto picked = picked_matrices(graph, graph.node(reader));
        return picked && picked->gather == id && graph.node(reader).operands[0] != id;
      };
      in_place[static_cast<size_t>(id)] =
          !readers.empty() && std::all_of(readers.begin(), readers.end(), picks);
    }
    for (const NodeId id : graph.outputs()) in_place[static_cast<size_t>(id)] = false;
    return in_place;
  }

  // A node that is held whole is used last by another such, also by way of nodes in slices.
  std::vector<NodeId> last_uses(const ReferenceSlices& slices) const {
    std::vector<NodeId> last(static_cast<size_t>(graph_.size()), kInvalidNode);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!slices.whole(id)) continue;
      const auto use = [&](NodeId node) {
        for (const NodeId operand : graph_.node(node).operands) {
          last[static_cast<size_t>(operand)] = id;
          if (!in_place_[static_cast<size_t>(operand)]) continue;
          for (const NodeId below : graph_.node(operand).operands)
            last[static_cast<size_t>(below)] = id;
        }
      };
      use(id);
      for (const auto& slice : slices.slices(id))
        for (const auto& [node, part] : slice.before) use(node);
    }
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

  void add(const char* entry, int64_t work, std::vector<int64_t> arguments) {
    launches_.add(entry, work, std::move(arguments));
  }
  int64_t list(const Sizes& sizes, const Sizes& strides) {
    return launches_.list(ReferenceLaunches::merged(sizes, strides));
  }

  // Planned work goes on using what was given back, so that the driver gets none of it before.
  Result<PooledMemory> allocate(int64_t bytes) {
    auto memory = device_.pool().try_allocate(bytes);
    if (memory) return memory;
    TRY_STATUS(launches_.launch());
    return device_.pool().allocate(bytes);
  }
  Status hold(NodeId id, Interval part) {
    TRY(value(id).memory, allocate(part.count() * 8));
    value(id).held = part;
    return {};
  }

  // Room for every list there can be: three a node and operand; for each slice the stages of a
  // reduction; or what a convolution or a scatter needs.
  Status reserve_lists(const ReferenceSlices& slices) {
    size_t words = 0;
    for (const Node& node : graph_.nodes()) {
      size_t rank = node.shape.size();
      for (const NodeId operand : node.operands)
        rank = std::max(rank, graph_.node(operand).shape.size());
      words += (node.operands.size() + 1) * 2 * (2 * rank + 1) + kReduceStageWords;
    }
    for (NodeId id = 0; id < graph_.size(); ++id)
      for (const auto& slice : slices.slices(id)) words += slice.before.size() * kReduceStageWords;
    return launches_.reserve(words);
  }

  // For a node in slices, or for one that cannot be computed in parts, `part` is what is held.
  Status plan(NodeId id, Interval part, std::span<const DevicePtr> inputs) {
    const Node& node = graph_.node(id);
    const Value& out = value(id);
    switch (traits(node.op).kind) {
      case OpKind::kSource:
        source(id, part, inputs);
        return {};
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        elementwise(id, part);
        return {};
      case OpKind::kIndexMap:
        return node.op == Op::kView ? view(id, part) : join(node, out);
      case OpKind::kReduce:
        return reduce(id, part);
      case OpKind::kScan:
        return scan(node, out);
      case OpKind::kContract:
        node.op == Op::kConvolution ? convolution(node, out) : contract(id, part);
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
        add("kiln_philox", (part.count() + 3) / 4,
            {at(node.operands[0]), std::get<PhiloxAttr>(node.attr).stream, at(id), part.count()});
        return {};
      case OpKind::kCustom:
        break;
    }
    CHECK(false, "custom calls were replaced by their references");
  }

  void source(NodeId id, Interval part, std::span<const DevicePtr> inputs) {
    const Node& node = graph_.node(id);
    const int64_t to = at(id, part.begin), n = part.count();
    if (node.op == Op::kInput) {
      const auto index = static_cast<size_t>(std::get<InputAttr>(node.attr).index);
      const int64_t from = parameter(inputs[index]) + part.begin * size_of(node.dtype);
      add("kiln_load", n, {from, code(node.dtype), to, n});
    } else if (node.op == Op::kConstant) {
      constant(std::get<ConstantAttr>(node.attr), to, n);
    } else {
      add("kiln_iota", n, {to, code(node.dtype), high_, n});
    }
  }
  // The bits of a constant are those of a node's element.
  void constant(const ConstantAttr& attr, int64_t to, int64_t count) {
    add("kiln_constant", count, {to, static_cast<int64_t>(attr.bits), count});
  }

  void elementwise(NodeId id, Interval part) {
    const Node& node = graph_.node(id);
    const int64_t to = at(id, part.begin), n = part.count();
    const auto operand = [&](size_t i) { return at(node.operands[i], part.begin); };
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

  Status view(NodeId id, Interval part) {
    const Node& node = graph_.node(id);
    const auto& view = std::get<ViewAttr>(node.attr);
    TRY(const Sizes strides, sizes_of(view.strides));
    TRY(const int64_t offset, view.offset.evaluate(symbols_));
    add("kiln_view", part.count(),
        {at(node.operands[0]), offset, list(sizes(id), strides), at(id, part.begin), part.begin,
         part.count()});
    return {};
  }

  // A pad or a concatenation.
  Status join(const Node& node, const Value& out) {
    const Sizes strides = row_major(out.sizes);
    const int64_t to = parameter(out.memory.data());
    const auto place = [&](NodeId from, int64_t offset) {
      const int64_t n = count(sizes(from));
      add("kiln_place", n, {at(from), offset, list(sizes(from), strides), to, n});
    };
    int64_t offset = 0;
    if (node.op == Op::kPad) {
      const auto& pad = std::get<PadAttr>(node.attr);
      TRY(const Sizes low, sizes_of(pad.low));
      for (size_t k = 0; k < low.size(); ++k) offset += low[k] * strides[k];
      constant(pad.value, to, count(out.sizes));
      place(node.operands[0], offset);
      return {};
    }
    const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
    for (const NodeId operand : node.operands) {
      place(operand, offset);
      offset += sizes(operand)[axis] * strides[axis];
    }
    return {};
  }

  // Stages of partial results, each of whose threads folds some tens of elements.
  Status reduce(NodeId id, Interval part) {
    const Node& node = graph_.node(id);
    const Sizes& x = sizes(node.operands[0]);
    const auto& axes = std::get<ReduceAttr>(node.attr).axes;
    const Sizes strides = row_major(x);
    Sizes kept_sizes, kept_strides, sizes, reduced_strides;
    for (size_t k = 0; k < x.size(); ++k) {
      const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int>(k));
      (reduced ? sizes : kept_sizes).push_back(x[k]);
      (reduced ? reduced_strides : kept_strides).push_back(strides[k]);
    }
    const Op combine = node.op == Op::kReduceSum    ? Op::kAdd
                       : node.op == Op::kReduceProd ? Op::kMul
                       : node.op == Op::kReduceMax  ? Op::kMax
                                                    : Op::kMin;
    const bool floats = is_float(node.dtype);
    int64_t kept = list(kept_sizes, kept_strides), reduced = list(sizes, reduced_strides);
    bool by_segment = runs_on(sizes, reduced_strides);
    int64_t first = part.begin, length = count(sizes), from = at(node.operands[0]);
    PooledMemory partial;
    for (;;) {
      const int64_t most =
          std::max<int64_t>(1, kReducePartials / std::max<int64_t>(1, part.count()));
      const int64_t segments =
          std::clamp<int64_t>((length + kReduceItems - 1) / kReduceItems, 1, most);
      const bool last = segments == 1;
      PooledMemory next;
      if (!last) {
        TRY(next, allocate(part.count() * segments * 8));
      }
      const int64_t to = last ? at(id, part.begin) : parameter(next.data());
      const DType rounding = last ? node.dtype : floats ? DType::kF64 : DType::kI64;
      // Every stage's threads have as much to do as the elements they read.
      add("kiln_reduce", part.count() * segments * 4,
          {from, to, floats, identity(node.op, node.dtype), code(combine), kept, reduced, first,
           part.count(), length, segments, by_segment, code(rounding), high_});
      if (last) return {};
      partial = std::move(next);
      from = to;
      first = 0;
      kept = list({part.count()}, {segments});
      reduced = list({segments}, {1});
      by_segment = true;
      length = segments;
    }
  }
  // Whether the last axis, as the kernels see it, has stride 1.
  static bool runs_on(const Sizes& sizes, const Sizes& strides) {
    const Sizes merged = ReferenceLaunches::merged(sizes, strides);
    return merged[0] > 0 && merged.back() == 1;
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
      TRY(sums, allocate(lines * chunks * 8));
      TRY(running, allocate(lines * chunks * 8));
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

  // Rows of the result: the end of a first matrix, whole matrices, the beginning of a last one.
  void contract(NodeId id, Interval part) {
    const Node& node = graph_.node(id);
    const Sizes &out = sizes(id), &a = sizes(node.operands[0]);
    const int64_t m = out[out.size() - 2], n = out.back(), k = a.back();
    if (part.count() == 0) return;
    const int64_t end = part.end / n;
    const auto picked = picked_matrices(graph_, node);
    const bool picks = picked && in_place_[static_cast<size_t>(picked->gather)];
    for (int64_t row = part.begin / n; row < end;) {
      const int64_t batch = row / m;
      const bool whole = row % m == 0 && end - row >= m;
      const int64_t batches = whole ? (end - row) / m : 1;
      const int64_t rows = whole ? m : std::min(end, (batch + 1) * m) - row;
      const int64_t b = picks ? at(picked->table) : at(node.operands[1], batch * k * n);
      add("kiln_matmul", batches * ((rows + 7) / 8) * n * 4,
          {at(node.operands[0], row * k), b, picks ? at(picked->index, batch) : 0,
           picks ? sizes(picked->table)[0] : 0, at(id, row * n), batches, rows, n, k,
           code(node.dtype), high_});
      row += batches * rows;
    }
  }

  // Three spatial axes, whatever the node has: those in front are of size 1.
  void convolution(const Node& node, const Value& out) {
    const auto& attr = std::get<ConvolutionAttr>(node.attr);
    const Sizes &x = sizes(node.operands[0]), &w = sizes(node.operands[1]);
    Sizes list = {x[1], w[1], w[0], w[0] / attr.groups};
    const auto put = [&](std::span<const int64_t> values, int64_t missing) {
      list.insert(list.end(), 3 - values.size(), missing);
      list.insert(list.end(), values.begin(), values.end());
    };
    for (const Sizes* sizes : {&x, &w, &out.sizes}) put(std::span(*sizes).subspan(2), 1);
    put(attr.stride, 1);
    put(attr.dilation, 1);
    put(attr.low, 0);
    const int64_t n = count(out.sizes);
    add("kiln_convolution", n * 4,
        {at(node.operands[0]), at(node.operands[1]), parameter(out.memory.data()),
         launches_.list(list), n, code(node.dtype), high_});
  }

  void scatter(const Node& node, const Value& out) {
    const Sizes& x = sizes(node.operands[0]);
    const int64_t to = parameter(out.memory.data()), n = count(x);
    const int64_t rows = x[0], row = count(std::span(x).subspan(1));
    const int64_t shares = std::clamp<int64_t>(kScatterThreads / std::max<int64_t>(row, 1), 1,
                                               std::max<int64_t>(rows, 1));
    add("kiln_place", n, {at(node.operands[0]), 0, launches_.list({1, n, 1}), to, n});
    add("kiln_scatter", shares * row * 4,
        {scatter_op(std::get<ScatterAttr>(node.attr).combine), is_float(node.dtype), to, rows, row,
         at(node.operands[1]), at(node.operands[2]), count(sizes(node.operands[1])), shares});
    add("kiln_cast", n, {to, code(node.dtype), to, code(node.dtype), high_, n});
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
    const int64_t size = out.sizes.back(), n = count(out.sizes), to = parameter(out.memory.data());
    if (size == 0) return {};
    TRY(const PooledMemory other, allocate(n * 8));
    const int64_t merges = std::bit_width(static_cast<uint64_t>(size - 1));
    int64_t from = merges % 2 == 0 ? to : parameter(other.data());
    add("kiln_positions", n, {from, size, n});
    for (int64_t run = 1; run < size; run *= 2) {
      const int64_t next = from == to ? parameter(other.data()) : to;
      add("kiln_merge_runs", n,
          {at(node.operands[0]), is_float(graph_.node(node.operands[0]).dtype), from, next,
           n / size, size, run, std::get<SortAttr>(node.attr).descending});
      from = next;
    }
    return {};
  }

  void gather(const Node& node, const Value& out) {
    const Sizes& x = sizes(node.operands[0]);
    const int64_t rows = x[0], row = count(std::span(x).subspan(1)), n = count(out.sizes);
    const int64_t to = parameter(out.memory.data());
    if (rows == 0) return constant({}, to, n);
    add("kiln_gather", n, {at(node.operands[0]), rows, row, at(node.operands[1]), to, n});
  }

  static constexpr size_t kReduceStageWords = 2 * 3 * 16;  // a stage divides by 64 at least

  CudaEvaluationDevice& device_;
  const Graph& graph_;
  const std::span<const int64_t> symbols_;
  const int64_t high_;
  ReferenceLaunches launches_;
  std::vector<Value> values_;
  const std::vector<bool> in_place_;
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
