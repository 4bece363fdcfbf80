// Views and what is made of nothing, against PyTorch's documented behaviour.
#include "compiler_core/frontend/lowering.h"

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

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

}  // namespace
}  // namespace kiln
