// The interpreter's ops that are more than a loop over elements. Values are doubles for float
// dtypes and int64 for integers and bool, row-major. Private to this folder; pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln::oracle {

struct Value {
  std::vector<int64_t> sizes;
  std::vector<double> f;
  std::vector<int64_t> i;
};

int64_t count(std::span<const int64_t> sizes);

// Calls body(begin, end) for parts that together make up [0, count), on several cores when it is
// large.
void for_parts(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

// REQUIRES everywhere: `out` has its sizes and elements; attributes and sizes keep verify()'s
// rules.
void convolution(const ConvolutionAttr& attr, const Value& x, const Value& w, Value& out);
// Computes `batches` products of [m, k] by [k, n] like the obvious loops, but for the order of the
// sums. On several cores when they are large.
void multiply_reals(int64_t batches, int64_t m, int64_t n, int64_t k, const std::vector<double>& a,
                    const std::vector<double>& b, std::vector<double>& out);

// Spatial sizes, always three of them: missing ones in front are 1.
using Sizes = std::array<int64_t, 3>;
struct ConvolutionSizes {
  int64_t images, groups, channels, outputs;  // the latter two of a group
  Sizes in, window, result, stride, dilation, low;
};
// The same of a convolution. REQUIRES: weights are finite: zeros beside x are multiplied too.
void convolve_reals(const ConvolutionSizes& sizes, const std::vector<double>& x,
                    const std::vector<double>& w, std::vector<double>& out);

void scatter(const ScatterAttr& attr, DType dtype, const Value& x, const Value& index,
             const Value& updates, Value& out);
void argsort(const SortAttr& attr, const Value& x, Value& out);
void philox(const PhiloxAttr& attr, int64_t seed, Value& out);

}  // namespace kiln::oracle
