#include "compiler_core/kernels/wgmma/operand_maps.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {

bool is_mappable(const AttentionOperand& operand) {
  const auto is_stride = [](const Dim& stride) {
    return is_multiple(stride, 8) && is_at_least(stride, 0);
  };
  return operand.column_stride.is(1) && is_stride(operand.row_stride) &&
         !operand.row_stride.is(0) && is_stride(operand.offset) &&
         std::ranges::all_of(operand.batch_strides, is_stride);
}

TensorMap operand_map(const AttentionOperand& operand, const std::vector<Dim>& batch, DType dtype,
                      const Dim& tokens, int64_t width, int64_t box) {
  TensorMap map;
  map.buffer = operand.input;
  map.offset = operand.offset * 2;
  map.dtype = dtype;
  map.sizes = {width, tokens};
  map.strides = {operand.row_stride * 2};
  map.box = {static_cast<int>(kBoxWidth), static_cast<int>(box)};
  for (size_t axis = batch.size(); axis-- > 0;)
    add_batch_axis(map, batch[axis], operand.batch_strides[axis]);
  finish_map(map);
  return map;
}

std::pair<int, std::string> print_box_place(const AttentionOperand& operand,
                                            const std::vector<Dim>& batch) {
  std::string at = "column, token";
  int rank = 2;
  for (size_t axis = batch.size(); axis-- > 0;) {
    if (operand.batch_strides[axis].is(0)) continue;
    at += ", " + coordinate_text("batch", batch, axis);
    ++rank;
  }
  return {rank, at};
}

std::string print_bring(std::string_view name, const AttentionOperand& operand,
                        const std::vector<Dim>& batch) {
  const auto [rank, at] = print_box_place(operand, batch);
  return fmt::format(
      "  const CUtensorMap* {0};\n"
      "  KILN_MEMBER void bring_{0}(char* to, char* barrier, int token, int column,\n"
      "                           [[maybe_unused]] int batch) const {{\n"
      "    const int at[{1}] = {{{2}}};\n"
      "    copy_box(to, {0}, barrier, at);\n  }}\n",
      name, rank, at);
}

}  // namespace kiln
