// MatmulLines: how a matmul kernel on CUDA reads an operand from memory. A value.
#pragma once

#include "compiler_core/kernels/matmul/matmul_problem.h"

namespace kiln {

// An operand seen as [lines, depth]: the rows of a, the columns of b; of words of 4 bits 8 columns of b,
// whose bytes follow one another. It is read in chunks of 16
// bytes along its inner axis.
struct MatmulLines {
  Dim lines = 1, depth = 1;
  Dim line_stride = 0, depth_stride = 0;  // elements; 0 along an axis of size 1
  bool depth_inner = true;                // chunks lie along the depth; else along the lines
  bool async = false;  // chunks are contiguous and aligned: copied past the registers
  int64_t piece = 1;   // else so many elements are, and exist together
};
// With symbols, what holds for all their values.
template <class Size>
MatmulLines matmul_rows_of_a(const MatmulProblemOf<Size>& problem);
template <class Size>
MatmulLines matmul_columns_of_b(const MatmulProblemOf<Size>& problem);

// Whether symbols are in the number of rows and matrices alone, and rows lie one behind the other:
// such rows are counted, all else of the operands is constant in the kernel.
bool has_open_rows_alone(const SizedMatmul& problem);

}  // namespace kiln
