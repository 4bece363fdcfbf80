// DType: the element types a tensor can have, with PyTorch's meaning.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

// Persisted and sent over the wire; never renumbered.
enum class DType : uint8_t {
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kF8E4M3 = 5,
  kF8E5M2 = 6,
  kI8 = 7,
  kI16 = 8,
  kI32 = 9,
  kI64 = 10,
  kU8 = 11,
  kBool = 12,
  kF8E8M0 = 13,  // 2^(bits - 127) without a sign, or NaN: scales of blocks (half.h)
};

std::string_view to_string(DType dtype);           // "f32", "bf16", "i64", "bool", ...
Result<DType> parse_dtype(std::string_view name);  // the inverse
int64_t size_of(DType dtype);                      // bytes an element
bool is_float(DType dtype);
bool is_integer(DType dtype);  // i8..i64, u8; bool is not
// f16, bf16 and the f8 types: computed and accumulated in f32.
bool is_half(DType dtype);
bool is_f8(DType dtype);            // e4m3 and e5m2, which products take
bool is_8_bit_float(DType dtype);   // these and e8m0
bool is_16_bit_float(DType dtype);  // f16, bf16
// f32 for the half types, the type itself otherwise.
DType compute_type(DType dtype);

}  // namespace kiln
