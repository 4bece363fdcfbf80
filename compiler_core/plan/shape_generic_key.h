// ShapeGenericKey: common to workloads that differ only in sizes, so that a schedule tuned at one
// size is the first one tried at the next. Values.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/plan/workload.h"

namespace kiln {

struct ShapeGenericKey {
  // Covers family, ops, dtypes, ranks and how the nodes are connected; equal for equal kernels of
  // different sizes. Operands of commutative ops count in any order, since their canonical order
  // may follow from sizes.
  Digest digest;
  // The sizes that decide how the kernel runs, outermost first: of its outputs, then of what it
  // reduces or multiplies; symbols count with their hints. One length for one digest.
  std::vector<int64_t> sizes;
  bool operator==(const ShapeGenericKey&) const = default;
};
ShapeGenericKey shape_generic_key(const Workload& workload);

// How far apart two lists of sizes are: 0 when equal, 1 for one size twice the other. Infinite when
// they are of different lengths.
double distance(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace kiln
