#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"

#include <cstdlib>
#include <numeric>

namespace kiln {
namespace {

// Contiguous if there is such an axis; else neighbouring threads read what lies nearest.
bool reads_along_depth(const MatmulLines& x) {
  if (x.depth_stride == 1 || x.line_stride == 1) return x.depth_stride == 1;
  if (x.line_stride == 0 || x.depth_stride == 0) return x.line_stride == 0;
  return std::abs(x.depth_stride) <= std::abs(x.line_stride);
}

// `x` has the sizes and strides of `operand`; the rest is decided here.
MatmulLines with_access(MatmulLines x, const MatmulOperand& operand, int64_t element_bytes) {
  if (x.lines == 1) x.line_stride = 0;
  if (x.depth == 1) x.depth_stride = 0;
  x.depth_inner = reads_along_depth(x);
  if ((x.depth_inner ? x.depth_stride : x.line_stride) != 1) return x;
  int64_t common = std::gcd(operand.offset, 16 / element_bytes);
  common = std::gcd(common, x.depth_inner ? x.line_stride : x.depth_stride);
  for (const int64_t stride : operand.batch_strides) common = std::gcd(common, stride);
  x.async = common * element_bytes == 16;
  x.piece = std::gcd(common, x.depth_inner ? x.depth : x.lines);
  return x;
}

}  // namespace

MatmulLines matmul_rows_of_a(const MatmulProblem& problem) {
  const MatmulOperand& a = problem.a;
  return with_access({problem.m, problem.k, a.row_stride, a.column_stride}, a,
                     size_of(problem.stored));
}

MatmulLines matmul_columns_of_b(const MatmulProblem& problem) {
  const MatmulOperand& b = problem.b;
  return with_access({problem.n, problem.k, b.column_stride, b.row_stride}, b,
                     size_of(problem.stored));
}

bool has_open_rows_alone(const SizedMatmul& x) {
  if (!x.n.is_constant() || !x.k.is_constant()) return false;
  for (const Dim* stride :
       {&x.a.row_stride, &x.a.column_stride, &x.b.row_stride, &x.b.column_stride})
    if (!stride->is_constant()) return false;
  return x.m.is_constant() || x.a.column_stride.is(1);
}

}  // namespace kiln
