#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"

#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

// [m, k] times [k, n] in bf16, operands where the test puts them.
MatmulProblem problem() {
  MatmulProblem made;
  made.stored = DType::kBF16;
  made.m = 128, made.n = 256, made.k = 64;
  made.a.row_stride = 64, made.a.column_stride = 1;
  made.b.row_stride = 256, made.b.column_stride = 1;
  return made;
}

TEST(MatmulLines, ChunksLieAlongTheContiguousAxis) {
  const MatmulLines a = matmul_rows_of_a(problem()), b = matmul_columns_of_b(problem());
  EXPECT_TRUE(a.depth_inner);
  EXPECT_FALSE(b.depth_inner);
  EXPECT_EQ(a.lines, 128);
  EXPECT_EQ(b.lines, 256);
  EXPECT_EQ(b.depth_stride, 256);
  EXPECT_TRUE(a.async && b.async);
}

TEST(MatmulLines, AnythingThatMovesAChunkOffSixteenBytesForbidsAsynchronousCopies) {
  MatmulProblem offset = problem(), stride = problem(), batch = problem();
  offset.a.offset = 4;
  stride.a.row_stride = 66;
  batch.a.batch_strides = {8192, 1};
  EXPECT_FALSE(matmul_rows_of_a(offset).async);
  EXPECT_EQ(matmul_rows_of_a(offset).piece, 4);
  EXPECT_FALSE(matmul_rows_of_a(stride).async);
  EXPECT_EQ(matmul_rows_of_a(stride).piece, 2);
  EXPECT_FALSE(matmul_rows_of_a(batch).async);
  EXPECT_EQ(matmul_rows_of_a(batch).piece, 1);
}

// A copy reads the part of a chunk that exists; a piece is there or not.
TEST(MatmulLines, PiecesDoNotReachPastAnEnd) {
  MatmulProblem odd = problem();
  odd.k = 63;
  EXPECT_TRUE(matmul_rows_of_a(odd).async);
  odd.a.offset = 2;
  EXPECT_EQ(matmul_rows_of_a(odd).piece, 1);
}

TEST(MatmulLines, StridedOperandsAreReadAlongTheirNearestElements) {
  MatmulProblem strided = problem();
  strided.a.row_stride = -2, strided.a.column_stride = 300;
  EXPECT_FALSE(matmul_rows_of_a(strided).depth_inner);
  EXPECT_FALSE(matmul_rows_of_a(strided).async);
  strided.m = 1;  // a single row has no stride
  EXPECT_TRUE(matmul_rows_of_a(strided).depth_inner);
  EXPECT_EQ(matmul_rows_of_a(strided).line_stride, 0);
}

// A size that comes at run time is known only by what divides it.
TEST(MatmulLines, SizesWithSymbolsCountAsWhatDividesThem) {
  const Dim s0 = Dim::symbol(0);
  SizedMatmul open;
  open.stored = DType::kBF16;
  open.m = s0, open.n = 256, open.k = s0 * 8;
  open.a.row_stride = s0 * 8, open.a.column_stride = 1;
  open.b.row_stride = 256, open.b.column_stride = 1;
  EXPECT_TRUE(matmul_rows_of_a(open).async);
  open.a.row_stride = s0 * 2;
  EXPECT_FALSE(matmul_rows_of_a(open).async);
  EXPECT_EQ(matmul_rows_of_a(open).piece, 2);
  open.a.column_stride = s0, open.a.row_stride = 300;  // rows lie nearer than what is unknown
  EXPECT_FALSE(matmul_rows_of_a(open).depth_inner);
}

// Shared memory for two blocks of 97 KiB is there on an H100, not on sm_86.
TEST(MatmulLines, BlocksAnSmAreBoundedByTheTargetsLimits) {
  const CudaMatmulSchedule schedule{128, 128, 64, 2, 2, 3, 1, 8};
  const ProductReads reads = ProductReads::of(problem());
  const auto blocks = [&](const char* target) {
    return schedule.blocks_an_sm(problem(), reads, cuda_limits(*Target::parse(target)));
  };
  EXPECT_EQ(blocks("cuda:sm_90a"), 2);
  EXPECT_EQ(blocks("cuda:sm_86"), 1);
}

}  // namespace
}  // namespace kiln
