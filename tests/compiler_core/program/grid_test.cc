#include "compiler_core/program/grid.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Dim kRows = Dim::symbol(0), kColumns = Dim::symbol(1);

TEST(Grid, ANumberIsAGrid) {
  const Grid grid = 12;
  ASSERT_TRUE(grid.is_constant());
  EXPECT_EQ(grid.constant(), 12);
  EXPECT_EQ(*grid.blocks({}), 12);
  EXPECT_EQ(*Grid().blocks({}), 0);
}

TEST(Grid, CountsTheBlocksOfEveryAxisRoundedUp) {
  const Grid grid({{kRows, 4}, {kColumns * 2, 64}, {10, 3}});
  ASSERT_FALSE(grid.is_constant());
  const auto blocks = [&grid](int64_t rows, int64_t columns) {
    return *grid.blocks(std::vector<int64_t>{rows, columns});
  };
  EXPECT_EQ(blocks(8, 32), 2 * 1 * 4);
  EXPECT_EQ(blocks(9, 33), 3 * 2 * 4);
  EXPECT_EQ(blocks(0, 33), 0);
}

TEST(Grid, SoManyBlocksWhereThereIsAnything) {
  const Grid grid = Grid::of_any(132, kRows * kColumns);
  EXPECT_EQ(*grid.blocks(std::vector<int64_t>{1, 1}), 132);
  EXPECT_EQ(*grid.blocks(std::vector<int64_t>{1 << 20, 1 << 20}), 132);
  EXPECT_EQ(*grid.blocks(std::vector<int64_t>{0, 5}), 0);
  EXPECT_EQ(Grid::of_any(7, 100), Grid(7));
}

TEST(Grid, EqualConstantsAreEqual) {
  EXPECT_EQ(Grid({{8, 2}, {9, 3}}), Grid(12));
  EXPECT_EQ(Grid({{kRows, 4}, {8, 2}}), Grid({{8, 2}, {kRows, 4}}));
  EXPECT_NE(Grid({{kRows, 4}}), Grid({{kRows, 2}}));
}

TEST(Grid, WhatCannotBeCountedIsAnError) {
  const Grid grid({{kRows, 1}, {kRows, 1}});
  const auto refused = [&grid](const std::vector<int64_t>& symbols) {
    const Result<int64_t> blocks = grid.blocks(symbols);
    return !blocks && blocks.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused({int64_t{1} << 32})) << "overflows";
  EXPECT_TRUE(refused({})) << "not bound";
  EXPECT_TRUE(refused({-1})) << "negative";
  const Grid constant({{INT64_MAX, 1}, {INT64_MAX, 1}});
  EXPECT_FALSE(constant.is_constant());
  EXPECT_FALSE(constant.blocks({}));
}

}  // namespace
}  // namespace kiln
