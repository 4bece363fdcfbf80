// The workloads of kScan, kSort and kScatter in numbers: what their schedules are chosen by and
// code is printed from; a Sized one is that of a workload whose sizes may have symbols. Values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Everywhere: argument positions among the workload's inputs. REQUIRES: the workload keeps the
// rules of its family; for a Size of int64_t, its sizes are constants.

template <class Size>
Size size_of_dim(const Dim& dim) {
  if constexpr (std::is_same_v<Size, Dim>)
    return dim;
  else
    return dim.constant();
}

template <class Size>
struct ScanExtentOf {
  DType dtype = DType::kF32;
  Size outer = 1, size = 1, inner = 1;  // the operand: [outer, size, inner], summed along size
  static ScanExtentOf of(const Graph& workload);
};
using ScanExtent = ScanExtentOf<int64_t>;
using SizedScan = ScanExtentOf<Dim>;

template <class Size>
struct SortExtentOf {
  DType dtype = DType::kF32;
  Size rows = 1, size = 1;  // the operand: `rows` rows of `size` elements
  bool descending = false;
  static SortExtentOf of(const Graph& workload);
};
using SortExtent = SortExtentOf<int64_t>;
using SizedSort = SortExtentOf<Dim>;

template <class Size>
struct ScatterExtentOf {
  DType dtype = DType::kF32;
  Combine combine = Combine::kSet;
  int x = 0, index = 1, updates = 2;
  Size rows = 1, row = 1;  // the operand: `rows` rows of `row` elements
  Size count = 1;          // of updates, each a row
  // Whether the updates of one element meet in f32 and are rounded to the half they become last.
  bool meets_in_f32() const {
    return is_half(dtype) && (combine == Combine::kAdd || combine == Combine::kMul);
  }
  static ScatterExtentOf of(const Graph& workload);
};
using ScatterExtent = ScatterExtentOf<int64_t>;
using SizedScatter = ScatterExtentOf<Dim>;

}  // namespace kiln
