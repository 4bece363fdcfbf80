// What the interpreter computes for the ops that are more than a loop over elements. Values are
// doubles for float dtypes and int64 for integers and bool, row-major. Private to this folder;
// pure.
#pragma once

#include <cstdint>
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

// REQUIRES everywhere: `out` has its sizes and elements; attributes and sizes keep verify()'s
// rules.
void convolution(const ConvolutionAttr& attr, const Value& x, const Value& w, Value& out);
void scatter(const ScatterAttr& attr, DType dtype, const Value& x, const Value& index,
             const Value& updates, Value& out);
void argsort(const SortAttr& attr, const Value& x, Value& out);
void philox(const PhiloxAttr& attr, int64_t seed, Value& out);

}  // namespace kiln::oracle
