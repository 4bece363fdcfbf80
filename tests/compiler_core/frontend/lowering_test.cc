// Each lowering against values worked out by hand from PyTorch's documented behaviour.
#include "compiler_core/frontend/lowering.h"

#include <cmath>
#include <limits>

#include "compiler_core/ir/text.h"
#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

std::string graph_text(const ModelText& model) {
  const auto program = lower(model.json());
  return program ? print(program->graph) : program.error().message;
}

TEST(TypePromotion, numbers_do_not_change_the_dtype_of_a_tensor_of_their_kind) {
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.5")}, {{kFloat, {2}, {1, 3}}}, kFloat, {2}},
      {0.5, 1.5});
  expect_values({"aten.add.Tensor", {kX, integer("other", 2)}, {{kLong, {2}, {1, 3}}}, kLong, {2}},
                {3, 5});
  expect_values({"aten.add.Tensor", {kX, integer("other", 2)}, {{kInt, {2}, {1, 3}}}, kInt, {2}},
                {3, 5});
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "2.0")}, {{kBFloat16, {1}, {3}}}, kBFloat16, {1}},
      {6});
}

TEST(TypePromotion, a_float_number_makes_integers_f32) {
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.5")}, {{kLong, {2}, {1, 3}}}, kFloat, {2}},
      {0.5, 1.5});
  expect_values({"aten.lt.Scalar", {kX, real("other", "1.5")}, {{kLong, {2}, {1, 2}}}, kBool, {2}},
                {1, 0});
}

TEST(TypePromotion, tensors_promote_to_the_higher) {
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kHalf, {1}, {1}}, {kBFloat16, {1}, {2}}}, kFloat, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kLong, {1}, {1}}, {kBFloat16, {1}, {2}}}, kBFloat16, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kBool, {1}, {1}}, {kByte, {1}, {2}}}, kByte, {1}}, {3});
}

TEST(TypePromotion, a_scalar_tensor_of_the_same_kind_does_not_widen) {
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kFloat, {1}, {1}}, {kDouble, {}, {2}}}, kFloat, {1}},
      {3});
  expect_values(
      {"aten.add.Tensor", {kX, kOther}, {{kLong, {1}, {1}}, {kDouble, {}, {2}}}, kDouble, {1}},
      {3});
}

TEST(Arithmetic, a_half_tensor_takes_a_number_at_full_precision) {
  // 0.1 in bf16 is 0.10009765625; 251 * 0.1 rounds to 25.125, 251 * 0.1001 to 25.125 as well, but
  // 7 * 0.1 = 0.7 rounds to 0.69921875 and 7 * 0.10009765625 to 0.703125.
  expect_values(
      {"aten.mul.Tensor", {kX, real("other", "0.1")}, {{kBFloat16, {1}, {7}}}, kBFloat16, {1}},
      {0.69921875});
}

TEST(Arithmetic, alpha_scales_the_second_operand) {
  expect_values({"aten.add.Tensor",
                 {kX, kOther, integer("alpha", 3)},
                 {{kFloat, {1}, {1}}, {kFloat, {1}, {2}}},
                 kFloat,
                 {1}},
                {7});
  expect_values({"aten.sub.Tensor",
                 {kX, kOther, real("alpha", "0.5")},
                 {{kFloat, {1}, {1}}, {kFloat, {1}, {2}}},
                 kFloat,
                 {1}},
                {0});
  expect_values({"aten.rsub.Scalar", {kX, integer("other", 10)}, {{kFloat, {1}, {1}}}, kFloat, {1}},
                {9});
}

TEST(Arithmetic, bool_sums_and_products_are_logic) {
  const std::vector<OneNode::In> pairs = {{kBool, {4}, {0, 0, 1, 1}}, {kBool, {4}, {0, 1, 0, 1}}};
  expect_values({"aten.add.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 1});
  expect_values({"aten.mul.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 0, 0, 1});
  expect_values({"aten.logical_xor.default", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 0});
  expect_values({"aten.__or__.Tensor", {kX, kOther}, pairs, kBool, {4}}, {0, 1, 1, 1});
}

TEST(Arithmetic, division_of_integers_is_true_division) {
  expect_values(
      {"aten.div.Tensor", {kX, integer("other", 2)}, {{kLong, {2}, {7, -7}}}, kFloat, {2}},
      {3.5, -3.5});
  expect_values({"aten.div.Tensor_mode",
                 {kX, integer("other", 2), text("rounding_mode", "trunc")},
                 {{kLong, {2}, {7, -7}}},
                 kLong,
                 {2}},
                {3, -3});
  expect_values({"aten.div.Tensor_mode",
                 {kX, real("other", "2.0"), text("rounding_mode", "trunc")},
                 {{kFloat, {2}, {7, -7}}},
                 kFloat,
                 {2}},
                {3, -3});
  expect_values({"aten.floor_divide.default",
                 {kX, integer("other", 2)},
                 {{kLong, {4}, {7, -7, 6, -6}}},
                 kLong,
                 {4}},
                {3, -4, 3, -3});
}

TEST(Arithmetic, remainder_has_the_divisors_sign_and_fmod_the_dividends) {
  expect_values(
      {"aten.remainder.Scalar", {kX, integer("other", 3)}, {{kLong, {3}, {7, -7, -6}}}, kLong, {3}},
      {1, 2, 0});
  expect_values(
      {"aten.remainder.Scalar", {kX, real("other", "-3.0")}, {{kFloat, {2}, {7, -7}}}, kFloat, {2}},
      {-2, -1});
  expect_values(
      {"aten.fmod.Scalar", {kX, real("other", "3.0")}, {{kFloat, {2}, {7, -7}}}, kFloat, {2}},
      {1, -1});
}

TEST(Arithmetic, powers_are_written_out_as_aten_does) {
  for (const auto& [exponent, expected] :
       std::vector<std::pair<std::string, double>>{{"0.0", 1},
                                                   {"1.0", 4},
                                                   {"2.0", 16},
                                                   {"3.0", 64},
                                                   {"0.5", 2},
                                                   {"-0.5", 0.5},
                                                   {"-1.0", 0.25},
                                                   {"-2.0", 0.0625},
                                                   {"1.5", 8}})
    expect_values({"aten.pow.Tensor_Scalar",
                   {kX, real("exponent", exponent)},
                   {{kFloat, {1}, {4}}},
                   kFloat,
                   {1}},
                  {expected});
  expect_values(
      {"aten.pow.Tensor_Scalar", {kX, integer("exponent", 2)}, {{kLong, {1}, {-3}}}, kLong, {1}},
      {9});
}

TEST(Arithmetic, a_square_is_a_product) {
  ModelText power, product;
  power.input("x", kFloat, {3})
      .node("aten.pow.Tensor_Scalar", {kX, integer("exponent", 2)}, "y", kFloat, {3})
      .output("y");
  product.input("x", kFloat, {3})
      .node("aten.mul.Tensor", {kX, tensor("other", "x")}, "y", kFloat, {3})
      .output("y");
  EXPECT_EQ(graph_text(power), graph_text(product));
}

TEST(Arithmetic, comparisons_with_nan_are_false_except_ne) {
  const std::vector<OneNode::In> nan = {{kFloat, {1}, {kNan}}};
  for (const char* op : {"eq", "lt", "le", "gt", "ge"})
    expect_values(
        {"aten." + std::string(op) + ".Scalar", {kX, real("other", "1.0")}, nan, kBool, {1}}, {0});
  expect_values({"aten.ne.Scalar", {kX, real("other", "1.0")}, nan, kBool, {1}}, {1});
}

TEST(Arithmetic, where_and_masked_fill_broadcast_and_promote) {
  expect_values({"aten.where.self",
                 {tensor("condition", "x"), tensor("self", "z"), tensor("other", "w")},
                 {{kBool, {2, 1}, {1, 0}}, {kFloat, {2}, {1, 2}}, {kLong, {}, {9}}},
                 kFloat,
                 {2, 2}},
                {1, 2, 9, 9});
  expect_values({"aten.masked_fill.Scalar",
                 {kX, tensor("mask", "z"), real("value", "\"-Infinity\"")},
                 {{kFloat, {2}, {1, 2}}, {kBool, {2}, {0, 1}}},
                 kFloat,
                 {2}},
                {1, -kInf});
}

TEST(Arithmetic, clamp_takes_either_bound_and_keeps_nan) {
  expect_values({"aten.clamp.default",
                 {kX, integer("min", -1), integer("max", 1)},
                 {{kFloat, {4}, {-5, 0.5, 5, kNan}}},
                 kFloat,
                 {4}},
                {-1, 0.5, 1, kNan});
  expect_values({"aten.clamp.default",
                 {kX, none("min"), integer("max", 1)},
                 {{kFloat, {2}, {-5, 5}}},
                 kFloat,
                 {2}},
                {-5, 1});
}

TEST(Arithmetic, conversions_truncate_and_test_for_zero) {
  expect_values(
      {"aten.to.dtype", {kX, dtype("dtype", kLong)}, {{kFloat, {2}, {1.9, -1.9}}}, kLong, {2}},
      {1, -1});
  expect_values({"aten._to_copy.default",
                 {kX, dtype("dtype", kBool)},
                 {{kFloat, {3}, {0, 0.5, kNan}}},
                 kBool,
                 {3}},
                {0, 1, 1});
}

TEST(Activations, relu_keeps_nan) {
  expect_values({"aten.relu.default", {kX}, {{kFloat, {4}, {-1, 2, kNan, kInf}}}, kFloat, {4}},
                {0, 2, kNan, kInf});
}

TEST(Activations, follow_their_formulas) {
  const Doubles at = {-2, -0.5, 0, 0.5, 2};
  const auto expect = [&](const char* op, std::vector<std::string> more, double (*f)(double)) {
    Doubles expected;
    for (double x : at) expected.push_back(f(x));
    more.insert(more.begin(), kX);
    expect_values({op, more, {{kFloat, {5}, at}}, kFloat, {5}}, expected);
  };
  expect("aten.sigmoid.default", {}, [](double x) { return 1 / (1 + std::exp(-x)); });
  expect("aten.silu.default", {}, [](double x) { return x / (1 + std::exp(-x)); });
  expect("aten.gelu.default", {},
         [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2))); });
  expect("aten.gelu.default", {text("approximate", "tanh")}, [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  });
  expect("aten.leaky_relu.default", {}, [](double x) { return x > 0 ? x : 0.01 * x; });
  expect("aten.hardtanh.default", {}, [](double x) { return std::clamp(x, -1.0, 1.0); });
}

TEST(Activations, silu_is_its_decomposition) {
  ModelText composite, written_out;
  composite.input("x", kFloat, {3}).node("aten.silu.default", {kX}, "y", kFloat, {3}).output("y");
  written_out.input("x", kFloat, {3})
      .node("aten.sigmoid.default", {kX}, "s", kFloat, {3})
      .node("aten.mul.Tensor", {kX, tensor("other", "s")}, "y", kFloat, {3})
      .output("y");
  EXPECT_EQ(graph_text(composite), graph_text(written_out));
}

TEST(Activations, dropout_is_the_identity_at_inference) {
  expect_values({"aten.dropout.default",
                 {tensor("input", "x"), real("p", "0.5"), flag("train", false)},
                 {{kFloat, {1}, {3}}},
                 kFloat,
                 {1}},
                {3});
}

TEST(Views, sizes_of_minus_one_are_worked_out) {
  const OneNode::In six = {kFloat, {2, 3}, {0, 1, 2, 3, 4, 5}};
  expect_values({"aten.view.default", {kX, integers("size", {3, -1})}, {six}, kFloat, {3, 2}},
                {0, 1, 2, 3, 4, 5});
  expect_values({"aten.flatten.using_ints", {kX}, {six}, kFloat, {6}}, {0, 1, 2, 3, 4, 5});
  expect_values({"aten.expand.default",
                 {kX, integers("size", {2, -1, 2})},
                 {{kFloat, {2, 1}, {1, 2}}},
                 kFloat,
                 {2, 2, 2}},
                {1, 1, 2, 2, 1, 1, 2, 2});
  EXPECT_FALSE(
      (OneNode{"aten.view.default", {kX, integers("size", {4, -1})}, {six}, kFloat, {4, 1}}.run()));
  EXPECT_FALSE((
      OneNode{"aten.view.default", {kX, integers("size", {-1, -1})}, {six}, kFloat, {6, 1}}.run()));
  EXPECT_FALSE(
      (OneNode{"aten.view.default", {kX, integers("size", {0, -1})}, {six}, kFloat, {0, 1}}.run()));
}

TEST(Views, axes_move) {
  const OneNode::In six = {kFloat, {2, 3}, {0, 1, 2, 3, 4, 5}};
  expect_values({"aten.t.default", {kX}, {six}, kFloat, {3, 2}}, {0, 3, 1, 4, 2, 5});
  expect_values(
      {"aten.transpose.int", {kX, integer("dim0", -1), integer("dim1", 0)}, {six}, kFloat, {3, 2}},
      {0, 3, 1, 4, 2, 5});
  expect_values({"aten.permute.default", {kX, integers("dims", {-1, 0})}, {six}, kFloat, {3, 2}},
                {0, 3, 1, 4, 2, 5});
  expect_values({"aten.unsqueeze.default", {kX, integer("dim", -1)}, {six}, kFloat, {2, 3, 1}},
                {0, 1, 2, 3, 4, 5});
  expect_values(
      {"aten.squeeze.dims", {kX, integers("dim", {0, 1})}, {{kFloat, {1, 2}, {1, 2}}}, kFloat, {2}},
      {1, 2});
  expect_values({"aten.flip.default", {kX, integers("dims", {1})}, {six}, kFloat, {2, 3}},
                {2, 1, 0, 5, 4, 3});
}

TEST(Views, slices_count_from_the_end_and_stop_at_it) {
  const OneNode::In five = {kFloat, {5}, {0, 1, 2, 3, 4}};
  const auto slice = [&](int64_t start, int64_t end, int64_t step, const Doubles& expected) {
    expect_values({"aten.slice.Tensor",
                   {kX, integer("dim", 0), integer("start", start), integer("end", end),
                    integer("step", step)},
                   {five},
                   kFloat,
                   {static_cast<int64_t>(expected.size())}},
                  expected);
  };
  slice(1, 3, 1, {1, 2});
  slice(-2, INT64_MAX, 1, {3, 4});
  slice(0, -1, 2, {0, 2});
  slice(-100, 100, 3, {0, 3});
  slice(4, 2, 1, {});
  slice(9, 12, 1, {});
  expect_values(
      {"aten.select.int", {kX, integer("dim", 0), integer("index", -1)}, {five}, kFloat, {}}, {4});
}

TEST(Views, tensors_join_and_repeat) {
  const OneNode::In row = {kFloat, {1, 2}, {1, 2}}, other = {kFloat, {1, 2}, {3, 4}};
  expect_values({"aten.cat.default",
                 {tensors("tensors", {"x", "z"}), integer("dim", -1)},
                 {row, other},
                 kFloat,
                 {1, 4}},
                {1, 2, 3, 4});
  expect_values({"aten.cat.default",
                 {tensors("tensors", {"x", "z"})},
                 {row, {kFloat, {0}, {}}},
                 kFloat,
                 {1, 2}},
                {1, 2});
  expect_values({"aten.stack.default",
                 {tensors("tensors", {"x", "z"}), integer("dim", 2)},
                 {row, other},
                 kFloat,
                 {1, 2, 2}},
                {1, 3, 2, 4});
  expect_values({"aten.repeat.default",
                 {kX, integers("repeats", {2, 2})},
                 {{kFloat, {2}, {1, 2}}},
                 kFloat,
                 {2, 4}},
                {1, 2, 1, 2, 1, 2, 1, 2});
  expect_values({"aten.constant_pad_nd.default",
                 {kX, integers("pad", {1, 2}), integer("value", 9)},
                 {row},
                 kFloat,
                 {1, 5}},
                {9, 1, 2, 9, 9});
}

TEST(Views, a_split_gives_its_pieces_in_order) {
  ModelText model;
  model.input("x", kFloat, {5})
      .declare("a", kFloat, {"2"})
      .declare("b", kFloat, {"2"})
      .declare("c", kFloat, {"1"})
      .raw_node("aten.split.Tensor", {kX, integer("split_size", 2)},
                R"([{"as_tensors":[{"name":"a"},{"name":"b"},{"name":"c"}]}])")
      .output("c")
      .output("a");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor x = make_tensor(DType::kF32, {5}, Doubles{0, 1, 2, 3, 4});
  const Tensor* inputs[] = {&x};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(values_of((*outputs)[0]), (Doubles{4}));
  EXPECT_EQ(values_of((*outputs)[1]), (Doubles{0, 1}));
}

TEST(Creation, ranges_and_fills) {
  expect_values({"aten.arange.start_step",
                 {integer("start", 5), integer("end", 0), integer("step", -2)},
                 {},
                 kLong,
                 {3}},
                {5, 3, 1});
  expect_values({"aten.arange.default", {real("end", "2.5")}, {}, kFloat, {3}}, {0, 1, 2});
  expect_values({"aten.arange.start_step",
                 {integer("start", 0), integer("end", 1), real("step", "0.25")},
                 {},
                 kFloat,
                 {4}},
                {0, 0.25, 0.5, 0.75});
  expect_values(
      {"aten.full.default", {integers("size", {2}), integer("fill_value", 7)}, {}, kLong, {2}},
      {7, 7});
  expect_values({"aten.full_like.default",
                 {kX, real("fill_value", "1.5")},
                 {{kFloat, {2}, {0, 0}}},
                 kFloat,
                 {2}},
                {1.5, 1.5});
  expect_values({"aten.new_ones.default",
                 {kX, integers("size", {}), dtype("dtype", kBool)},
                 {{kFloat, {2}, {0, 0}}},
                 kBool,
                 {}},
                {1});
  expect_values(
      {"aten.scalar_tensor.default", {integer("s", 3), dtype("dtype", kFloat)}, {}, kFloat, {}},
      {3});
}

TEST(Indexing, index_with_tensors_broadcasts_wraps_and_keeps_its_place) {
  const OneNode::In cube = {kFloat, {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}};
  const auto optional = [](const std::string& list) {
    return argument("indices", "as_optional_tensors", list);
  };
  const std::string z = R"({"as_tensor":{"name":"z"}})", w = R"({"as_tensor":{"name":"w"}})",
                    gap = R"({"as_none":true})";
  expect_values({"aten.index.Tensor",
                 {kX, optional("[" + z + "," + w + "]")},
                 {cube, {kLong, {2, 1}, {0, -1}}, {kLong, {2}, {-2, 1}}},
                 kFloat,
                 {2, 2, 2}},
                {0, 1, 2, 3, 4, 5, 6, 7});
  // x[:, z]: in place.
  expect_values({"aten.index.Tensor",
                 {kX, optional("[" + gap + "," + z + "]")},
                 {cube, {kLong, {1}, {-1}}},
                 kFloat,
                 {2, 1, 2}},
                {2, 3, 6, 7});
  // x[z, :, w]: apart, so the index's axes come first.
  expect_values({"aten.index.Tensor",
                 {kX, optional("[" + z + "," + gap + "," + w + "]")},
                 {cube, {kLong, {1}, {1}}, {kLong, {1}, {0}}},
                 kFloat,
                 {1, 2}},
                {4, 6});
  const auto masked = OneNode{
      "aten.index.Tensor",
      {kX, tensors("indices", {"z"})},
      {cube, {kBool, {2}, {0, 1}}},
      kFloat,
      {1, 2, 2}}.run();
  ASSERT_FALSE(masked);
  EXPECT_EQ(masked.error().code, Code::kUnsupported);
}

TEST(Indexing, gather_embedding_and_index_select_read_what_they_name) {
  const OneNode::In table = {kFloat, {3, 2}, {0, 1, 2, 3, 4, 5}};
  expect_values({"aten.embedding.default",
                 {tensor("weight", "x"), tensor("indices", "z")},
                 {table, {kLong, {2}, {2, 0}}},
                 kFloat,
                 {2, 2}},
                {4, 5, 0, 1});
  expect_values({"aten.gather.default",
                 {kX, integer("dim", 0), tensor("index", "z")},
                 {table, {kLong, {1, 2}, {2, 1}}},
                 kFloat,
                 {1, 2}},
                {4, 3});
  expect_values({"aten.gather.default",
                 {kX, integer("dim", -1), tensor("index", "z")},
                 {table, {kLong, {3, 1}, {1, 0, 1}}},
                 kFloat,
                 {3, 1}},
                {1, 2, 5});
  expect_values({"aten.index_select.default",
                 {kX, integer("dim", 1), tensor("index", "z")},
                 {table, {kLong, {1}, {1}}},
                 kFloat,
                 {3, 1}},
                {1, 3, 5});
  expect_values({"aten.scatter.value",
                 {kX, integer("dim", 1), tensor("index", "z"), real("value", "9.0")},
                 {table, {kLong, {3, 1}, {1, 0, 1}}},
                 kFloat,
                 {3, 2}},
                {0, 9, 9, 3, 4, 9});
}

TEST(Indexing, triangles_and_differences) {
  const OneNode::In ones = {kFloat, {2, 3}, {1, 1, 1, 1, 1, 1}};
  expect_values({"aten.tril.default", {kX}, {ones}, kFloat, {2, 3}}, {1, 0, 0, 1, 1, 0});
  expect_values({"aten.triu.default", {kX, integer("diagonal", 1)}, {ones}, kFloat, {2, 3}},
                {0, 1, 1, 0, 0, 1});
  expect_values(
      {"aten.diff.default", {kX, integer("n", 2)}, {{kLong, {4}, {1, 4, 9, 16}}}, kLong, {2}},
      {2, 2});
  expect_values({"aten.diff.default",
                 {kX, tensor("prepend", "z")},
                 {{kLong, {2}, {1, 4}}, {kLong, {1}, {0}}},
                 kLong,
                 {2}},
                {1, 3});
}

TEST(Indexing, cross_entropy_leaves_out_what_is_ignored) {
  const Doubles logits = {0, 0, std::log(3), 0, 5, 5};
  const std::vector<OneNode::In> in = {{kFloat, {3, 2}, logits}, {kLong, {3}, {1, 0, -100}}};
  const double first = std::log(2), second = std::log(4.0 / 3);
  expect_values({"aten.cross_entropy_loss.default", {kX, tensor("target", "z")}, in, kFloat, {}},
                {(first + second) / 2});
  expect_values({"aten.cross_entropy_loss.default",
                 {kX, tensor("target", "z"), none("weight"), integer("reduction", 0)},
                 in,
                 kFloat,
                 {3}},
                {first, second, 0});
}

TEST(Reductions, sums_of_integers_and_bools_are_i64) {
  expect_values({"aten.sum.default", {kX}, {{kBool, {3}, {1, 0, 1}}}, kLong, {}}, {2});
  expect_values({"aten.sum.dim_IntList",
                 {kX, integers("dim", {})},
                 {{kFloat, {2, 2}, {1, 2, 3, 4}}},
                 kFloat,
                 {}},
                {10});
  expect_values({"aten.sum.dim_IntList",
                 {kX, integers("dim", {-1}), flag("keepdim", true)},
                 {{kFloat, {2, 2}, {1, 2, 3, 4}}},
                 kFloat,
                 {2, 1}},
                {3, 7});
  expect_values(
      {"aten.cumsum.default", {kX, integer("dim", 0)}, {{kBool, {3}, {1, 0, 1}}}, kLong, {3}},
      {1, 1, 2});
}

TEST(Reductions, means_and_variances) {
  const OneNode::In x = {kFloat, {2, 2}, {1, 3, 5, 9}};
  expect_values({"aten.mean.dim", {kX, integers("dim", {1})}, {x}, kFloat, {2}}, {2, 7});
  expect_values({"aten.mean.default", {kX}, {x}, kFloat, {}}, {4.5});
  expect_values({"aten.var.correction", {kX, integers("dim", {1})}, {x}, kFloat, {2}}, {2, 8});
  expect_values({"aten.var.correction",
                 {kX, integers("dim", {1}), integer("correction", 0)},
                 {x},
                 kFloat,
                 {2}},
                {1, 4});
  expect_values({"aten.std.correction",
                 {kX, integers("dim", {1}), integer("correction", 0), flag("keepdim", true)},
                 {x},
                 kFloat,
                 {2, 1}},
                {1, 2});
  // One sample has no variance: 0 / 0.
  expect_values(
      {"aten.var.correction", {kX, integers("dim", {0})}, {{kFloat, {1}, {3}}}, kFloat, {}},
      {kNan});
}

TEST(Reductions, the_mean_of_a_half_type_is_rounded_once) {
  // 257 is no bf16: 257 / 5 = 51.4 rounds to 51.5, but 256 / 5 = 51.2 to 51.25.
  expect_values({"aten.mean.dim",
                 {kX, integers("dim", {0})},
                 {{kBFloat16, {5}, {256, 1, 0, 0, 0}}},
                 kBFloat16,
                 {}},
                {51.5});
}

TEST(Reductions, extrema_find_the_first_place_and_nan) {
  expect_values({"aten.argmax.default",
                 {kX, integer("dim", 1)},
                 {{kFloat, {2, 3}, {1, 5, 5, 2, kNan, 9}}},
                 kLong,
                 {2}},
                {1, 1});
  expect_values({"aten.argmin.default", {kX}, {{kFloat, {2, 2}, {3, 1, 1, 2}}}, kLong, {}}, {1});
  expect_values({"aten.amax.default",
                 {kX, integers("dim", {0})},
                 {{kFloat, {2, 2}, {1, kNan, 3, 2}}},
                 kFloat,
                 {2}},
                {3, kNan});
  expect_values(
      {"aten.any.dim", {kX, integer("dim", 0)}, {{kFloat, {2, 2}, {0, 0.5, 0, 0}}}, kBool, {2}},
      {0, 1});
  expect_values({"aten.all.default", {kX}, {{kBool, {2}, {1, 0}}}, kBool, {}}, {0});
}

TEST(Reductions, logsumexp_survives_large_and_infinite_values) {
  expect_values({"aten.logsumexp.default",
                 {kX, integers("dim", {1})},
                 {{kFloat, {3, 2}, {1000, 1000, -kInf, -kInf, kInf, 0}}},
                 kFloat,
                 {3}},
                {1000 + std::log(2), -kInf, kInf});
}

TEST(Normalisation, softmax_survives_large_values_and_gives_nan_for_nothing) {
  expect_values({"aten.softmax.int",
                 {kX, integer("dim", -1)},
                 {{kFloat, {3, 2}, {1000, 1000, 0, -kInf, -kInf, -kInf}}},
                 kFloat,
                 {3, 2}},
                {0.5, 0.5, 1, 0, kNan, kNan});
  expect_values({"aten._log_softmax.default",
                 {kX, integer("dim", 0), flag("half_to_float", false)},
                 {{kFloat, {2}, {1000, 1000}}},
                 kFloat,
                 {2}},
                {-std::log(2), -std::log(2)});
}

TEST(Normalisation, softmax_is_its_other_spelling) {
  const auto model = [](const char* op, std::vector<std::string> arguments) {
    ModelText text;
    text.input("x", kBFloat16, {2, 3}).node(op, arguments, "y", kBFloat16, {2, 3}).output("y");
    return graph_text(text);
  };
  EXPECT_EQ(model("aten.softmax.int", {kX, integer("dim", 1)}),
            model("aten._softmax.default", {kX, integer("dim", -1), flag("half_to_float", false)}));
}

TEST(Normalisation, layer_norm_is_its_other_spelling_and_gives_its_statistics) {
  const std::vector<std::string> arguments = {tensor("input", "x"),
                                              integers("normalized_shape", {2}), none("weight"),
                                              none("bias"), real("eps", "0.0")};
  expect_values(
      {"aten.layer_norm.default", arguments, {{kFloat, {2, 2}, {1, 3, 5, 9}}}, kFloat, {2, 2}},
      {-1, 1, -1, 1});
  ModelText native;
  native.input("x", kFloat, {2, 2})
      .declare("m", kFloat, {"2", "1"})
      .declare("r", kFloat, {"2", "1"})
      .declare("y", kFloat, {"2", "2"})
      .raw_node(
          "aten.native_layer_norm.default", arguments,
          R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"m"}},{"as_tensor":{"name":"r"}}])")
      .output("y")
      .output("m")
      .output("r");
  const auto program = lower(native.json());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor x = make_tensor(DType::kF32, {2, 2}, Doubles{1, 3, 5, 9});
  const Tensor* inputs[] = {&x};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(values_of((*outputs)[1]), (Doubles{2, 7}));
  EXPECT_EQ(values_of((*outputs)[2]), (Doubles{1, 0.5}));
}

TEST(Normalisation, layer_norm_is_its_decomposition) {
  ModelText composite, written_out;
  for (ModelText* model : {&composite, &written_out})
    model->input("x", kFloat, {2, 4}).input("w", kFloat, {4}).input("c", kFloat, {4});
  composite
      .node("aten.layer_norm.default",
            {tensor("input", "x"), integers("normalized_shape", {4}), tensor("weight", "w"),
             tensor("bias", "c"), real("eps", "1e-05")},
            "y", kFloat, {2, 4})
      .output("y");
  const std::string keep = flag("keepdim", true), last = integers("dim", {-1});
  written_out.node("aten.mean.dim", {kX, last, keep}, "m", kFloat, {2, 1})
      .node("aten.var.correction", {kX, last, integer("correction", 0), keep}, "v", kFloat, {2, 1})
      .node("aten.sub.Tensor", {kX, tensor("other", "m")}, "d", kFloat, {2, 4})
      .node("aten.add.Tensor", {tensor("self", "v"), real("other", "1e-05")}, "e", kFloat, {2, 1})
      .node("aten.rsqrt.default", {tensor("self", "e")}, "r", kFloat, {2, 1})
      .node("aten.mul.Tensor", {tensor("self", "d"), tensor("other", "r")}, "n", kFloat, {2, 4})
      .node("aten.mul.Tensor", {tensor("self", "n"), tensor("other", "w")}, "s", kFloat, {2, 4})
      .node("aten.add.Tensor", {tensor("self", "s"), tensor("other", "c")}, "y", kFloat, {2, 4})
      .output("y");
  EXPECT_EQ(graph_text(composite), graph_text(written_out));
}

TEST(Normalisation, batch_norm_uses_the_running_statistics) {
  expect_values({"aten.batch_norm.default",
                 {tensor("input", "x"), none("weight"), none("bias"), tensor("running_mean", "z"),
                  tensor("running_var", "w"), flag("training", false), real("momentum", "0.1"),
                  real("eps", "0.0")},
                 {{kFloat, {1, 2, 2}, {1, 2, 3, 4}}, {kFloat, {2}, {1, 3}}, {kFloat, {2}, {1, 4}}},
                 kFloat,
                 {1, 2, 2}},
                {0, 1, 0, 0.5});
}

TEST(Normalisation, group_norm_and_rms_norm) {
  expect_values({"aten.group_norm.default",
                 {tensor("input", "x"), integer("num_groups", 2), none("weight"), none("bias"),
                  real("eps", "0.0")},
                 {{kFloat, {1, 4}, {1, 3, 5, 9}}},
                 kFloat,
                 {1, 4}},
                {-1, 1, -1, 1});
  expect_values({"aten.rms_norm.default",
                 {tensor("input", "x"), integers("normalized_shape", {2}), none("weight"),
                  real("eps", "0.0")},
                 {{kFloat, {1, 2}, {1, 7}}},
                 kFloat,
                 {1, 2}},
                {0.2, 1.4});
}

TEST(Matmul, vectors_are_rows_and_columns) {
  const OneNode::In matrix = {kFloat, {2, 2}, {1, 2, 3, 4}}, vector = {kFloat, {2}, {10, 1}};
  expect_values({"aten.matmul.default", {kX, kOther}, {matrix, vector}, kFloat, {2}}, {12, 34});
  expect_values({"aten.matmul.default", {kX, kOther}, {vector, matrix}, kFloat, {2}}, {13, 24});
  expect_values({"aten.matmul.default", {kX, kOther}, {vector, vector}, kFloat, {}}, {101});
  expect_values({"aten.mv.default", {kX, tensor("vec", "z")}, {matrix, vector}, kFloat, {2}},
                {12, 34});
  expect_values({"aten.dot.default", {kX, tensor("tensor", "z")}, {vector, vector}, kFloat, {}},
                {101});
}

TEST(Matmul, batches_broadcast) {
  expect_values({"aten.matmul.default",
                 {kX, kOther},
                 {{kFloat, {2, 1, 1, 2}, {1, 2, 3, 4}}, {kFloat, {2, 2, 1}, {1, 0, 0, 1}}},
                 kFloat,
                 {2, 2, 1, 1}},
                {1, 2, 3, 4});
  expect_values({"aten.matmul.default",
                 {kX, kOther},
                 {{kFloat, {2, 1, 2}, {1, 2, 3, 4}}, {kFloat, {2, 1}, {1, 1}}},
                 kFloat,
                 {2, 1, 1}},
                {3, 7});
}

TEST(Matmul, addmm_scales) {
  expect_values(
      {"aten.addmm.default",
       {kX, tensor("mat1", "z"), tensor("mat2", "w"), integer("beta", 2), integer("alpha", 3)},
       {{kFloat, {1}, {1}}, {kFloat, {1, 1}, {5}}, {kFloat, {1, 1}, {7}}},
       kFloat,
       {1, 1}},
      {107});
}

TEST(Matmul, linear_is_addmm_with_the_weight_transposed) {
  for (const int code : {kFloat, kBFloat16}) {
    ModelText linear, addmm;
    for (ModelText* model : {&linear, &addmm})
      model->input("x", code, {2, 3}).input("w", code, {4, 3}).input("b", code, {4});
    linear
        .node("aten.linear.default",
              {tensor("input", "x"), tensor("weight", "w"), tensor("bias", "b")}, "y", code, {2, 4})
        .output("y");
    addmm.node("aten.t.default", {tensor("self", "w")}, "t", code, {3, 4})
        .node("aten.addmm.default", {tensor("self", "b"), tensor("mat1", "x"), tensor("mat2", "t")},
              "y", code, {2, 4})
        .output("y");
    EXPECT_EQ(graph_text(linear), graph_text(addmm));
  }
}

TEST(Matmul, the_accumulator_of_halves_is_f32_until_the_bias_is_added) {
  // 256 + 1 is no bf16, so a rounded product would lose it.
  expect_values(
      {"aten.linear.default",
       {tensor("input", "x"), tensor("weight", "z"), tensor("bias", "w")},
       {{kBFloat16, {1, 2}, {256, 1}}, {kBFloat16, {1, 2}, {1, 1}}, {kBFloat16, {1}, {1}}},
       kBFloat16,
       {1, 1}},
      {258});
}

TEST(Attention, heads_are_shared_and_the_future_hidden) {
  // Keys of 0 give equal weights: the mean of the values that a query may see.
  const OneNode::In query = {kFloat, {1, 2, 2, 1}, {1, 1, 1, 1}},
                    key = {kFloat, {1, 1, 2, 1}, {0, 0}}, value = {kFloat, {1, 1, 2, 1}, {2, 4}};
  const std::vector<std::string> qkv = {tensor("query", "x"), tensor("key", "z"),
                                        tensor("value", "w")};
  auto grouped = qkv;
  grouped.push_back(flag("enable_gqa", true));
  expect_values({"aten.scaled_dot_product_attention.default",
                 grouped,
                 {query, key, value},
                 kFloat,
                 {1, 2, 2, 1}},
                {3, 3, 3, 3});
  grouped.push_back(flag("is_causal", true));
  expect_values({"aten.scaled_dot_product_attention.default",
                 grouped,
                 {query, key, value},
                 kFloat,
                 {1, 2, 2, 1}},
                {2, 3, 2, 3});
}

TEST(Attention, masks_hide_or_add_and_a_blind_query_gives_zero) {
  const OneNode::In query = {kFloat, {2, 1}, {1, 1}}, key = {kFloat, {2, 1}, {0, 0}},
                    value = {kFloat, {2, 1}, {2, 4}};
  const std::vector<std::string> masked = {tensor("query", "x"), tensor("key", "z"),
                                           tensor("value", "w"), tensor("attn_mask", "v")};
  expect_values({"aten.scaled_dot_product_attention.default",
                 masked,
                 {query, key, value, {kBool, {2, 2}, {0, 1, 0, 0}}},
                 kFloat,
                 {2, 1}},
                {4, 0});
  expect_values({"aten.scaled_dot_product_attention.default",
                 masked,
                 {query, key, value, {kFloat, {1, 2}, {std::log(3), 0}}},
                 kFloat,
                 {2, 1}},
                {2.5, 2.5});
}

TEST(SymbolicSizes, a_mean_over_a_symbolic_axis_divides_by_its_size) {
  ModelText model;
  model.symbolic_input("x", kFloat, {"s0", "2"})
      .range("s0", R"({"min_val":1,"max_val":64})")
      .node("aten.mean.dim", {kX, integers("dim", {0})}, "y", kFloat, {2})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  for (const int64_t rows : {1, 3}) {
    Tensor x(DType::kF32, {rows, 2});
    for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(i));
    const Tensor* inputs[] = {&x};
    const auto outputs = interpret(program->graph, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ((*outputs)[0].get(0), static_cast<double>(rows - 1));
  }
}

TEST(SymbolicSizes, sizes_given_by_name_are_the_symbols) {
  ModelText model;
  model.symbolic_input("x", kFloat, {"s0", "6"})
      .integer_value("sym_size_int", "s0")
      .raw_node("aten.sym_size.int", {kX, integer("dim", 0)},
                R"([{"as_sym_int":{"as_name":"sym_size_int"}}])")
      .symbolic_node("aten.view.default",
                     {kX, argument("size", "as_sym_ints",
                                   R"([{"as_name":"sym_size_int"},{"as_int":2},{"as_int":-1}])")},
                     "y", kFloat, {"s0", "2", "3"})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph.node(program->graph.outputs()[0]).shape, (Shape{Dim::symbol(0), 2, 3}));
}

TEST(SymbolicSizes, a_slice_that_may_leave_a_symbolic_axis_is_refused) {
  ModelText free, bounded;
  free.symbolic_input("x", kFloat, {"s0"})
      .node("aten.slice.Tensor", {kX, integer("dim", 0), integer("start", 0), integer("end", 4)},
            "y", kFloat, {4})
      .output("y");
  bounded.symbolic_input("x", kFloat, {"s0"})
      .range("s0", R"({"min_val":4,"max_val":64})")
      .node("aten.slice.Tensor", {kX, integer("dim", 0), integer("start", 0), integer("end", 4)},
            "y", kFloat, {4})
      .output("y");
  const auto refused = lower(free.json());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_TRUE(lower(bounded.json())) << lower(bounded.json()).error().message;
}

TEST(Inputs, one_that_is_not_contiguous_is_flat_storage_behind_a_view) {
  ModelText model;
  model.input("x", kFloat, {2, 3}, {1, 2})
      .node("aten.alias.default", {kX}, "y", kFloat, {2, 3})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_FALSE(is_dense(program->inputs[0]));
  EXPECT_EQ(program->graph.node(program->graph.inputs()[0]).shape, (Shape{6}));
  const Tensor x = make_tensor(DType::kF32, {2, 3}, Doubles{0, 1, 2, 3, 4, 5});
  const auto flat = to_input_layout(x, program->inputs[0]);
  ASSERT_TRUE(flat) << flat.error().message;
  EXPECT_EQ(values_of(*flat), (Doubles{0, 3, 1, 4, 2, 5}));
  const Tensor* inputs[] = {&*flat};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(values_of((*outputs)[0]), values_of(x));
}

TEST(Inputs, axes_of_size_one_may_have_any_stride) {
  ModelText model;
  model.input("x", kFloat, {1, 3}, {77, 1})
      .node("aten.alias.default", {kX}, "y", kFloat, {1, 3})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(is_dense(program->inputs[0]));
}

TEST(Inputs, a_number_baked_in_at_export_is_passed_over) {
  ModelText model;
  model.input_spec(R"({"user_input":{"arg":{"as_int":3}}})")
      .input("x", kFloat, {1})
      .node("aten.alias.default", {kX}, "y", kFloat, {1})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->inputs.size(), 1u);
}

}  // namespace
}  // namespace kiln
