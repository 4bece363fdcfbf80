// When is a kernel's result right? Compared with a reference in higher precision (f32 evaluated in
// f64), an element of a float output is right when
//
//   |got - want| <= r * (|want| + s),   r = 4 u + (256 + 8 sqrt(K)) v
//
//   u  unit roundoff of the coarsest float dtype that the graph rounds to on its way (2^-8 bf16,
//      2^-11 f16, 2^-24 f32, 2^-53 f64): 4 u is two units in the last place
//   v  unit roundoff of the compute type (2^-24, or 2^-53 for f64): functions good to some units in
//      the last place, chained (256), and sums of K terms in any order, whose error grows as
//      sqrt(K) for random data (Higham, Accuracy and Stability of Numerical Algorithms, ch. 4)
//   K  the product of the lengths of all reductions, contractions and scans in the graph
//   s  the root mean square of the finite elements of `want`: what cancellation is measured against
//
// A Cast of 8-bit floats to bf16 counts among u, although it is exact: the tensor cores add products of
// such in 14 bits, of which each 128 are off by less than 4 x 2^-13 of the sum of their magnitudes.
//
// NaN must meet NaN, and an infinity the same infinity. Integers and bool must be equal.
//
// Where that fails, two properties of the graph itself may excuse it. An ill-conditioned graph: the
// same graph evaluated as declared (op.h), or with the half types and sums between two of its
// computations rounded in other places (rounded_elsewhere below), also strays, and `got` strays no
// further than 8 times that. A step (a float comparison, a rounding): 1 in 65,536 elements may fall
// on the other side. A graph that quantises (rounds, or casts floats to integers of 8 bits): besides, 1
// in 4096 elements, and 1 in 256 up to 4, may be neighbours of what is expected, since another order of
// sums crosses the middle between two: integers of 8 bits that differ by 1, floats by s / 4. Pure
// functions.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/graph.h"

namespace kiln::runner {

struct Tolerance {
  double relative = 0;  // r
  bool has_steps = false;
  double scale = -1;  // s; negative: compare() takes it from `want`
  bool quantises = false;
  // How many of `count` elements may be wrong.
  int64_t excused(int64_t count) const { return has_steps ? count / 65536 : 0; }
  int64_t excused_neighbours(int64_t count) const {
    return quantises ? std::min<int64_t>(4, count / 256) + count / 4096 : 0;
  }
};
Tolerance tolerance_of(const Graph& graph, std::span<const int64_t> symbols);
// s of an output of integers.
double integer_scale(const Graph& graph, NodeId output);

struct Difference {
  int64_t count = 0;       // elements that are wrong
  int64_t first = 0;       // the first of them
  int64_t neighbours = 0;  // how many of them are neighbours of what is expected
  // Whether so many of `elements` may be.
  bool is_excused(const Tolerance& tolerance, int64_t elements) const;
};
// Nothing when every element is right. `declared` may be null. REQUIRES: equal dtypes and sizes.
std::optional<Difference> compare(const Tensor& got, const Tensor& want, const Tensor* declared,
                                  const Tolerance& tolerance);

// "element 17 [1,1] is 0.5, expected 0.25" for people.
std::string describe_element(const Tensor& got, const Tensor& want, int64_t index);
// The same of an element of a tensor of `sizes` whose values are the only ones in `got` and `want`.
std::string describe_element(std::span<const int64_t> sizes, int64_t index, const Tensor& got,
                             const Tensor& want);

// Whether `graph` computes with a value that it has rounded to f16 or bf16, or with a sum of f32:
// kernels may round those in other places.
bool rounds_inside(const Graph& graph);

// A graph of the same inputs and outputs that rounds in other places, as kernels do: one keeps in
// f32 the values between two of its computations, another rounds a multiple of them (attention
// rounds its weights before it divides by their sum), or rounds each step of a sum of f32. Values
// of f16 and bf16 are not rounded, or are rounded as one of two multiples of themselves; sums are
// off by a rounding of each of their terms (2^-24 of the sum of magnitudes). Each element of an
// output is the one of those three that strays furthest from `graph`'s own. The builder's error for
// a graph that was never verified.
Result<Graph> rounded_elsewhere(const Graph& graph);

}  // namespace kiln::runner
