#include "worker/runner/cuda/reference_operations.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "compiler_core/base/check.h"
#include "compiler_core/plan/picked_products.h"

namespace kiln::runner {
namespace {

using Sizes = ReferenceValues::Sizes;

constexpr int64_t kReduceItems = 64;          // a thread folds at least, where there are enough
constexpr int64_t kReducePartials = 4 << 20;  // at most
constexpr int64_t kScanChunk = 128;
constexpr int64_t kScatterThreads = 1 << 16;
constexpr size_t kReduceStageWords = 2 * 3 * 16;  // a stage divides by 64 at least
constexpr int64_t kManyLines = 1 << 16;           // scanned whole, a thread each

int64_t code(DType dtype) {
  return static_cast<int64_t>(dtype);
}
int64_t code(Op op) {
  return static_cast<int64_t>(op);
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

// Whether the last axis, as the kernels see it, has stride 1.
bool runs_on(const Sizes& sizes, const Sizes& strides) {
  const Sizes merged = ReferenceLaunches::merged(sizes, strides);
  return merged[0] > 0 && merged.back() == 1;
}

int64_t scatter_op(Combine combine) {
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

}  // namespace

// Room for every list there can be: three a node and operand; for each slice the stages of a
// reduction; or what a convolution or a scatter needs.
Status ReferenceOperations::reserve_lists(const ReferenceSlices& slices) {
  size_t words = 0;
  for (const Node& node : graph_.nodes()) {
    size_t rank = node.shape.size();
    for (const NodeId operand : node.operands)
      rank = std::max(rank, graph_.node(operand).shape.size());
    words += (node.operands.size() + 1) * 2 * (2 * rank + 1) + kReduceStageWords;
  }
  for (NodeId id = 0; id < graph_.size(); ++id)
    for (const auto& slice : slices.slices(id)) words += slice.before.size() * kReduceStageWords;
  return values_.launches().reserve(words);
}

Status ReferenceOperations::plan(NodeId id, Interval part) {
  const Node& node = graph_.node(id);
  switch (traits(node.op).kind) {
    case OpKind::kSource:
      source(id, part);
      return {};
    case OpKind::kUnary:
    case OpKind::kBinary:
    case OpKind::kCompare:
    case OpKind::kSelect:
      elementwise(id, part);
      return {};
    case OpKind::kIndexMap:
      return node.op == Op::kView ? view(id, part) : join(id);
    case OpKind::kReduce:
      return reduce(id, part);
    case OpKind::kScan:
      return scan(id);
    case OpKind::kContract:
      node.op == Op::kConvolution ? convolution(id) : contract(id, part);
      return {};
    case OpKind::kGather:
      gather(id);
      return {};
    case OpKind::kScatter:
      scatter(id);
      return {};
    case OpKind::kSort:
      return argsort(id);
    case OpKind::kRandom:
      add("kiln_philox", (part.count() + 3) / 4,
          {at(node.operands[0]), std::get<PhiloxAttr>(node.attr).stream, at(id), part.count()});
      return {};
    case OpKind::kCustom:
      break;
  }
  CHECK(false, "custom calls were replaced by their references");
}

void ReferenceOperations::source(NodeId id, Interval part) {
  const Node& node = graph_.node(id);
  const int64_t to = at(id, part.begin), n = part.count();
  if (node.op == Op::kInput) {
    const auto index = static_cast<size_t>(std::get<InputAttr>(node.attr).index);
    const int64_t from = parameter(inputs_[index]) + part.begin * size_of(node.dtype);
    add("kiln_load", n, {from, code(node.dtype), to, n});
  } else if (node.op == Op::kConstant) {
    constant(std::get<ConstantAttr>(node.attr), to, n);
  } else {
    add("kiln_iota", n, {to, code(node.dtype), high_, n});
  }
}
// The bits of a constant are those of a node's element.
void ReferenceOperations::constant(const ConstantAttr& attr, int64_t to, int64_t count) {
  add("kiln_constant", count, {to, static_cast<int64_t>(attr.bits), count});
}

void ReferenceOperations::elementwise(NodeId id, Interval part) {
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
    add("kiln_binary", n, {code(node.op), operand(0), operand(1), to, code(node.dtype), high_, n});
  else if (kind == OpKind::kCompare)
    add("kiln_relation", n, {code(node.op), operand(0), operand(1), is_float(from), to, n});
  else
    add("kiln_select", n, {operand(0), operand(1), operand(2), to, n});
}

Status ReferenceOperations::view(NodeId id, Interval part) {
  const Node& node = graph_.node(id);
  const auto& view = std::get<ViewAttr>(node.attr);
  TRY(const Sizes strides, values_.evaluate(view.strides));
  TRY(const int64_t offset, values_.evaluate(view.offset));
  add("kiln_view", part.count(),
      {at(node.operands[0]), offset, list(sizes(id), strides), at(id, part.begin), part.begin,
       part.count()});
  return {};
}

// A pad or a concatenation.
Status ReferenceOperations::join(NodeId id) {
  const Node& node = graph_.node(id);
  const Sizes strides = row_major(sizes(id));
  const int64_t to = at(id);
  const auto place = [&](NodeId from, int64_t offset) {
    const int64_t n = element_count(sizes(from));
    add("kiln_place", n, {at(from), offset, list(sizes(from), strides), to, n});
  };
  int64_t offset = 0;
  if (node.op == Op::kPad) {
    const auto& pad = std::get<PadAttr>(node.attr);
    TRY(const Sizes low, values_.evaluate(pad.low));
    for (size_t k = 0; k < low.size(); ++k) offset += low[k] * strides[k];
    constant(pad.value, to, values_.elements(id));
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
Status ReferenceOperations::reduce(NodeId id, Interval part) {
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
  int64_t first = part.begin, length = element_count(sizes), from = at(node.operands[0]);
  PooledMemory partial;
  for (;;) {
    const int64_t most = std::max<int64_t>(1, kReducePartials / std::max<int64_t>(1, part.count()));
    const int64_t segments =
        std::clamp<int64_t>((length + kReduceItems - 1) / kReduceItems, 1, most);
    const bool last = segments == 1;
    PooledMemory next;
    if (!last) {
      TRY(next, values_.allocate(part.count() * segments * 8));
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

Status ReferenceOperations::scan(NodeId id) {
  const Node& node = graph_.node(id);
  const auto axis = static_cast<size_t>(std::get<AxisAttr>(node.attr).axis);
  const std::span<const int64_t> whole(sizes(id));
  const int64_t inner = element_count(whole.subspan(axis + 1));
  return scan_lines(at(node.operands[0]), at(id), element_count(whole.first(axis)), sizes(id)[axis],
                    inner, node.dtype, is_float(node.dtype));
}
// Scans [outer, size, inner] along size: sums of chunks, their running sums, then those of
// elements.
Status ReferenceOperations::scan_lines(int64_t x, int64_t out, int64_t outer, int64_t size,
                                       int64_t inner, DType rounding, bool floats) {
  const int64_t lines = outer * inner;
  const int64_t chunk = lines >= kManyLines ? std::max<int64_t>(size, 1) : kScanChunk;
  const int64_t chunks = (size + chunk - 1) / chunk;
  int64_t before = 0;
  PooledMemory sums, running;
  if (chunks > 1) {
    TRY(sums, values_.allocate(lines * chunks * 8));
    TRY(running, values_.allocate(lines * chunks * 8));
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
void ReferenceOperations::contract(NodeId id, Interval part) {
  const Node& node = graph_.node(id);
  const Sizes &out = sizes(id), &a = sizes(node.operands[0]);
  const int64_t m = out[out.size() - 2], n = out.back(), k = a.back();
  if (part.count() == 0) return;
  const int64_t end = part.end / n;
  const auto picked = picked_matrices(graph_, node);
  const bool picks = picked && values_.in_place(picked->gather);
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
void ReferenceOperations::convolution(NodeId id) {
  const Node& node = graph_.node(id);
  const auto& attr = std::get<ConvolutionAttr>(node.attr);
  const Sizes &x = sizes(node.operands[0]), &w = sizes(node.operands[1]);
  Sizes list = {x[1], w[1], w[0], w[0] / attr.groups};
  const auto put = [&](std::span<const int64_t> values, int64_t missing) {
    list.insert(list.end(), 3 - values.size(), missing);
    list.insert(list.end(), values.begin(), values.end());
  };
  for (const Sizes* sizes : {&x, &w, &sizes(id)}) put(std::span(*sizes).subspan(2), 1);
  put(attr.stride, 1);
  put(attr.dilation, 1);
  put(attr.low, 0);
  const int64_t n = values_.elements(id);
  add("kiln_convolution", n * 4,
      {at(node.operands[0]), at(node.operands[1]), at(id), values_.launches().list(list), n,
       code(node.dtype), high_});
}

void ReferenceOperations::scatter(NodeId id) {
  const Node& node = graph_.node(id);
  const Sizes& x = sizes(node.operands[0]);
  const int64_t to = at(id), n = element_count(x);
  const int64_t rows = x[0], row = element_count(std::span(x).subspan(1));
  const int64_t shares = std::clamp<int64_t>(kScatterThreads / std::max<int64_t>(row, 1), 1,
                                             std::max<int64_t>(rows, 1));
  add("kiln_place", n, {at(node.operands[0]), 0, values_.launches().list({1, n, 1}), to, n});
  add("kiln_scatter", shares * row * 4,
      {scatter_op(std::get<ScatterAttr>(node.attr).combine), is_float(node.dtype), to, rows, row,
       at(node.operands[1]), at(node.operands[2]), element_count(sizes(node.operands[1])), shares});
  add("kiln_cast", n, {to, code(node.dtype), to, code(node.dtype), high_, n});
}

// Merges runs of 1, 2, 4, ... positions, back and forth between two buffers.
Status ReferenceOperations::argsort(NodeId id) {
  const Node& node = graph_.node(id);
  const int64_t size = sizes(id).back(), n = values_.elements(id), to = at(id);
  if (size == 0) return {};
  TRY(const PooledMemory other, values_.allocate(n * 8));
  const int64_t merges = std::bit_width(static_cast<uint64_t>(size - 1));
  int64_t from = merges % 2 == 0 ? to : parameter(other.data());
  add("kiln_positions", n, {from, size, n});
  for (int64_t run = 1; run < size; run *= 2) {
    const int64_t next = from == to ? parameter(other.data()) : to;
    add("kiln_merge_runs", n,
        {at(node.operands[0]), is_float(graph_.node(node.operands[0]).dtype), from, next, n / size,
         size, run, std::get<SortAttr>(node.attr).descending});
    from = next;
  }
  return {};
}

void ReferenceOperations::gather(NodeId id) {
  const Node& node = graph_.node(id);
  const Sizes& x = sizes(node.operands[0]);
  const int64_t rows = x[0], row = element_count(std::span(x).subspan(1)), n = values_.elements(id);
  const int64_t to = at(id);
  if (rows == 0) return constant({}, to, n);
  add("kiln_gather", n, {at(node.operands[0]), rows, row, at(node.operands[1]), to, n});
}

void ReferenceOperations::store(NodeId id, DevicePtr output) {
  const int64_t n = values_.elements(id);
  add("kiln_store", n, {at(id), parameter(output), code(graph_.node(id).dtype), n});
}

}  // namespace kiln::runner
