#include "compiler_core/kernels/scatter/scatter_text.h"

namespace kiln {

std::string_view combination(Combine combine) {
  switch (combine) {
    case Combine::kSet:
      return "Replace";
    case Combine::kAdd:
      return "Plus";
    case Combine::kMul:
      return "Times";
    case Combine::kMax:
      return "Greater";
    case Combine::kMin:
      return "Less";
  }
  return "";
}

}  // namespace kiln
