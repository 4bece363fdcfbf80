// What nn modules and torch functions call and ATen itself composes of other ops.
#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

// One unit with weights of x, of h and biases; gate g of it is then this sum.
constexpr double kOfX[] = {0.5, -1, 2, 0.25}, kOfH[] = {1, 0.75, -0.5, 3}, kBias[] = {0, 1, -1, 2};
constexpr double kXIn = 0.5, kHIn = -0.25;
double gate(int g) {
  return kOfX[g] * kXIn + kOfH[g] * kHIn + kBias[g];
}
double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

Doubles first(const double (&values)[4], int count) {
  return {values, values + count};
}
// A cell of `gates` gates without the second bias; its states are all kHIn.
Result<std::vector<Tensor>> run_cell(const std::string& op, int gates, bool lstm) {
  ModelText model;
  model.input("x", kDouble, {1, 1})
      .input("h", kDouble, {1, 1})
      .input("wi", kDouble, {gates, 1})
      .input("wh", kDouble, {gates, 1})
      .input("b", kDouble, {gates})
      .declare("y", kDouble, {"1", "1"})
      .declare("c", kDouble, {"1", "1"})
      .raw_node(op,
                {tensor("input", "x"), lstm ? tensors("hx", {"h", "h"}) : tensor("hx", "h"),
                 tensor("w_ih", "wi"), tensor("w_hh", "wh"), tensor("b_ih", "b"), none("b_hh")},
                lstm ? R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"c"}}])"
                     : R"([{"as_tensor":{"name":"y"}}])")
      .output("y");
  if (lstm) model.output("c");
  TRY(const ExportedProgram program, lower(model.json()));
  const Tensor inputs[] = {make_tensor(DType::kF64, {1, 1}, Doubles{kXIn}),
                           make_tensor(DType::kF64, {1, 1}, Doubles{kHIn}),
                           make_tensor(DType::kF64, {gates, 1}, first(kOfX, gates)),
                           make_tensor(DType::kF64, {gates, 1}, first(kOfH, gates)),
                           make_tensor(DType::kF64, {gates}, first(kBias, gates))};
  std::vector<const Tensor*> pointers;
  for (const Tensor& each : inputs) pointers.push_back(&each);
  return interpret(program.graph, pointers);
}

TEST(Cells, are_one_step_of_their_layers) {
  const auto lstm = run_cell("aten.lstm_cell.default", 4, true);
  ASSERT_TRUE(lstm) << lstm.error().message;
  const double c = logistic(gate(1)) * kHIn + logistic(gate(0)) * std::tanh(gate(2));
  EXPECT_NEAR((*lstm)[1].get(0), c, 1e-12);
  EXPECT_NEAR((*lstm)[0].get(0), logistic(gate(3)) * std::tanh(c), 1e-12);
  const auto gru = run_cell("aten.gru_cell.default", 3, false);
  ASSERT_TRUE(gru) << gru.error().message;
  const double r = logistic(gate(0)), z = logistic(gate(1));
  const double n = std::tanh(kOfX[2] * kXIn + kBias[2] + r * kOfH[2] * kHIn);
  EXPECT_NEAR((*gru)[0].get(0), (1 - z) * n + z * kHIn, 1e-12);
  const auto tanh = run_cell("aten.rnn_tanh_cell.default", 1, false);
  ASSERT_TRUE(tanh) << tanh.error().message;
  EXPECT_NEAR((*tanh)[0].get(0), std::tanh(gate(0)), 1e-12);
  const auto relu = run_cell("aten.rnn_relu_cell.default", 2, false);
  ASSERT_FALSE(relu) << "the weights have two gates";
}

TEST(WeightNorm, gives_every_row_its_norm) {
  const OneNode::In v = {kFloat, {2, 2}, {3, 4, 0, -2}};
  const std::string name = tensor("v", "x"), g = tensor("g", "z");
  expect_values(
      {"aten._weight_norm.default", {name, g}, {v, {kFloat, {2, 1}, {10, 1}}}, kFloat, {2, 2}},
      {6, 8, 0, -1});
  expect_values({"aten._weight_norm_interface.default",
                 {name, g, integer("dim", 1)},
                 {v, {kFloat, {1, 2}, {3, std::sqrt(20)}}},
                 kFloat,
                 {2, 2}},
                {3, 4, 0, -2});
  expect_values({"aten.norm_except_dim.default",
                 {name, integer("pow", 2), integer("dim", -1)},
                 {v},
                 kFloat,
                 {}},
                {std::sqrt(29)});
}

TEST(Losses, multi_margin_counts_what_comes_near_the_right_class) {
  // Margins against class 2: 0.5 and 2; against class 0: 0.25 and 0.
  const std::vector<OneNode::In> in = {{kFloat, {2, 3}, {0.5, 2, 1, 1, 0.25, -1}},
                                       {kLong, {2}, {2, 0}}};
  const std::vector<std::string> arguments = {kX, tensor("target", "z")};
  expect_values({"aten.multi_margin_loss.default", arguments, in, kFloat, {}},
                {(2.5 / 3 + 0.25 / 3) / 2});
  std::vector<std::string> squared = arguments;
  squared.insert(squared.end(), {integer("p", 2), integer("reduction", 0)});
  expect_values({"aten.multi_margin_loss.default", squared, in, kFloat, {2}},
                {4.25 / 3, 0.0625 / 3});
  std::vector<std::string> weighted = arguments;
  weighted.insert(weighted.end(), {tensor("weight", "w"), integer("reduction", 2)});
  std::vector<OneNode::In> with_weight = in;
  with_weight.push_back({kFloat, {3}, {10, 100, 1000}});
  expect_values({"aten.multi_margin_loss.default", weighted, with_weight, kFloat, {}},
                {2500.0 / 3 + 2.5 / 3});
}

TEST(Creation, logspace_is_even_in_the_exponent) {
  expect_values({"aten.logspace.default",
                 {integer("start", -1), integer("end", 2), integer("steps", 4)},
                 {{kFloat, {1}, {0}}},
                 kFloat,
                 {4}},
                {0.1, 1, 10, 100});
  expect_values({"aten.logspace.default",
                 {integer("start", 1), integer("end", 1), integer("steps", 1), real("base", "2.0")},
                 {{kFloat, {1}, {0}}},
                 kFloat,
                 {1}},
                {2});
}

TEST(Orders, a_quantile_lies_between_two_elements) {
  const Doubles x = {4, 1, 3, 2, 10, kNan, 30, 20};
  const std::string q = real("q", "0.5");
  expect_values(of_one("aten.quantile.scalar", {q, integer("dim", 1)}, {2, 4}, x, {2}),
                {2.5, kNan});
  expect_values(of_one("aten.quantile.scalar", {real("q", "0.9"), flag("keepdim", true)}, {2, 2},
                       {4, 1, 3, 2}, {1, 1}),
                {3.7});
  expect_values(of_one("aten.quantile.scalar", {real("q", "1.0")}, {3}, {4, 1, 3}, {}), {4});
}

TEST(Rearranging, turns_and_diagonals) {
  const Doubles x = {1, 2, 3, 4, 5, 6};
  expect_values(of_one("aten.rot90.default", {}, {2, 3}, x, {3, 2}), {3, 6, 2, 5, 1, 4});
  expect_values(
      of_one("aten.rot90.default", {integer("k", -1), integers("dims", {0, 1})}, {2, 3}, x, {3, 2}),
      {4, 1, 5, 2, 6, 3});
  expect_values(of_one("aten.rot90.default", {integer("k", 6)}, {2, 3}, x, {2, 3}),
                {6, 5, 4, 3, 2, 1});
  expect_values(of_one("aten.fill_diagonal.default", {integer("fill_value", 9)}, {2, 3}, x, {2, 3}),
                {9, 2, 3, 4, 9, 6});
}

TEST(Rearranging, stacks_splits_and_products) {
  const std::vector<OneNode::In> two = {{kFloat, {2}, {1, 2}}, {kFloat, {2}, {3, 4}}};
  const std::vector<std::string> both = {tensors("tensors", {"x", "z"})};
  expect_values({"aten.dstack.default", both, two, kFloat, {1, 2, 2}}, {1, 3, 2, 4});
  expect_values({"aten.cartesian_prod.default", both, two, kFloat, {4, 2}},
                {1, 3, 1, 4, 2, 3, 2, 4});
  expect_values(of_one("aten.atleast_3d.default", {}, {2, 1}, {1, 2}, {2, 1, 1}), {1, 2});
  const auto second_of = [](const std::string& op, const std::vector<int64_t>& from,
                            const std::vector<std::string>& cut, const std::string& size) {
    ModelText model;
    std::vector<std::string> arguments = {kX};
    arguments.insert(arguments.end(), cut.begin(), cut.end());
    model.input("x", kFloat, from)
        .declare("a", kFloat, {size})
        .declare("b", kFloat, {size})
        .raw_node(op, arguments, R"([{"as_tensors":[{"name":"a"},{"name":"b"}]}])")
        .output("b");
    return graph_text(model);
  };
  EXPECT_NE(second_of("aten.hsplit.int", {4}, {integer("sections", 2)}, "2").find("view"),
            std::string::npos)
      << second_of("aten.hsplit.int", {4}, {integer("sections", 2)}, "2");
  EXPECT_NE(second_of("aten.vsplit.array", {4}, {integers("indices", {2})}, "2").find("view"),
            std::string::npos);
  EXPECT_NE(second_of("aten.dsplit.int", {4}, {integer("sections", 2)}, "2").find("not there"),
            std::string::npos);
}

TEST(Rearranging, broadcast_tensors_gives_each_the_common_shape) {
  ModelText model;
  model.input("x", kFloat, {3, 1})
      .input("z", kFloat, {2})
      .declare("a", kFloat, {"3", "2"})
      .declare("b", kFloat, {"3", "2"})
      .raw_node("aten.broadcast_tensors.default", {tensors("tensors", {"x", "z"})},
                R"([{"as_tensors":[{"name":"a"},{"name":"b"}]}])")
      .output("b");
  EXPECT_EQ(graph_text(model),
            "kiln.graph 1\n%0 = input 0 : f32[3,1]\n%1 = input 1 : f32[2]\n"
            "%2 = view %0 strides=[1,0] offset=[0] : f32[3,2]\n"
            "%3 = view %1 strides=[0,1] offset=[0] : f32[3,2]\nreturn %3\n");
}

TEST(Pooling, max_unpool_puts_values_back_where_they_were) {
  expect_values({"aten.max_unpool2d.default",
                 {kX, tensor("indices", "z"), integers("output_size", {2, 3})},
                 {{kFloat, {2, 1, 1, 2}, {5, 6, 7, 8}}, {kLong, {2, 1, 1, 2}, {1, 5, 0, 3}}},
                 kFloat,
                 {2, 1, 2, 3}},
                {0, 5, 0, 0, 0, 6, 7, 0, 0, 8, 0, 0});
}

TEST(Resampling, an_affine_grid_is_theta_of_the_pixels_places) {
  const Doubles theta = {1, 0, 0.5, 0, 2, -1};  // x + 1/2, 2y - 1
  const auto grid = [&](bool align) {
    return OneNode{
        "aten.affine_grid_generator.default",
        {tensor("theta", "x"), integers("size", {1, 1, 2, 2}), flag("align_corners", align)},
        {{kFloat, {1, 2, 3}, theta}},
        kFloat,
        {1, 2, 2, 2}};
  };
  expect_values(grid(true), {-0.5, -3, 1.5, -3, -0.5, 1, 1.5, 1});
  expect_values(grid(false), {0, -2, 1, -2, 0, 0, 1, 0});
}

TEST(Resampling, antialias_averages_what_a_pixel_covers) {
  // Halved: the triangle is two wide on each side, with weights 1, 3, 3, 1 of eighths; at an edge
  // what is left of them.
  const auto halved = [](const std::string& op, const Doubles& x) {
    return OneNode{op,
                   {tensor("input", "x"), integers("output_size", {1, 3}),
                    flag("align_corners", false), none("scale_factors")},
                   {{kFloat, {1, 1, 1, 6}, x}},
                   kFloat,
                   {1, 1, 1, 3}};
  };
  const Doubles x = {7, 14, 21, 0, 56, 8};
  expect_values(
      halved("aten._upsample_bilinear2d_aa.vec", x),
      {(3 * 7 + 3 * 14 + 21) / 7.0, (14 + 3 * 21 + 0 + 56) / 8.0, (0 + 3 * 56 + 3 * 8) / 7.0});
  // A constant image stays, whatever the weights; a line in the middle does by symmetry.
  expect_values(halved("aten._upsample_bicubic2d_aa.vec", Doubles(6, 5)), {5, 5, 5});
  const OneNode line = {"aten._upsample_bicubic2d_aa.default",
                        {kX, integers("output_size", {1, 5}), flag("align_corners", false),
                         none("scales_h"), none("scales_w")},
                        {{kFloat, {1, 1, 1, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}},
                        kFloat,
                        {1, 1, 1, 5}};
  const auto got = line.run();
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_NEAR((*got)[0].get(2), 4.5, 1e-5);
  EXPECT_NEAR((*got)[0].get(0) + (*got)[0].get(4), 9, 1e-5);
}

}  // namespace
}  // namespace kiln
