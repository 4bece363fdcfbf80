// Tensor: a dense row-major host array with its dtype and sizes. Owns 64-byte aligned memory and
// moves cheaply; copies are explicit (clone). One thread at a time may write.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compiler_core/base/dtype.h"

namespace kiln {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. REQUIRES: every size >= 0 and the byte count fits in int64 (see checked_bytes).
  Tensor(DType dtype, std::vector<int64_t> sizes);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t numel() const { return numel_; }
  int64_t byte_size() const { return numel_ * size_of(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::span<uint8_t> bytes() { return {data_.get(), static_cast<size_t>(byte_size())}; }
  std::span<const uint8_t> bytes() const { return {data_.get(), static_cast<size_t>(byte_size())}; }
  // REQUIRES: sizeof(T) is the element size.
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), static_cast<size_t>(numel_)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), static_cast<size_t>(numel_)};
  }

  // Element `index` in row-major order, converted; half types through f32, bool as 0 or 1.
  double get(int64_t index) const;
  void set(int64_t index, double value);
  int64_t get_int(int64_t index) const;  // exact for i64, unlike get
  void set_int(int64_t index, int64_t value);

  Tensor clone() const;

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  DType dtype_ = DType::kF32;
  std::vector<int64_t> sizes_;
  int64_t numel_ = 0;
  std::unique_ptr<uint8_t[], Free> data_;
};

// numel * size_of(dtype), or an error if a size is negative or the product overflows 2^62.
Result<int64_t> checked_bytes(DType dtype, std::span<const int64_t> sizes);

}  // namespace kiln
