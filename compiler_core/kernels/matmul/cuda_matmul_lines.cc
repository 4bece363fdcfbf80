#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"

#include <cstdlib>

#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Whether elements along `x` lie no farther apart than along `y`. A stride with symbols counts as
// long.
bool is_nearer(const Dim& x, const Dim& y) {
  if (x.is_constant() && y.is_constant()) return std::abs(x.constant()) <= std::abs(y.constant());
  if (x.is_constant() != y.is_constant()) return x.is_constant();
  return known_divisor(x) <= known_divisor(y);
}

// Contiguous if there is such an axis; else neighbouring threads read what lies nearest.
bool reads_along_depth(const MatmulLines& x) {
  if (x.depth_stride.is(1) || x.line_stride.is(1)) return x.depth_stride.is(1);
  if (x.line_stride.is(0) || x.depth_stride.is(0)) return x.line_stride.is(0);
  return is_nearer(x.depth_stride, x.line_stride);
}

// `x` has the sizes and strides of `operand`; the rest is decided here.
template <class Size>
MatmulLines with_access(MatmulLines x, const MatmulOperandOf<Size>& operand, DType stored) {
  if (x.lines.is(1)) x.line_stride = 0;
  if (x.depth.is(1)) x.depth_stride = 0;
  x.depth_inner = reads_along_depth(x);
  if (!(x.depth_inner ? x.depth_stride : x.line_stride).is(1)) return x;
  const int64_t chunk = 16 / size_of(stored);
  int64_t common = known_divisor(operand.offset, chunk);
  common = known_divisor(x.depth_inner ? x.line_stride : x.depth_stride, common);
  for (const Size& stride : operand.batch_strides) common = known_divisor(stride, common);
  x.async = common == chunk;
  x.piece = known_divisor(x.depth_inner ? x.depth : x.lines, common);
  return x;
}

}  // namespace

template <class Size>
MatmulLines matmul_rows_of_a(const MatmulProblemOf<Size>& problem) {
  const auto& a = problem.a;
  return with_access({problem.m, problem.k, a.row_stride, a.column_stride}, a, problem.stored);
}

template <class Size>
MatmulLines matmul_columns_of_b(const MatmulProblemOf<Size>& problem) {
  const auto& b = problem.b;
  const DType stored = problem.narrow.value_or(problem.stored);
  Dim lines = problem.n, depth = problem.k;
  if (problem.word_depth > 0) {
    lines = lines.constant() / 8;
    depth = b.column_stride;
  } else if (problem.in_byte > 1) {
    depth = depth.constant() / problem.in_byte;
  }
  return with_access({lines, depth, b.column_stride, b.row_stride}, b, stored);
}

template MatmulLines matmul_rows_of_a(const MatmulProblem&);
template MatmulLines matmul_rows_of_a(const SizedMatmul&);
template MatmulLines matmul_columns_of_b(const MatmulProblem&);
template MatmulLines matmul_columns_of_b(const SizedMatmul&);

bool has_open_rows_alone(const SizedMatmul& x) {
  if (!x.n.is_constant() || !x.k.is_constant()) return false;
  for (const Dim* stride :
       {&x.a.row_stride, &x.a.column_stride, &x.b.row_stride, &x.b.column_stride})
    if (!stride->is_constant()) return false;
  return x.m.is_constant() || x.a.column_stride.is(1);
}

}  // namespace kiln
