// KnownTensor: a small tensor whose elements are known while a model is read: constants, and what is
// computed of sizes, which may be symbolic (Shape -> Gather -> Concat -> Reshape). A plain value.
#pragma once

#include <optional>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

inline constexpr int64_t kMostKnownElements = 4096;

struct KnownTensor {
  DType dtype = DType::kI64;
  std::vector<int64_t> sizes;
  std::vector<Dim> integers;  // row-major, of integer types and bool
  std::vector<double> reals;  // of floating types

  size_t numel() const { return is_float(dtype) ? reals.size() : integers.size(); }
  bool is_symbolic() const;
  Shape shape() const { return {sizes.begin(), sizes.end()}; }
};

KnownTensor known_scalar(DType dtype, const Dim& value);
KnownTensor known_vector(std::vector<Dim> values);  // of i64
// REQUIRES: `tensor` has at most kMostKnownElements.
KnownTensor known_of(const Tensor& tensor);
// REQUIRES: !is_symbolic().
Tensor to_tensor(const KnownTensor& known);

// Whether few nodes make the tensor: it is uniform, its elements rise evenly, or they are few.
bool is_compact(const KnownTensor& known);
// REQUIRES: is_compact().
NodeId node_of(GraphBuilder& b, const KnownTensor& known);

}  // namespace kiln
