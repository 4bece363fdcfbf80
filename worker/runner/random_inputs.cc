#include "worker/runner/random_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/plan/picked_products.h"

namespace kiln::runner {
namespace {

constexpr int64_t kMaxInputBytes = int64_t{8} << 30;

// splitmix64 (Steele, Lea, Flood 2014): every seed is a good one.
class Random {
 public:
  Random(uint64_t seed, int64_t begin) : state_(seed + static_cast<uint64_t>(begin) * kStep) {}
  uint64_t next() {
    uint64_t z = (state_ += kStep);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Four 16-bit uniforms: variance 4/12 before scaling.
  double normal() {
    const uint64_t bits = next();
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (static_cast<double>(sum) + 2.0 - 131072.0) / 65536.0 * std::sqrt(3.0);
  }
  double positive() { return 0.5 + static_cast<double>(next() >> 11) * 0x1p-53; }
  double near_one() {
    const uint64_t bits = next();
    const double size = 1 + (static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * 0x1p-5;
    return (bits & 1) != 0 ? -size : size;
  }
  double draw(Floats floats) {
    return floats == Floats::kNormal     ? normal()
           : floats == Floats::kPositive ? positive()
                                         : near_one();
  }
  // In [min, max].
  int64_t integer(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(next() % static_cast<uint64_t>(max - min + 1));
  }
  // Element i of so many that rise from min to max. No product is the term of a sum, so that all
  // machines round alike.
  int64_t rising(int64_t min, int64_t max, int64_t i, int64_t count) {
    const double uniform = static_cast<double>(next() >> 11) * 0x1p-53;
    const double x = (static_cast<double>(i) + uniform) / static_cast<double>(count);
    const auto span = static_cast<double>(max - min + 1);
    return std::min(max, min + static_cast<int64_t>(x * (x + 1) * 0.5 * span));
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  uint64_t state_;
};

struct IntegerRange {
  int64_t min = -8, max = 8;
};

bool multiplies_up(const Graph& graph, bool floats) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [floats](const Node& node) {
    const auto* scatter = std::get_if<ScatterAttr>(&node.attr);
    return is_float(node.dtype) == floats &&
           (node.op == Op::kReduceProd || (scatter && scatter->combine == Combine::kMul));
  });
}

bool divides_integers(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return (node.op == Op::kDiv || node.op == Op::kRem) && !is_float(node.dtype);
  });
}

// Narrows the ranges of all integer inputs that `id` is computed from to [0, size).
void narrow(const Graph& graph, NodeId id, int64_t size, std::vector<IntegerRange>& ranges) {
  std::vector<bool> seen(static_cast<size_t>(graph.size()));
  std::vector<NodeId> open{id};
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    const Node& node = graph.node(at);
    if (node.op == Op::kInput) {
      IntegerRange& range = ranges[static_cast<size_t>(std::get<InputAttr>(node.attr).index)];
      range = {0, std::max<int64_t>(0, std::min(range.min == 0 ? range.max : size - 1, size - 1))};
    }
    open.insert(open.end(), node.operands.begin(), node.operands.end());
  }
}

Result<std::vector<IntegerRange>> integer_ranges(const Graph& graph,
                                                 std::span<const int64_t> symbols) {
  const IntegerRange usual = multiplies_up(graph, false) ? IntegerRange{1, 3}
                             : divides_integers(graph)   ? IntegerRange{1, 8}
                                                         : IntegerRange{-8, 8};
  std::vector<IntegerRange> ranges(graph.inputs().size(), usual);
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::kGather && node.op != Op::kScatter) continue;
    TRY(const int64_t size, graph.node(node.operands[0]).shape[0].evaluate(symbols));
    narrow(graph, node.operands[1], size, ranges);
  }
  return ranges;
}

// Whether the input picks matrices.
bool picks(const Graph& graph, NodeId input) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    const auto picked = picked_matrices(graph, node);
    return picked && picked->index == input;
  });
}

// The part of `range` that `dtype` can hold.
IntegerRange narrowed(IntegerRange range, DType dtype) {
  if (dtype == DType::kBool) return {0, 1};
  if (dtype == DType::kU8) range.min = std::max<int64_t>(range.min, 0);
  if (dtype == DType::kI8 || dtype == DType::kU8) range.max = std::min<int64_t>(range.max, 127);
  return range;
}

}  // namespace

std::span<const Floats> ways_to_draw(const Graph& graph) {
  static constexpr std::array kUsual = {Floats::kNormal, Floats::kPositive};
  static constexpr std::array kProducts = {Floats::kNearOne, Floats::kPositive};
  return multiplies_up(graph, true) ? kProducts : kUsual;
}

std::vector<int64_t> measured_symbols(const Graph& graph) {
  return measured_sizes(graph.symbols());
}

std::vector<std::vector<int64_t>> other_symbols(const Graph& graph, bool costly) {
  const std::vector<int64_t> measured = measured_symbols(graph);
  std::vector<std::vector<int64_t>> others;
  const auto add = [&](auto size_of_symbol) {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < measured.size(); ++i) {
      const SymbolRange& range = graph.symbols()[i].range;
      sizes.push_back(std::clamp(size_of_symbol(i), range.min, std::max(range.min, range.max)));
    }
    if (sizes != measured && std::ranges::find(others, sizes) == others.end())
      others.push_back(std::move(sizes));
  };
  add([](size_t) { return int64_t{0}; });
  add([](size_t) { return int64_t{1}; });
  add([&](size_t i) { return std::min<int64_t>(i % 2 == 0 ? 37 : 5, measured[i] + 1); });
  if (!costly) return others;
  add([&](size_t i) { return measured[i] - 1; });
  add([&](size_t i) { return measured[i] + 1; });
  add([&](size_t i) { return i == 0 ? 2 * measured[i] + 3 : measured[i]; });
  return others;
}

Result<std::vector<InputDraw>> input_draws(const Graph& graph, std::span<const int64_t> symbols,
                                           uint64_t seed) {
  TRY(const auto ranges, integer_ranges(graph, symbols));
  std::vector<InputDraw> draws;
  int64_t total = 0;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Node& node = graph.node(graph.inputs()[i]);
    const IntegerRange range = narrowed(ranges[i], node.dtype);
    InputDraw draw{node.dtype, {},        seed + 0x632be59bd9b4e019u * (i + 1),
                   range.min,  range.max, picks(graph, graph.inputs()[i])};
    for (const Dim& dim : node.shape) {
      TRY(const int64_t size, dim.evaluate(symbols));
      draw.sizes.push_back(size);
    }
    TRY(const int64_t bytes, checked_bytes(draw.dtype, draw.sizes));
    if (bytes > kMaxInputBytes - total)
      return fail(Code::kUnavailable, "the workload's inputs are larger than a runner holds");
    total += bytes;
    draws.push_back(std::move(draw));
  }
  return draws;
}

int64_t InputDraw::count() const {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

void draw_elements(const InputDraw& draw, Floats floats, int64_t begin, Tensor& to) {
  Random random(draw.seed, begin);
  for (int64_t i = 0; i < to.numel(); ++i) {
    if (is_float(draw.dtype))
      to.set(i, random.draw(floats));
    else if (draw.rises)
      to.set_int(i, random.rising(draw.min, draw.max, begin + i, draw.count()));
    else
      to.set_int(i, random.integer(draw.min, draw.max));
  }
}

}  // namespace kiln::runner
