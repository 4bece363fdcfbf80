#include "compiler_core/base/tensor.h"

#include <cstdlib>
#include <cstring>

#include "compiler_core/base/check.h"
#include "compiler_core/base/half.h"

namespace kiln {

void Tensor::Free::operator()(uint8_t* p) const {
  std::free(p);
}

Tensor::Tensor(DType dtype, std::vector<int64_t> sizes) : dtype_(dtype), sizes_(std::move(sizes)) {
  const auto bytes = checked_bytes(dtype_, sizes_);
  CHECK(bytes.has_value(), "the caller checked the size");
  numel_ = *bytes / size_of(dtype_);
  // Rounded up so that a whole vector may be read at the end.
  const size_t reserved = (static_cast<size_t>(*bytes) + 127) / 64 * 64;
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, reserved)));
  CHECK(data_ != nullptr, "out of memory");
  std::memset(data_.get(), 0, reserved);
}

double Tensor::get(int64_t i) const {
  switch (dtype_) {
    case DType::kF64:
      return as<double>()[i];
    case DType::kF32:
      return as<float>()[i];
    case DType::kF16:
      return f16_to_f32(as<uint16_t>()[i]);
    case DType::kBF16:
      return bf16_to_f32(as<uint16_t>()[i]);
    case DType::kF8E4M3:
      return f8e4m3_to_f32(as<uint8_t>()[i]);
    case DType::kF8E5M2:
      return f8e5m2_to_f32(as<uint8_t>()[i]);
    case DType::kF8E8M0:
      return f8e8m0_to_f32(as<uint8_t>()[i]);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kBool:
      return static_cast<double>(get_int(i));
  }
  return 0;
}

void Tensor::set(int64_t i, double v) {
  switch (dtype_) {
    case DType::kF64:
      as<double>()[i] = v;
      return;
    case DType::kF32:
      as<float>()[i] = static_cast<float>(v);
      return;
    case DType::kF16:
      as<uint16_t>()[i] = f32_to_f16(static_cast<float>(v));
      return;
    case DType::kBF16:
      as<uint16_t>()[i] = f32_to_bf16(static_cast<float>(v));
      return;
    case DType::kF8E4M3:
      as<uint8_t>()[i] = f32_to_f8e4m3(static_cast<float>(v));
      return;
    case DType::kF8E5M2:
      as<uint8_t>()[i] = f32_to_f8e5m2(static_cast<float>(v));
      return;
    case DType::kF8E8M0:
      as<uint8_t>()[i] = f32_to_f8e8m0(static_cast<float>(v));
      return;
    case DType::kBool:
      as<uint8_t>()[i] = v != 0;
      return;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      set_int(i, static_cast<int64_t>(v));
      return;
  }
}

int64_t Tensor::get_int(int64_t i) const {
  switch (dtype_) {
    case DType::kI8:
      return as<int8_t>()[i];
    case DType::kI16:
      return as<int16_t>()[i];
    case DType::kI32:
      return as<int32_t>()[i];
    case DType::kI64:
      return as<int64_t>()[i];
    case DType::kU8:
      return as<uint8_t>()[i];
    case DType::kBool:
      return as<uint8_t>()[i] != 0;
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
      return static_cast<int64_t>(get(i));
  }
  return 0;
}

void Tensor::set_int(int64_t i, int64_t v) {
  switch (dtype_) {
    case DType::kI8:
      as<int8_t>()[i] = static_cast<int8_t>(v);
      return;
    case DType::kI16:
      as<int16_t>()[i] = static_cast<int16_t>(v);
      return;
    case DType::kI32:
      as<int32_t>()[i] = static_cast<int32_t>(v);
      return;
    case DType::kI64:
      as<int64_t>()[i] = v;
      return;
    case DType::kU8:
      as<uint8_t>()[i] = static_cast<uint8_t>(v);
      return;
    case DType::kBool:
      as<uint8_t>()[i] = v != 0;
      return;
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
      set(i, static_cast<double>(v));
      return;
  }
}

Tensor Tensor::clone() const {
  if (!data_) return {};
  Tensor copy(dtype_, sizes_);
  std::memcpy(copy.data(), data(), static_cast<size_t>(byte_size()));
  return copy;
}

Result<int64_t> checked_bytes(DType dtype, std::span<const int64_t> sizes) {
  int64_t total = size_of(dtype);
  for (int64_t size : sizes) {
    if (size < 0) return fail(Code::kInvalidArgument, "a size is negative");
    if (__builtin_mul_overflow(total, size, &total) || total > int64_t{1} << 62)
      return fail(Code::kInvalidArgument, "the product of the sizes overflows");
  }
  return total;
}

}  // namespace kiln
