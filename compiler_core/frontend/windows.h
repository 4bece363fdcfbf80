// Windows that slide over the last axes of a tensor, as pooling reduces them: one View of the
// padded operand, whose window axes are reduced.
#pragma once

#include <vector>

#include "compiler_core/frontend/decompositions.h"

namespace kiln {

// How windows slide over the last axes of a tensor; one entry for each of them.
struct Windows {
  std::vector<int64_t> size, stride, dilation, padding;
  Shape in, out;
  // Zeros or identities that the windows reach behind the operand.
  Dim behind(size_t i) const {
    return (out[i] - Dim(1)) * Dim(stride[i]) + Dim(dilation[i] * (size[i] - 1) + 1) - in[i] -
           Dim(padding[i]);
  }
  size_t axes() const { return size.size(); }
};

// Reads kernel_size, stride, dilation, padding and ceil_mode of a call over the last `axes` axes of
// `shape`. What does not fit fails the call.
Windows read_windows(Call& c, const Shape& shape, size_t axes);

// x [lead..., in...], with `outside` beyond its edges, as [lead..., out..., size...].
NodeId windows_of(GraphBuilder& b, NodeId x, const Windows& w, ConstantAttr outside);

// Reduces the result of windows_of() over its window axes: [lead..., out...].
NodeId max_of_windows(GraphBuilder& b, NodeId windows, const Windows& w);

// The place in its plane of each window's maximum, as i64: of several the first, a NaN first of
// all.
NodeId places_of_maxima(GraphBuilder& b, NodeId windows, NodeId maxima, const Windows& w);

// x [lead..., in...] reduced to [lead..., out...].
NodeId reduce_windows(GraphBuilder& b, Op op, NodeId x, const Windows& w, ConstantAttr outside);

// The identity of max.
ConstantAttr least(DType type);

}  // namespace kiln
