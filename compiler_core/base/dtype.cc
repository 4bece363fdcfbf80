#include "compiler_core/base/dtype.h"

#include <array>

namespace kiln {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t size;
};

constexpr std::array<Row, 13> kRows = {{{DType::kF64, "f64", 8},
                                        {DType::kF32, "f32", 4},
                                        {DType::kF16, "f16", 2},
                                        {DType::kBF16, "bf16", 2},
                                        {DType::kF8E4M3, "f8e4m3", 1},
                                        {DType::kF8E5M2, "f8e5m2", 1},
                                        {DType::kI8, "i8", 1},
                                        {DType::kI16, "i16", 2},
                                        {DType::kI32, "i32", 4},
                                        {DType::kI64, "i64", 8},
                                        {DType::kU8, "u8", 1},
                                        {DType::kBool, "bool", 1},
                                        {DType::kF8E8M0, "f8e8m0", 1}}};

const Row& row_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype) - 1];
}

}  // namespace

std::string_view to_string(DType dtype) {
  return row_of(dtype).name;
}

Result<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return fail(Code::kInvalidArgument, "unknown dtype '" + std::string(name.substr(0, 32)) + "'");
}

int64_t size_of(DType dtype) {
  return row_of(dtype).size;
}
bool is_float(DType dtype) {
  return dtype <= DType::kF8E5M2 || dtype == DType::kF8E8M0;
}
bool is_integer(DType dtype) {
  return dtype >= DType::kI8 && dtype <= DType::kU8;
}
bool is_half(DType dtype) {
  return is_float(dtype) && size_of(dtype) <= 2;
}
bool is_f8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}
bool is_8_bit_float(DType dtype) {
  return is_float(dtype) && size_of(dtype) == 1;
}
bool is_16_bit_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}
DType compute_type(DType dtype) {
  return is_half(dtype) ? DType::kF32 : dtype;
}

}  // namespace kiln
