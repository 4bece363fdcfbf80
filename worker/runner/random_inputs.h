// Inputs for a workload, from a seed: the same seed gives the same tensors on every machine.
//   floats    near normal (the sum of four uniforms, variance 1, within 3.47), rounded to the
//             dtype. Where those give NaN (a log, a root), `kPositive` draws from [0.5, 1.5)
//             instead; for long products, where normal numbers give 0, `kNearOne` draws from
//             [63/64, 65/64) with either sign.
//   integers  small, and never 0 in a graph that divides or multiplies up integers; what a gather
//             or scatter reads as an index is in range. One that picks matrices (picked_products.h)
//             never falls: of a mixture's experts each has its rows side by side, the first three
//             times as many as the last
//   bool      a fair coin
// Pure functions.
#pragma once

#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/graph.h"

namespace kiln::runner {

enum class Floats { kNormal, kPositive, kNearOne };  // numbered as in utility.cuh

// The ways to draw floats for `graph`, in order; the first that gives no NaN is used.
std::span<const Floats> ways_to_draw(const Graph& graph);

// The symbol values a workload is measured at: as exported, within their ranges.
std::vector<int64_t> measured_symbols(const Graph& graph);
// Further symbol values at which a kernel has to be right: the least, 1, small odd ones, next to
// the measured ones, and larger ones. The first cost less than the measured ones; `costly` asks for
// the others too. None for a graph without symbols.
std::vector<std::vector<int64_t>> other_symbols(const Graph& graph, bool costly);

// How one input is drawn. Element i is made from word i of splitmix64 with `seed` alone, so a
// device can draw all at once.
struct InputDraw {
  DType dtype = DType::kF32;
  std::vector<int64_t> sizes;
  uint64_t seed = 0;
  int64_t min = 0, max = 0;  // of integers and bool
  bool rises = false;        // integers never fall, from min to max
  int64_t count() const;     // elements
};
// One an input. kUnavailable when they are larger than what a runner holds.
Result<std::vector<InputDraw>> input_draws(const Graph& graph, std::span<const int64_t> symbols,
                                           uint64_t seed);

// Fills `to`, of the draw's dtype, with its elements from number `begin` on, on the host.
void draw_elements(const InputDraw& draw, Floats floats, int64_t begin, Tensor& to);

}  // namespace kiln::runner
