// Composites of matrices against values worked out by hand.
#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

TEST(LinearAlgebra, a_kronecker_product_has_a_copy_of_the_second_for_each_of_the_first) {
  expect_values({"aten.kron.default",
                 {kX, kOther},
                 {{kFloat, {2, 2}, {1, 2, 3, 4}}, {kFloat, {2}, {10, 20}}},
                 kFloat,
                 {2, 4}},
                {10, 20, 20, 40, 30, 60, 40, 80});
}

TEST(LinearAlgebra, tensordot_sums_over_pairs_of_axes) {
  const Doubles x = {1, 2, 3, 4, 5, 6, 7, 8};  // [2, 2, 2]
  // out[j] = sum over i, k of x[i, j, k] z[k, i]
  expect_values({"aten.tensordot.default",
                 {kX, kOther, integers("dims_self", {0, -1}), integers("dims_other", {1, 0})},
                 {{kFloat, {2, 2, 2}, x}, {kFloat, {2, 2}, {1, 10, 100, 1000}}},
                 kFloat,
                 {2}},
                {1 * 1 + 2 * 100 + 5 * 10 + 6 * 1000, 3 * 1 + 4 * 100 + 7 * 10 + 8 * 1000});
  expect_values({"aten.inner.default",
                 {kX, kOther},
                 {{kFloat, {2, 2}, {1, 2, 3, 4}}, {kFloat, {2}, {10, 100}}},
                 kFloat,
                 {2}},
                {210, 430});
  EXPECT_FALSE((OneNode{"aten.tensordot.default",
                        {kX, kOther, integers("dims_self", {0}), integers("dims_other", {0})},
                        {{kFloat, {2}, {1, 2}}, {kFloat, {3}, {1, 2, 3}}},
                        kFloat,
                        {}})
                   .run());
}

TEST(LinearAlgebra, a_cross_product_stands_upright_on_both) {
  const Doubles x = {1, 0, 0, 1, 2, 3}, y = {0, 1, 0, 4, 5, 6}, z = {0, 0, 1, -3, 6, -3};
  for (const char* op : {"aten.cross.default", "aten.linalg_cross.default"})
    expect_values({op, {kX, kOther}, {{kFloat, {2, 3}, x}, {kFloat, {2, 3}, y}}, kFloat, {2, 3}},
                  z);
  expect_values({"aten.cross.default",
                 {kX, kOther, integer("dim", 0)},
                 {{kFloat, {3, 1}, {1, 2, 3}}, {kFloat, {3, 1}, {4, 5, 6}}},
                 kFloat,
                 {3, 1}},
                {-3, 6, -3});
  // Of a square either axis will do: the columns of the identity with (1, 2, 3), or its rows.
  const std::vector<OneNode::In> square = {{kFloat, {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}},
                                           {kFloat, {3, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3}}};
  expect_values({"aten.cross.default", {kX, kOther}, square, kFloat, {3, 3}},
                {0, 3, -2, -3, 0, 1, 2, -1, 0});
  expect_values({"aten.linalg_cross.default", {kX, kOther}, square, kFloat, {3, 3}},
                {0, -1, 1, 2, 0, -2, -3, 3, 0});
}

TEST(LinearAlgebra, vecdot_and_diagonals) {
  expect_values({"aten.linalg_vecdot.default",
                 {tensor("x", "x"), tensor("y", "z")},
                 {{kFloat, {2, 2}, {1, 2, 3, 4}}, {kFloat, {2, 2}, {5, 6, 7, 8}}},
                 kFloat,
                 {2}},
                {17, 53});
  expect_values({"aten.linalg_diagonal.default",
                 {tensor("A", "x"), integer("offset", 1)},
                 {{kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}}},
                 kFloat,
                 {2}},
                {2, 6});
}

TEST(LinearAlgebra, a_chain_of_matrices_may_begin_with_a_row_and_end_with_a_column) {
  const std::vector<OneNode::In> operands = {
      {kFloat, {2}, {1, 2}}, {kFloat, {2, 2}, {1, 2, 3, 4}}, {kFloat, {2}, {5, 6}}};
  expect_values({"aten.linalg_multi_dot.default",
                 {tensors("tensors", {"x", "z", "w"})},
                 operands,
                 kFloat,
                 {}},
                {(1 + 6) * 5 + (2 + 8) * 6});
  expect_values({"aten.chain_matmul.default",
                 {tensors("matrices", {"x", "z"})},
                 {{kFloat, {1, 2}, {1, 2}}, {kFloat, {2, 2}, {1, 2, 3, 4}}},
                 kFloat,
                 {1, 2}},
                {7, 10});
  const Doubles fibonacci = {1, 1, 1, 0};
  expect_values(of_one("aten.matrix_power.default", {integer("n", 5)}, {2, 2}, fibonacci, {2, 2}),
                {8, 5, 5, 3});
  expect_values(
      of_one("aten.linalg_matrix_power.default", {integer("n", 0)}, {2, 2}, fibonacci, {2, 2}),
      {1, 0, 0, 1});
  EXPECT_FALSE(
      of_one("aten.matrix_power.default", {integer("n", -1)}, {2, 2}, fibonacci, {2, 2}).run());
}

TEST(LinearAlgebra, blocks_stand_on_the_diagonal) {
  expect_values({"aten.block_diag.default",
                 {tensors("tensors", {"x", "z", "w"})},
                 {{kFloat, {1, 2}, {1, 2}}, {kFloat, {}, {3}}, {kFloat, {2}, {4, 5}}},
                 kFloat,
                 {3, 5}},
                {1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 4, 5});
}

TEST(LinearAlgebra, norms_of_matrices) {
  const Doubles x = {1, -2, 3, -4, 5, -6};  // columns sum to 5, 7, 9, rows to 6, 15
  const auto norm = [&](const std::string& order) {
    return of_one("aten.linalg_matrix_norm.default", {real("ord", order)}, {2, 3}, x, {});
  };
  expect_values(norm("1.0"), {9});
  expect_values(norm("-1.0"), {5});
  expect_values(norm("\"Infinity\""), {15});
  expect_values(norm("\"-Infinity\""), {6});
  EXPECT_FALSE(norm("2.0").run());
  expect_values(of_one("aten.linalg_matrix_norm.str_ord",
                       {text("ord", "fro"), integers("dim", {-1, 0}), flag("keepdim", true)},
                       {2, 3}, x, {1, 1}),
                {std::sqrt(91)});
  EXPECT_FALSE(
      of_one("aten.linalg_matrix_norm.str_ord", {text("ord", "nuc")}, {2, 3}, x, {}).run());
  expect_values(of_one("aten.linalg_norm.default", {}, {2, 3}, x, {}), {std::sqrt(91)});
  expect_values(of_one("aten.linalg_norm.default", {real("ord", "1.0"), integers("dim", {1})},
                       {2, 3}, x, {2}),
                {6, 15});
  expect_values(of_one("aten.linalg_norm.default", {real("ord", "1.0")}, {2, 3}, x, {}), {9});
}

TEST(LinearAlgebra, powers_of_each_element) {
  const std::string x = tensor("x", "x");
  expect_values({"aten.vander.default", {x}, {{kLong, {3}, {1, 2, -3}}}, kLong, {3, 3}},
                {1, 1, 1, 4, 2, 1, 9, -3, 1});
  expect_values({"aten.vander.default",
                 {x, integer("N", 2), flag("increasing", true)},
                 {{kFloat, {2}, {5, 0}}},
                 kFloat,
                 {2, 2}},
                {1, 5, 1, 0});
  expect_values({"aten.linalg_vander.default", {x}, {{kFloat, {1, 2}, {3, 4}}}, kFloat, {1, 2, 2}},
                {1, 3, 1, 4});
}

TEST(LinearAlgebra, covariances_of_rows) {
  // Deviations (-1, 0, 1) and (-2, 2, 0): products 2, 8 and 2.
  const Doubles x = {1, 2, 3, 0, 4, 2};
  expect_values(of_one("aten.cov.default", {}, {2, 3}, x, {2, 2}), {1, 1, 1, 4});
  expect_values(of_one("aten.cov.default", {integer("correction", 0)}, {3}, {1, 2, 3}, {}),
                {2.0 / 3});
  expect_values(of_one("aten.corrcoef.default", {}, {2, 3}, x, {2, 2}), {1, 0.5, 0.5, 1});
}

TEST(LinearAlgebra, an_addend_that_is_scaled_by_nothing_is_not_looked_at) {
  const Doubles nans = {kNan, kNan};
  expect_values({"aten.addmm.default",
                 {kX, tensor("mat1", "z"), tensor("mat2", "w"), integer("beta", 0)},
                 {{kFloat, {2}, nans}, {kFloat, {1, 1}, {3}}, {kFloat, {1, 2}, {1, 2}}},
                 kFloat,
                 {1, 2}},
                {3, 6});
}

TEST(LinearAlgebra, a_norm_of_one_element_is_its_absolute_value) {
  expect_values({"aten.linalg_vector_norm.default",
                 {kX, real("ord", "-41.0"), integers("dim", {1})},
                 {{kFloat, {2, 1}, {-0.01, 3}}},
                 kFloat,
                 {2}},
                {0.01, 3});
}

}  // namespace
}  // namespace kiln
