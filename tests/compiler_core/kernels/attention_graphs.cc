#include "tests/compiler_core/kernels/attention_graphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler_core/base/check.h"

namespace kiln::testing {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double least_finite(DType dtype) {
  return dtype == DType::kF32 ? -0x1.fffffep127 : dtype == DType::kBF16 ? -0x1.fep127 : -65504;
}

class Writer {
 public:
  explicit Writer(const AttentionGraph& wanted) : w_(wanted) {
    for (const Symbol& symbol : wanted.symbols) b_.symbol(symbol.range, symbol.hint);
  }

  Graph run() {
    NodeId x = attend();
    if (w_.transposed) x = transposed(x);
    if (w_.output_bias)
      x = b_.binary(Op::kAdd, x, b_.broadcast(b_.input(DType::kF32, {w_.columns}), b_.shape(x)));
    using LogSums = AttentionGraph::LogSums;
    std::vector<NodeId> outputs = {b_.cast(x, w_.dtype)};
    if (w_.log_sums != LogSums::kNone)
      outputs.insert(w_.log_sums == LogSums::kFirst ? outputs.begin() : outputs.end(), log_sums_);
    auto graph = b_.finish(std::move(outputs));
    CHECK(graph.has_value(), "a valid graph");
    return *std::move(graph);
  }

 private:
  Shape shape(std::initializer_list<Dim> rest) const {
    Shape all = w_.batch;
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  NodeId like(double value, NodeId x) {
    return b_.broadcast(b_.constant(b_.dtype(x), value), Shape(b_.shape(x)));
  }
  NodeId repeated(NodeId rows, const Shape& to) { return b_.broadcast(rows, to); }

  // An input that is, or is read as, of this shape.
  NodeId tokens(const Shape& own) {
    if (!w_.heads_inside) return b_.input(w_.dtype, own);
    const auto rank = static_cast<int>(own.size());
    Shape stored = own;
    std::rotate(stored.begin() + 1, stored.end() - 2, stored.end() - 1);
    std::vector<int> axes = {0};
    for (int axis = 2; axis + 1 < rank; ++axis) axes.push_back(axis);
    axes.insert(axes.end(), {1, rank - 1});
    return b_.permute(b_.input(w_.dtype, stored), axes);
  }

  // Keys or values of this shape, as the cache has them.
  NodeId cached(const Shape& own) {
    using Cache = AttentionGraph::Cache;
    if (w_.cache == Cache::kPlain || (w_.plain_values && has_keys_)) return tokens(own);
    has_keys_ = true;
    const bool scaled = w_.cache != Cache::kPages;
    const DType stored = scaled ? w_.cached : w_.dtype;
    NodeId x = kInvalidNode;
    if (w_.cache == Cache::kPages || w_.cache == Cache::kScaledPages) {
      constexpr int64_t kPool = 10, kTokensOfPage = 4;
      const Dim &batch = own[0], &heads = own[1], &width = own[3];
      const NodeId table =
          b_.input(DType::kI64, {batch, *Dim::divide_exact(w_.keys, kTokensOfPage)});
      x = b_.gather(b_.input(stored, {kPool, kTokensOfPage, heads, width}), table);
      x = b_.permute(b_.reshape(x, {batch, w_.keys, heads, width}), {0, 2, 1, 3});
    } else {
      x = b_.input(stored, own);
    }
    if (!scaled) return x;
    Shape scales(own.size(), 1);
    if (w_.cache == Cache::kScaledTokens)
      for (size_t axis = 0; axis + 1 < own.size(); ++axis) scales[axis] = own[axis];
    const NodeId scale = b_.broadcast(b_.input(DType::kF32, scales), own);
    x = b_.binary(Op::kMul, b_.cast(x, DType::kF32), scale);
    return w_.dtype == DType::kF32 ? x : b_.cast(x, w_.dtype);
  }

  // [batch..., keys, width], of which `shared_by` of the last batch axis are one.
  NodeId operand(int64_t width) {
    if (w_.shared_by == 1) return cached(shape({w_.keys, width}));
    Shape own = shape({w_.keys, width});
    Dim& heads = own[w_.batch.size() - 1];
    heads = heads.constant() / w_.shared_by;
    Shape separate = own, spread = own;
    const auto at = static_cast<std::ptrdiff_t>(w_.batch.size());
    separate.insert(separate.begin() + at, 1);
    spread.insert(spread.begin() + at, w_.shared_by);
    const NodeId x = b_.reshape(cached(own), separate);
    return b_.reshape(b_.broadcast(x, spread), shape({w_.keys, width}));
  }

  NodeId attend() {
    const NodeId query = tokens(shape({w_.rows, w_.depth}));
    const NodeId key = operand(w_.depth), value = operand(w_.columns);
    std::vector<int> axes(w_.batch.size() + 2);
    std::iota(axes.begin(), axes.end(), 0);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    NodeId s = b_.matmul(query, b_.permute(key, axes));
    s = masked(b_.binary(Op::kMul, s, like(1 / std::sqrt(static_cast<double>(w_.depth)), s)));
    const Shape full = b_.shape(s);
    const int last = static_cast<int>(full.size()) - 1;
    const NodeId most = b_.reduce(Op::kReduceMax, s, {last}, true);
    const NodeId e = b_.unary(Op::kExp, b_.binary(Op::kSub, s, repeated(most, full)));
    const NodeId sum = b_.reduce(Op::kReduceSum, e, {last}, true);
    log_sums_ = b_.binary(Op::kAdd, b_.unary(Op::kLog, b_.reshape(sum, shape({w_.rows}))),
                          b_.reshape(most, shape({w_.rows})));
    using Division = AttentionGraph::Division;
    NodeId p = w_.division == Division::kBefore ? b_.binary(Op::kDiv, e, repeated(sum, full)) : e;
    if (w_.guarded) {
      const NodeId blind = b_.binary(Op::kEq, most, like(kMinusInfinity, most));
      p = b_.select(repeated(blind, full), like(0, p), p);
    }
    const NodeId x = b_.matmul(b_.cast(p, w_.dtype), value);
    if (w_.division != Division::kAfter) return x;
    return b_.binary(Op::kDiv, x, repeated(sum, b_.shape(x)));
  }

  NodeId masked(NodeId s) {
    using Mask = AttentionGraph::Mask;
    const Shape full = b_.shape(s);
    if (w_.mask == Mask::kNone) return s;
    if (w_.mask == Mask::kAdditive)
      return b_.binary(Op::kAdd, s, b_.broadcast(b_.input(DType::kF32, {w_.rows, w_.keys}), full));
    const int rank = static_cast<int>(full.size());
    const NodeId column =
        b_.broadcast_in(b_.iota(DType::kI64, w_.keys), full, std::array{rank - 1});
    NodeId row = b_.broadcast_in(b_.iota(DType::kI64, w_.rows), full, std::array{rank - 2});
    if (w_.reach != 0) {
      const NodeId far = b_.broadcast(b_.constant_int(DType::kI64, w_.reach), full);
      row = b_.binary(Op::kAdd, row, far);
    }
    NodeId seen = b_.binary(Op::kLe, column, row);
    const bool window = w_.mask == Mask::kWindow || w_.mask == Mask::kLeast;
    if (window || w_.mask == Mask::kBand) {
      const NodeId behind = b_.binary(Op::kSub, row, column);
      const NodeId most = b_.broadcast(b_.constant_int(DType::kI64, w_.past), full);
      if (w_.mask == Mask::kBand) seen = b_.binary(Op::kLe, b_.unary(Op::kAbs, behind), most);
      if (window) seen = b_.binary(Op::kAnd, seen, b_.binary(Op::kLe, behind, most));
    } else if (w_.mask != Mask::kCausal) {
      const NodeId given = b_.broadcast(b_.input(DType::kBool, {w_.keys}), full);
      seen = w_.mask == Mask::kBool ? given : b_.binary(Op::kAnd, seen, given);
    }
    if (w_.mask == Mask::kLeast) {  // as models add it that compute attention by themselves
      const NodeId x = b_.cast(s, w_.dtype);
      const NodeId hides = b_.select(seen, like(0, x), like(least_finite(w_.dtype), x));
      return b_.cast(b_.binary(Op::kAdd, x, hides), DType::kF32);
    }
    return b_.select(seen, s, like(kMinusInfinity, s));
  }

  // [batch 0, rows, other batch axes, columns].
  NodeId transposed(NodeId x) {
    const int rank = static_cast<int>(w_.batch.size()) + 2;
    std::vector<int> axes = {0, rank - 2};
    for (int axis = 1; axis < rank - 2; ++axis) axes.push_back(axis);
    axes.push_back(rank - 1);
    return b_.permute(x, axes);
  }

  const AttentionGraph& w_;
  GraphBuilder b_;
  bool has_keys_ = false;  // they come before values
  NodeId log_sums_ = kInvalidNode;
};

}  // namespace

Graph attention_graph(const AttentionGraph& wanted) {
  return Writer(wanted).run();
}

std::vector<AttentionGraph> attention_with_log_sums(int64_t rows, int64_t keys, DType dtype) {
  using Mask = AttentionGraph::Mask;
  using Division = AttentionGraph::Division;
  using LogSums = AttentionGraph::LogSums;
  std::vector<AttentionGraph> graphs(
      4, {.dtype = DType::kBF16, .batch = {2}, .rows = rows, .keys = keys});
  graphs[0].log_sums = graphs[2].log_sums = LogSums::kFirst;
  graphs[1].log_sums = graphs[3].log_sums = LogSums::kLast;
  graphs[1].dtype = graphs[2].dtype = dtype;
  graphs[1].mask = Mask::kAdditive;
  graphs[2].mask = graphs[3].mask = Mask::kCausal;
  graphs[2].reach = graphs[3].reach = -3;
  graphs[2].guarded = true;
  for (const size_t i : {0U, 3U}) {
    graphs[i].division = Division::kAfter;
    graphs[i].output_bias = true;
  }
  return graphs;
}

Result<Workload> attention_workload(const AttentionGraph& wanted) {
  TRY(WorkloadBinding made, make_workload(attention_graph(wanted)));
  if (made.workload.family != Family::kAttention)
    return fail(Code::kUnsupported,
                "no attention: " + std::string(to_string(made.workload.family)));
  return std::move(made.workload);
}

}  // namespace kiln::testing
