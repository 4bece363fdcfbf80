// Lowerings against values worked out by hand from PyTorch's documented behaviour; more of them in
// the aten_*_test.cc beside this.
#include "compiler_core/frontend/lowering.h"

#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

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

TEST(Outputs, numbers_and_sizes_are_scalars_and_none_is_left_out) {
  const auto program = lower(ModelText()
                                 .symbolic_input("x", kFloat, {"s0", "2"})
                                 .range("s0", R"({"min_val":1,"max_val":64})")
                                 .integer_value("sym_size_int", "s0")
                                 .output("x")
                                 .output_spec(R"({"user_output":{"arg":{"as_none":true}}})")
                                 .output_spec(R"({"user_output":{"arg":{"as_sym_int":)"
                                              R"({"as_name":"sym_size_int"}}}})")
                                 .output_spec(R"({"user_output":{"arg":{"as_int":7}}})")
                                 .output_spec(R"({"user_output":{"arg":{"as_float":0.5}}})")
                                 .output_spec(R"({"user_output":{"arg":{"as_bool":true}}})")
                                 .json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->outputs.size(), 5u);
  Tensor x(DType::kF32, {3, 2});
  x.set(0, 4);
  const Tensor* inputs[] = {&x};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ((*outputs)[0].get(0), 4);  // an input, returned as it is
  EXPECT_EQ((*outputs)[1].get_int(0), 3);
  EXPECT_EQ((*outputs)[2].get_int(0), 7);
  EXPECT_EQ((*outputs)[3].get(0), 0.5);
  EXPECT_EQ((*outputs)[3].dtype(), DType::kF64);
  EXPECT_EQ((*outputs)[4].get_int(0), 1);
}

// As None is: the caller's own signature says them.
TEST(Outputs, words_are_no_output_of_the_program) {
  ModelText model;
  model.input("x", kFloat, {1})
      .output_spec(R"({"user_output":{"arg":{"as_string":"done"}}})")
      .output("x");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph.outputs().size(), 1U);
}

// As torch's schema has it: dropout(Tensor input, ...), dropout_(Tensor(a!) self, ...).
TEST(InPlace, dropout_calls_its_tensor_self) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.dropout_.default", {tensor("self", "x"), real("p", "0.5"), flag("train", false)},
            "y", kFloat, {2})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph.outputs()[0], program->graph.inputs()[0]);
}

}  // namespace
}  // namespace kiln
