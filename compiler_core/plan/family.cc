// The names of the families, beside workload.cc: records of tuning are read and written with these
// alone.
#include "compiler_core/plan/workload.h"

namespace kiln {

std::string_view to_string(Family family) {
  switch (family) {
    case Family::kPointwise:
      return "pointwise";
    case Family::kRowReduction:
      return "row_reduction";
    case Family::kColumnReduction:
      return "column_reduction";
    case Family::kMatmul:
      return "matmul";
    case Family::kScan:
      return "scan";
    case Family::kSort:
      return "sort";
    case Family::kScatter:
      return "scatter";
    case Family::kConvolution:
      return "convolution";
    case Family::kAttention:
      return "attention";
    case Family::kAttentionGradient:
      return "attention_gradient";
    case Family::kCustom:
      return "custom";
    case Family::kProducts:
      return "products";
    case Family::kRowUpdate:
      return "row_update";
  }
  return "unknown";
}

Result<Family> parse_family(std::string_view name) {
  for (const Family family :
       {Family::kPointwise, Family::kRowReduction, Family::kColumnReduction, Family::kMatmul,
        Family::kScan, Family::kSort, Family::kScatter, Family::kConvolution, Family::kAttention,
        Family::kAttentionGradient, Family::kCustom, Family::kProducts, Family::kRowUpdate})
    if (to_string(family) == name) return family;
  return fail(Code::kInvalidArgument, "unknown family '" + std::string(name.substr(0, 32)) + "'");
}

}  // namespace kiln
