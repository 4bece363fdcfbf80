#include "compiler_core/kernels/column_reduction/column_extent.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(ColumnExtent, TakesTheLastAxisAsColumnsAndTheOtherKeptOnesAsGroups) {
  const ColumnExtent extent({{2, 31, 5, 3, 70}, 1, 3});
  EXPECT_EQ(extent.groups, 2 * 3);
  EXPECT_EQ(extent.rows, 31 * 5);
  EXPECT_EQ(extent.columns, 70);
  EXPECT_EQ(extent.group_axes, (std::vector<size_t>{0, 3}));
  EXPECT_EQ(extent.reduced_axes, (std::vector<size_t>{1, 2}));
  EXPECT_FALSE(extent.is_reduced(0));
  EXPECT_TRUE(extent.is_reduced(2));
  EXPECT_FALSE(extent.is_reduced(4));
}

TEST(ColumnExtent, OfAMatrixHasOneGroup) {
  const ColumnExtent extent({{128, 96}, 0, 1});
  EXPECT_EQ(extent.groups, 1);
  EXPECT_EQ(extent.rows, 128);
  EXPECT_EQ(extent.columns, 96);
}

}  // namespace
}  // namespace kiln
