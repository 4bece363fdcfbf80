// The workloads of kScan, kSort and kScatter in numbers: what their schedules are chosen by and
// code is printed from. Values.
#pragma once

#include <cstdint>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Everywhere: argument positions among the workload's inputs. REQUIRES: the workload keeps the
// rules of its family, its sizes are constants.

struct ScanExtent {
  DType dtype = DType::kF32;
  int64_t outer = 1, size = 1, inner = 1;  // the operand: [outer, size, inner], summed along size
  static ScanExtent of(const Graph& workload);
};

struct SortExtent {
  DType dtype = DType::kF32;
  int64_t rows = 1, size = 1;  // the operand: `rows` rows of `size` elements
  bool descending = false;
  static SortExtent of(const Graph& workload);
};

struct ScatterExtent {
  DType dtype = DType::kF32;
  Combine combine = Combine::kSet;
  int x = 0, index = 1, updates = 2;
  int64_t rows = 1, row = 1;  // the operand: `rows` rows of `row` elements
  int64_t count = 1;          // of updates, each a row
  // Whether the updates of one element meet in f32 and are rounded to the half they become last.
  bool meets_in_f32() const {
    return is_half(dtype) && (combine == Combine::kAdd || combine == Combine::kMul);
  }
  static ScatterExtent of(const Graph& workload);
};

}  // namespace kiln
