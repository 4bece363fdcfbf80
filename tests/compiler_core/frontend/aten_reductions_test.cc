// Reductions and normalisations against values worked out by hand from PyTorch's documented
// behaviour.
#include "compiler_core/frontend/lowering.h"

#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

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

// A GPU keeps the statistics of halves in f32, a CPU in the halves' own type.
TEST(Normalisation, layer_norm_saves_what_is_declared) {
  const auto model = [](int statistics) {
    ModelText text;
    text.input("x", kBFloat16, {2, 2})
        .declare("m", statistics, {"2", "1"})
        .declare("r", statistics, {"2", "1"})
        .declare("y", kBFloat16, {"2", "2"})
        .raw_node(
            "aten.native_layer_norm.default",
            {tensor("input", "x"), integers("normalized_shape", {2}), none("weight"), none("bias"),
             real("eps", "0.0")},
            R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"m"}},{"as_tensor":{"name":"r"}}])")
        .output("m");
    return lower(text.json());
  };
  const auto wide = model(kFloat), narrow = model(kBFloat16);
  ASSERT_TRUE(wide) << wide.error().message;
  ASSERT_TRUE(narrow) << narrow.error().message;
  const Tensor x = make_tensor(DType::kBF16, {2, 2}, Doubles{1, 2, 256, 258});
  const Tensor* inputs[] = {&x};
  EXPECT_EQ(values_of((*interpret(wide->graph, inputs))[0]), (Doubles{1.5, 257}));
  EXPECT_EQ(values_of((*interpret(narrow->graph, inputs))[0]), (Doubles{1.5, 256}));
}

// As torch 2.11 declares it on a GPU: the rows' sums with an axis of one, and a generator's state.
TEST(Attention, cudnn_saves_what_its_backward_op_is_given) {
  ModelText text;
  for (const char* name : {"q", "k", "v"}) text.input(name, kBFloat16, {1, 1, 4, 8});
  text.declare("y", kBFloat16, {"1", "1", "4", "8"})
      .declare("l", kFloat, {"1", "1", "4", "1"})
      .declare("seed", kLong, {})
      .declare("offset", kLong, {})
      .raw_node(
          "aten._scaled_dot_product_cudnn_attention.default",
          {tensor("query", "q"), tensor("key", "k"), tensor("value", "v"), none("attn_bias"),
           flag("compute_log_sumexp", true)},
          R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"l"}},{"as_none":true},)"
          R"({"as_none":true},{"as_none":true},{"as_none":true},{"as_tensor":{"name":"seed"}},)"
          R"({"as_tensor":{"name":"offset"}},{"as_none":true}])")
      .output("y")
      .output("l")
      .output("seed");
  const auto program = lower(text.json());
  ASSERT_TRUE(program) << program.error().message;
  const Graph& graph = program->graph;
  EXPECT_EQ(graph.node(graph.outputs()[1]).shape, (Shape{1, 1, 4, 1}));
  EXPECT_EQ(graph.node(graph.outputs()[2]).dtype, DType::kI64);
}

// As torch 2.11 declares it on a GPU: sums in rows of a multiple of 32, or none.
TEST(Attention, the_memory_efficient_kernel_gives_rows_of_sums_that_infinity_fills_up) {
  for (const bool asked : {true, false}) {
    ModelText text;
    for (const char* name : {"q", "k", "v"}) text.input(name, kFloat, {1, 1, 4, 2});
    text.declare("y", kFloat, {"1", "1", "4", "2"})
        .declare("l", kFloat, {"1", "1", asked ? "32" : "0"})
        .declare("seed", kLong, {})
        .declare("offset", kLong, {})
        .raw_node("aten._scaled_dot_product_efficient_attention.default",
                  {tensor("query", "q"), tensor("key", "k"), tensor("value", "v"),
                   none("attn_bias"), flag("compute_log_sumexp", asked)},
                  R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"l"}},)"
                  R"({"as_tensor":{"name":"seed"}},{"as_tensor":{"name":"offset"}}])")
        .output("y")
        .output("l")
        .output("offset");
    const auto program = lower(text.json());
    ASSERT_TRUE(program) << program.error().message;
    const Tensor zeros = make_tensor(DType::kF32, {1, 1, 4, 2}, Doubles(8, 0));
    const Tensor* inputs[] = {&zeros, &zeros, &zeros};
    const Doubles sums = values_of((*interpret(program->graph, inputs))[1]);
    ASSERT_EQ(sums.size(), asked ? 32u : 0u);
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_EQ(sums[i], i < 4 ? static_cast<double>(std::log(4.0F)) : kInf) << i;
  }
}

// The backward op, which may run elsewhere, would drop other weights than the forward one did.
TEST(Attention, fused_kernels_that_drop_are_refused) {
  ModelText text;
  for (const char* name : {"q", "k", "v"}) text.input(name, kFloat, {1, 1, 4, 2});
  text.declare("y", kFloat, {"1", "1", "4", "2"})
      .raw_node("aten._scaled_dot_product_cudnn_attention.default",
                {tensor("query", "q"), tensor("key", "k"), tensor("value", "v"), none("attn_bias"),
                 flag("compute_log_sumexp", true), real("dropout_p", "0.1")},
                R"([{"as_tensor":{"name":"y"}}])")
      .output("y");
  const auto program = lower(text.json());
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, Code::kUnsupported);
  EXPECT_NE(program.error().message.find("dropout in a fused kernel"), std::string::npos);
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

}  // namespace
}  // namespace kiln
