#include "compiler_core/frontend/exported_model.h"

namespace kiln {

Result<DType> to_dtype(ScalarTypeCode code) {
  const auto unsupported = [](std::string_view name) {
    return fail(Code::kUnsupported, "dtype " + std::string(name) +
                                        " is not covered; cast to a float, integer or bool dtype");
  };
  switch (code.code) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kI8;
    case 3:
      return DType::kI16;
    case 4:
      return DType::kI32;
    case 5:
      return DType::kI64;
    case 6:
      return DType::kF16;
    case 7:
      return DType::kF32;
    case 8:
      return DType::kF64;
    case 9:
      return unsupported("complex32");
    case 10:
      return unsupported("complex64");
    case 11:
      return unsupported("complex128");
    case 12:
      return DType::kBool;
    case 13:
      return DType::kBF16;
    case 28:
      return unsupported("uint16");
    case 29:
      return DType::kF8E4M3;
    case 30:
      return DType::kF8E5M2;
    case 31:
      return unsupported("float8_e4m3fnuz");
    case 32:
      return unsupported("float8_e5m2fnuz");
    case 33:
      return DType::kF8E8M0;
    default:
      return unsupported("number " + std::to_string(code.code) + " of the export schema");
  }
}

bool is_complex(ScalarTypeCode code) {
  return code.code == 10 || code.code == 11;
}

Result<DType> component_type(ScalarTypeCode code) {
  if (is_complex(code)) return code.code == 10 ? DType::kF32 : DType::kF64;
  return to_dtype(code);
}

}  // namespace kiln
