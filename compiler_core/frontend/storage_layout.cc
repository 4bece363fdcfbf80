#include "compiler_core/frontend/storage_layout.h"

#include <cstring>

namespace kiln {

bool is_row_major(const Shape& shape, const std::vector<Dim>& strides) {
  const std::vector<Dim> dense = contiguous_strides(shape);
  for (size_t k = 0; k < shape.size(); ++k)
    if (!shape[k].is(1) && strides[k] != dense[k]) return false;
  return true;
}

Result<Tensor> to_storage(const Tensor& logical, const ExportedInput& input) {
  if (is_row_major(input.shape, input.strides)) return logical.clone();
  int64_t extent = 1;
  std::vector<int64_t> strides;
  for (size_t k = 0; k < input.strides.size(); ++k) {
    if (!input.strides[k].is_constant())
      return fail(Code::kUnsupported, "input '" + input.name + "' has dynamic strides");
    strides.push_back(input.strides[k].constant());
    extent += (logical.sizes()[k] - 1) * strides[k];
  }
  if (logical.numel() == 0) extent = 0;
  TRY_STATUS(checked_bytes(input.dtype, std::span(&extent, 1)).map([](int64_t) {}));
  Tensor storage(input.dtype, {extent});
  const size_t size = static_cast<size_t>(size_of(input.dtype));
  const std::vector<int64_t>& sizes = logical.sizes();
  for (int64_t from = 0; from < logical.numel(); ++from) {
    int64_t to = 0, rest = from;
    for (size_t k = sizes.size(); k-- > 0; rest /= sizes[k]) to += rest % sizes[k] * strides[k];
    std::memcpy(storage.bytes().data() + static_cast<size_t>(to) * size,
                logical.bytes().data() + static_cast<size_t>(from) * size, size);
  }
  return storage;
}

}  // namespace kiln
