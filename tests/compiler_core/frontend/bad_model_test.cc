// Models that lie, dangle or ask for what is not covered: each refused by name and place.
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/frontend/model_text.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

const std::string kX = tensor("self", "x");

ModelText relu() {
  ModelText model;
  model.input("x", kFloat, {2, 3}).node("aten.relu.default", {kX}, "y", kFloat, {2, 3}).output("y");
  return model;
}

void expect_refused(const std::string& json, Code code, const std::vector<std::string>& parts) {
  const auto program = lower(json);
  ASSERT_FALSE(program) << print(program->graph);
  EXPECT_EQ(program.error().code, code) << program.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(program.error().message.find(part), std::string::npos)
        << "'" << part << "' in: " << program.error().message;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(BadModel, the_model_that_the_others_break_is_good) {
  EXPECT_TRUE(lower(relu().json()));
}

TEST(BadModel, no_json) {
  expect_refused("", Code::kInvalidArgument, {"JSON"});
  expect_refused("[]", Code::kInvalidArgument, {"object"});
  expect_refused(relu().json().substr(0, 200), Code::kInvalidArgument, {"JSON"});
  expect_refused(std::string(5000, '['), Code::kInvalidArgument, {"JSON"});
}

TEST(BadModel, another_schema_version) {
  for (const int major : {7, 9})
    expect_refused(relu().schema_major(major).json(), Code::kInvalidArgument,
                   {"schema version " + std::to_string(major), "8", "export again"});
}

TEST(BadModel, a_reference_to_nothing) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.relu.default", {tensor("self", "ghost")}, "y", kFloat, {2})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument, {"node 0", "aten.relu.default", "'ghost'"});
}

TEST(BadModel, a_cycle) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.add.Tensor", {kX, tensor("other", "b")}, "a", kFloat, {2})
      .node("aten.relu.default", {tensor("self", "a")}, "b", kFloat, {2})
      .output("b");
  expect_refused(model.json(), Code::kInvalidArgument, {"node 0", "'b'", "before it"});
}

TEST(BadModel, an_output_that_nothing_defines) {
  expect_refused(relu().output("ghost").json(), Code::kInvalidArgument, {"output 1", "'ghost'"});
}

TEST(BadModel, a_name_defined_twice) {
  expect_refused(relu().node("aten.neg.default", {kX}, "y", kFloat, {2, 3}).json(),
                 Code::kInvalidArgument, {"node 1", "'y'", "already"});
}

TEST(BadModel, a_tensor_without_a_declared_type) {
  expect_refused(replaced(relu().json(), R"("y":{"dtype")", R"("q":{"dtype")"),
                 Code::kInvalidArgument, {"'y'", "tensor_values"});
}

TEST(BadModel, a_declared_type_that_the_operands_do_not_imply) {
  ModelText shape, dtype;
  shape.input("x", kFloat, {2, 3}).node("aten.relu.default", {kX}, "y", kFloat, {3, 2}).output("y");
  expect_refused(shape.json(), Code::kInvalidArgument, {"node 0", "f32[3,2]", "f32[2,3]"});
  dtype.input("x", kFloat, {2}).node("aten.relu.default", {kX}, "y", kDouble, {2}).output("y");
  expect_refused(dtype.json(), Code::kInvalidArgument, {"f64[2]", "f32[2]"});
}

// Whatever the op, in the middle or at the end, of one result or of several.
TEST(BadModel, a_declared_shape_is_refused_with_the_op_both_shapes_and_the_users_line) {
  const auto traced = [](ModelText model) {
    return model.stack_trace(
        R"x("File \"net.py\", line 7, in forward\n    y = f(x)\n  File \"lib/site-packages/torch/f.py\", line 1, in f\n    return g(x)")x");
  };
  const auto middle =
      traced(ModelText().input("x", kFloat, {2, 3}))
          .node("aten.sum.dim_IntList", {kX, integers("dim", {1})}, "a", kFloat, {3})
          .node("aten.relu.default", {tensor("self", "a")}, "y", kFloat, {3})
          .output("y");
  expect_refused(
      middle.json(), Code::kInvalidArgument,
      {"node 0", "aten.sum.dim_IntList", "net.py:7: y = f(x)", "'a'", "f32[3]", "f32[2]"});
  const auto last = traced(ModelText().input("x", kFloat, {2, 3}).input("w", kFloat, {5, 3}))
                        .node("aten.relu.default", {kX}, "a", kFloat, {2, 3})
                        .node("aten.linear.default", {tensor("input", "a"), tensor("weight", "w")},
                              "y", kFloat, {2, 3})
                        .output("y");
  expect_refused(
      last.json(), Code::kInvalidArgument,
      {"node 1", "aten.linear.default", "net.py:7: y = f(x)", "'y'", "f32[2,3]", "f32[2,5]"});
  const auto second = traced(ModelText().input("x", kFloat, {4, 3}))
                          .declare("a", kFloat, {"1", "3"})
                          .declare("y", kFloat, {"4", "3"})
                          .raw_node("aten.split_with_sizes.default",
                                    {kX, integers("split_sizes", {1, 3}), integer("dim", 0)},
                                    R"([{"as_tensors":[{"name":"a"},{"name":"y"}]}])")
                          .output("y");
  expect_refused(second.json(), Code::kInvalidArgument,
                 {"split_with_sizes", "net.py:7", "'y'", "f32[4,3]", "f32[3,3]"});
}

TEST(BadModel, a_shape_whose_product_overflows) {
  ModelText model;
  model.input("x", kFloat, {int64_t{1} << 40, int64_t{1} << 40}, {1, 1})
      .node("aten.relu.default", {kX}, "y", kFloat, {int64_t{1} << 40, int64_t{1} << 40})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument, {"'x'", "overflow"});
  ModelText expanded;
  expanded.input("x", kFloat, {1})
      .node("aten.expand.default", {kX, integers("size", {int64_t{1} << 40, int64_t{1} << 40})},
            "y", kFloat, {1, 1})
      .output("y");
  expect_refused(expanded.json(), Code::kInvalidArgument, {"aten.expand.default", "overflow"});
}

TEST(BadModel, a_negative_size) {
  ModelText model;
  model.input("x", kFloat, {-4}, {1})
      .node("aten.relu.default", {kX}, "y", kFloat, {-4})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument, {"'x'", "negative"});
}

// Torch writes such strides of tensors in between; how those lie is ours to choose.
TEST(BadModel, a_stride_that_is_not_covered_matters_of_inputs_only) {
  const std::string min =
      R"x({"as_expr":{"expr_str":"Min(Integer(32), Symbol('s0', integer=True))","hint":null}})x";
  const auto with_stride = [&](const std::string& name) {
    const std::string sizes = R"(":{"dtype":7,"sizes":[{"as_int":2},{"as_int":3}],)";
    return replaced(relu().json(), "\"" + name + sizes + R"("strides":[{"as_int":3})",
                    "\"" + name + sizes + R"("strides":[)" + min);
  };
  const auto program = lower(with_stride("y"));
  EXPECT_TRUE(program) << program.error().message;
  expect_refused(with_stride("x"), Code::kUnsupported, {"'x'", "Min"});
  expect_refused(replaced(relu().json(), R"("sizes":[{"as_int":2})", R"("sizes":[)" + min),
                 Code::kUnsupported, {"Min"});
}

TEST(BadModel, a_dtype_that_is_not_covered) {
  for (const auto& [code, name] : std::vector<std::pair<int, std::string>>{
           {9, "complex32"}, {28, "uint16"}, {31, "float8_e4m3fnuz"}, {99, "number 99"}}) {
    ModelText model;
    model.input("x", code, {2}).node("aten.relu.default", {kX}, "y", code, {2}).output("y");
    expect_refused(model.json(), Code::kUnsupported, {"'x'", name, "cast"});
  }
}

TEST(BadModel, an_op_on_complex_numbers_that_is_not_covered) {
  ModelText model;
  model.input("x", kComplex, {2}).node("aten.relu.default", {kX}, "y", kComplex, {2}).output("y");
  expect_refused(model.json(), Code::kUnsupported,
                 {"aten.relu.default", "complex numbers", "real and imaginary parts"});
}

TEST(BadModel, an_op_that_is_not_covered_names_the_users_line_and_what_to_do) {
  ModelText model;
  model
      .stack_trace(
          R"x("File \"net.py\", line 7, in forward\n    return torch.linalg.inv(x)\n  File \"lib/site-packages/torch/linalg.py\", line 1, in inv\n    return inner(x)")x")
      .input("x", kFloat, {2})
      .node("aten.linalg_inv.default", {kX}, "y", kFloat, {2})
      .output("y");
  expect_refused(
      model.json(), Code::kUnsupported,
      {"aten.linalg_inv.default", "net.py:7: return torch.linalg.inv(x)", "outside the program"});
}

TEST(BadModel, an_operator_with_a_missing_or_wrong_argument) {
  ModelText missing, wrong;
  missing.input("x", kFloat, {2}).node("aten.softmax.int", {kX}, "y", kFloat, {2}).output("y");
  expect_refused(missing.json(), Code::kInvalidArgument, {"aten.softmax.int", "'dim'", "missing"});
  wrong.input("x", kFloat, {2})
      .node("aten.softmax.int", {kX, text("dim", "one")}, "y", kFloat, {2})
      .output("y");
  expect_refused(wrong.json(), Code::kInvalidArgument, {"'dim'"});
}

TEST(BadModel, an_axis_that_is_not_there) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.softmax.int", {kX, integer("dim", 1)}, "y", kFloat, {2})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument, {"'dim'", "rank 1"});
}

TEST(BadModel, outputs_and_inputs_that_are_no_tensors) {
  expect_refused(
      relu().output_spec(R"({"user_output":{"arg":{"as_device":{"type":"cpu"}}}})").json(),
      Code::kUnsupported, {"output 1", "neither a tensor nor a number"});
  expect_refused(
      relu().input_spec(R"({"custom_obj":{"arg":{"name":"o"},"custom_obj_name":"o"}})").json(),
      Code::kUnsupported, {"custom_obj"});
}

TEST(BadModel, a_symbolic_size_that_no_sum_or_product_expresses) {
  const std::string json =
      R"x({"expr_str":"FloorDiv(Symbol('s0', integer=True), Integer(2))","hint":null})x";
  const std::string broken =
      replaced(relu().json(), R"({"as_int":2})", R"({"as_expr":)" + json + "}");
  expect_refused(broken, Code::kUnsupported, {"FloorDiv"});
}

TEST(BadModel, an_empty_range_of_a_symbol) {
  ModelText model;
  model.symbolic_input("x", kFloat, {"s0"})
      .range("s0", R"({"min_val":8,"max_val":4})")
      .symbolic_node("aten.relu.default", {kX}, "y", kFloat, {"s0"})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument,
                 {"range", "'s0'", "at least 8", "at most 4"});
}

TEST(BadModel, two_ranges_of_a_symbol_hold_both) {
  const auto with = [](const std::string& first, const std::string& second) {
    ModelText model;
    return model.symbolic_input("x", kFloat, {"s0"})
        .range("s0", first)
        .range("s0", second)
        .symbolic_node("aten.relu.default", {kX}, "y", kFloat, {"s0"})
        .output("y")
        .json();
  };
  const auto met = lower(with(R"({"min_val":2,"max_val":8})", R"({"min_val":4,"max_val":16})"));
  ASSERT_TRUE(met) << met.error().message;
  EXPECT_EQ(met->graph.symbols()[0].range, (SymbolRange{4, 8}));
  expect_refused(with(R"({"min_val":2,"max_val":4})", R"({"min_val":8,"max_val":16})"),
                 Code::kInvalidArgument, {"'s0'", "at least 8", "at most 4"});
  expect_refused(with(R"({"min_val":null,"max_val":-1})", R"({})"), Code::kInvalidArgument,
                 {"'s0'", "at least 0", "at most -1"});
}

TEST(BadModel, a_symbol_that_no_input_has) {
  ModelText free;
  free.stack_trace(R"x("File \"net.py\", line 7, in forward\n    return zeros(n)")x")
      .symbolic_input("x", kFloat, {"s0"})
      .integer_value("n", "s7")
      .symbolic_node("aten.zeros.default",
                     {argument("size", "as_sym_ints", R"([{"as_name":"n"}])")}, "y", kFloat, {"s7"})
      .output("y");
  expect_refused(free.json(), Code::kInvalidArgument,
                 {"node 0", "aten.zeros.default", "net.py:7", "'y'", "'s7'", "no input"});
  ModelText bound;
  bound.symbolic_input("x", kFloat, {"s0"})
      .integer_value("n", "s0")
      .symbolic_node("aten.zeros.default",
                     {argument("size", "as_sym_ints", R"([{"as_name":"n"}])")}, "y", kFloat, {"s0"})
      .output("y");
  const auto good = lower(bound.json());
  EXPECT_TRUE(good) << good.error().message;
}

TEST(BadModel, every_op_that_is_not_covered_is_listed_with_its_uses) {
  ModelText model;
  model.input("x", kFloat, {2});
  model.stack_trace(R"x("File \"net.py\", line 7, in forward\n    a = f(x)")x")
      .node("aten.nonzero.default", {kX}, "a", kLong, {2, 1})
      .node("mylib.frobnicate.default", {kX}, "b", kFloat, {2});
  model.stack_trace(R"x("File \"net.py\", line 9, in forward\n    c = g(x)")x")
      .node("mylib.frobnicate.default", {kX}, "y", kFloat, {2})
      .output("y");
  expect_refused(model.json(), Code::kUnsupported,
                 {"2 ops are not covered", "aten.nonzero.default (1 use), used at net.py:7",
                  "depends on the data", "mylib.frobnicate.default (2 uses), used at net.py:7",
                  "run_decompositions"});
}

TEST(BadModel, a_loop_without_a_body) {
  ModelText model;
  model.input("x", kFloat, {2})
      .raw_node("higher_order.while_loop", {tensor("", "x")}, R"([{"as_tensors":[{"name":"y"}]}])")
      .declare("y", kFloat, {"2"})
      .output("y");
  expect_refused(model.json(), Code::kInvalidArgument, {"higher_order.while_loop", "no body"});
}

TEST(BadModel, indices_that_would_divide_by_zero_or_make_millions_of_nodes) {
  ModelText split;
  split.input("x", kFloat, {1 << 24})
      .declare("y", kFloat, {"1"})
      .raw_node("aten.split.Tensor", {kX, integer("split_size", 1)},
                R"([{"as_tensors":[{"name":"y"}]}])")
      .output("y");
  expect_refused(split.json(), Code::kInvalidArgument, {"too many pieces"});
  ModelText step;
  step.input("x", kFloat, {4})
      .node("aten.slice.Tensor", {kX, integer("dim", 0), integer("step", 0)}, "y", kFloat, {4})
      .output("y");
  expect_refused(step.json(), Code::kInvalidArgument, {"step"});
  ModelText range;
  range
      .node("aten.arange.start_step",
            {integer("start", 0), integer("end", INT64_MIN), integer("step", -1)}, "y", kLong, {1})
      .output("y");
  expect_refused(range.json(), Code::kInvalidArgument, {"overflow"});
}

}  // namespace
}  // namespace kiln
