// Numbers that a program takes out of tensors: operands and places, and sizes where no input reaches
// them (known_numbers.h).
#include "compiler_core/frontend/numbers.h"

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

// x * z.item(), and the number itself; torch has a symbol for an integer.
TEST(Numbers, that_are_taken_out_of_tensors_are_operands) {
  for (const bool is_integer : {false, true}) {
    ModelText model;
    const std::string kind = is_integer ? "as_sym_int" : "as_sym_float";
    const std::string number = "{\"" + kind + R"(":{"as_name":"n"}})";
    model.input("x", kFloat, {2}).input("z", is_integer ? kLong : kFloat, {1});
    if (is_integer) model.integer_value("n", "u0");
    model.raw_node("aten.item.default", {tensor("self", "z")}, "[" + number + "]")
        .node("aten.mul.Tensor", {kX, argument("other", kind, R"({"as_name":"n"})")}, "y", kFloat,
              {2})
        .output("y")
        .output_spec(R"({"user_output":{"arg":)" + number + "}}");
    const auto program = lower(model.json());
    ASSERT_TRUE(program) << program.error().message;
    const Graph& graph = program->graph;
    EXPECT_EQ(graph.node(graph.outputs()[0]).dtype, DType::kF32);
    EXPECT_EQ(graph.node(graph.outputs()[1]).dtype, is_integer ? DType::kI64 : DType::kF64);
    const Tensor x = make_tensor(DType::kF32, {2}, Doubles{2, -3});
    const Tensor z = make_tensor(is_integer ? DType::kI64 : DType::kF32, {1}, Doubles{4});
    const Tensor* const inputs[] = {&x, &z};
    const auto outputs = interpret(graph, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(values_of((*outputs)[0]), (Doubles{8, -12}));
    EXPECT_EQ(values_of((*outputs)[1]), (Doubles{4}));
  }
}

// x[n], x.narrow(0, n, 2), and a copy of x in which that is 9, of n = z.item().
TEST(Numbers, that_are_taken_out_of_tensors_are_places) {
  const auto named_number = [](const std::string& argument_name) {
    return argument(argument_name, "as_sym_int", R"({"as_name":"n"})");
  };
  ModelText model;
  model.input("x", kFloat, {4, 2}).input("z", kLong, {}).integer_value("n", "u0");
  model.integer_value("o", "u1");
  model.raw_node("aten.item.default", {tensor("self", "z")}, R"([{"as_sym_int":{"as_name":"n"}}])")
      .node("aten.select.int", {kX, integer("dim", 0), named_number("index")}, "row", kFloat, {2})
      // As torch.export binds the place of a view that data give.
      .raw_node("aten.sym_storage_offset.default", {tensor("self", "row")},
                R"([{"as_sym_int":{"as_name":"o"}}])")
      .node("aten.narrow.default",
            {kX, integer("dim", 0), named_number("start"), integer("length", 2)}, "rows", kFloat,
            {2, 2})
      .node("aten.clone.default", {kX}, "changed", kFloat, {4, 2})
      .node("aten.narrow.default",
            {tensor("self", "changed"), integer("dim", 0), named_number("start"),
             integer("length", 2)},
            "part", kFloat, {2, 2})
      .node("aten.fill_.Scalar", {tensor("self", "part"), real("value", "9.0")}, "filled", kFloat,
            {2, 2})
      .output("row")
      .output("rows")
      .output("changed");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor x = make_tensor(DType::kF32, {4, 2}, Doubles{1, 2, 3, 4, 5, 6, 7, 8});
  for (const int64_t place : {1, -3}) {
    const Tensor z = make_tensor(DType::kI64, {}, Doubles{static_cast<double>(place)});
    const Tensor* const inputs[] = {&x, &z};
    const auto outputs = interpret(program->graph, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message;
    EXPECT_EQ(values_of((*outputs)[0]), (Doubles{3, 4}));
    EXPECT_EQ(values_of((*outputs)[1]), (Doubles{3, 4, 5, 6}));
    EXPECT_EQ(values_of((*outputs)[2]), (Doubles{1, 2, 9, 9, 9, 9, 7, 8}));
  }
}

// n = tensor[place].item(), of a tensor of one axis; torch has the symbol u0 for it.
ModelText& take_number(ModelText& model, const std::string& taken_from, const std::string& place) {
  return model.integer_value("n", "u0")
      .node("aten.select.int", {tensor("self", taken_from), integer("dim", 0), place}, "one", kLong,
            std::vector<int64_t>{})
      .raw_node("aten.item.default", {tensor("self", "one")},
                R"([{"as_sym_int":{"as_name":"n"}}])");
}
std::string named_number(const std::string& argument_name, const std::string& number = "n") {
  return argument(argument_name, "as_sym_int", R"({"as_name":")" + number + "\"}");
}

// Lowers arange(n): the program, if n is known without a call.
Result<ExportedProgram> range_to_number(ModelText& model) {
  model.symbolic_node("aten.arange.default", {named_number("end")}, "range", kLong, {"u0"})
      .output("range");
  return lower(model.json());
}
void expect_unknown(ModelText& model) {
  const auto program = range_to_number(model);
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().code, Code::kUnsupported);
  EXPECT_NE(program.error().message.find("while it runs"), std::string::npos)
      << program.error().message;
}

// n is 4, m is 2 * n: arange(n, m), and x of [n, 3].
TEST(Numbers, that_no_input_reaches_are_sizes) {
  ModelText model;
  model.input("x", kFloat, {1, 3})
      .node("aten.arange.default", {integer("end", 5)}, "places", kLong, {5});
  take_number(model, "places", integer("index", 4))
      .integer_value("m", "u1")
      .raw_node("_operator.mul", {named_number("a"), integer("b", 2)},
                R"([{"as_sym_int":{"as_name":"m"}}])")
      .symbolic_node("aten.arange.start", {named_number("start"), named_number("end", "m")},
                     "range", kLong, {"u2"})
      .symbolic_node("aten.expand.default",
                     {kX, argument("size", "as_sym_ints", R"([{"as_name":"n"},{"as_int":3}])")},
                     "wide", kFloat, {"u0", "3"})
      .output("range")
      .output("wide");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  const Graph& graph = program->graph;
  EXPECT_EQ(graph.node(graph.outputs()[0]).shape, (Shape{4}));
  EXPECT_EQ(graph.node(graph.outputs()[1]).shape, (Shape{4, 3}));
}

// n is 2.5, of f32 positions: arange(n, 5), and x * n.
TEST(Numbers, that_no_input_reaches_may_be_real) {
  const std::string number = R"({"as_name":"n"})";
  ModelText model;
  model.input("x", kFloat, {1})
      .node("aten.full.default", {integers("size", {1}), real("fill_value", "2.5")}, "places",
            kFloat, {1})
      .raw_node("aten.item.default", {tensor("self", "places")},
                R"([{"as_sym_float":{"as_name":"n"}}])")
      .node("aten.arange.start", {argument("start", "as_sym_float", number), integer("end", 5)},
            "range", kFloat, {3})
      .node("aten.mul.Tensor", {kX, argument("other", "as_sym_float", number)}, "y", kFloat, {1})
      .output("range")
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor x = make_tensor(DType::kF32, {1}, Doubles{2});
  const Tensor* const inputs[] = {&x};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(values_of((*outputs)[0]), (Doubles{2.5, 3.5, 4.5}));
  EXPECT_EQ(values_of((*outputs)[1]), (Doubles{5}));
}

// range = arange(n) of n = t[1].item(), where t is a constant of the model, behind its input.
ModelText range_to_constant() {
  ModelText model;
  model.input("x", kFloat, {1}).constant("t", kLong, {2});
  take_number(model, "c_t", integer("index", 1))
      .symbolic_node("aten.arange.default", {named_number("end")}, "range", kLong, {"u0"});
  return model;
}
std::optional<Tensor> seven_and_three(const ExportedInput&) {
  return make_tensor(DType::kI64, {2}, Doubles{7, 3});
}

TEST(Numbers, of_a_constant_tensor_are_known_where_its_elements_are) {
  const std::string model = range_to_constant().output("range").json();
  const auto program = lower(model, seven_and_three);
  ASSERT_TRUE(program) << program.error().message;
  const Graph& graph = program->graph;
  EXPECT_EQ(graph.node(graph.outputs()[0]).shape, (Shape{3}));
  ASSERT_EQ(program->inputs.size(), 2U);
  EXPECT_EQ(program->inputs[1].kind, ExportedInput::Kind::kConstantTensor);
  const auto unknown = lower(model);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("while it runs"), std::string::npos);
}

TEST(Numbers, of_a_constant_tensor_that_the_program_changes_are_refused) {
  const std::string model =
      range_to_constant()
          .node("aten.add_.Scalar", {tensor("self", "c_t"), integer("other", 1)}, "sum", kLong, {2})
          .output("range")
          .json();
  const auto program = lower(model, seven_and_three);
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message.find("changed in place"), std::string::npos)
      << program.error().message;
}

TEST(Numbers, of_an_input_are_not_known) {
  ModelText model;
  model.input("z", kLong, {5});
  take_number(model, "z", integer("index", 4));
  expect_unknown(model);
}

// The place is a size of an input.
TEST(Numbers, at_places_that_a_call_brings_are_not_known) {
  ModelText model;
  model.symbolic_input("x", kFloat, {"s0"})
      .range("s0", R"({"min_val":2,"max_val":8})")
      .integer_value("rows", "s0")
      .node("aten.arange.default", {integer("end", 10)}, "places", kLong, {10});
  take_number(model, "places", named_number("index", "rows"));
  expect_unknown(model);
}

// An archive may ask for as much arithmetic as it likes.
TEST(Numbers, of_very_many_elements_are_not_evaluated) {
  constexpr int64_t kMany = int64_t{1} << 40;
  ModelText model;
  model.input("x", kFloat, {1})
      .node("aten.arange.default", {integer("end", kMany)}, "places", kLong, {kMany});
  take_number(model, "places", integer("index", 4));
  expect_unknown(model);
}

// torch._check(n == 2): torch.export writes 2 wherever the program says n.
TEST(Numbers, that_can_only_be_one_stand_in_the_nodes) {
  ModelText model;
  model.input("x", kFloat, {3}).input("z", kLong, {});
  model.raw_node("aten.item.default", {tensor("self", "z")}, R"([{"as_int":2}])")
      .node("aten.narrow.default",
            {kX, integer("dim", 0), integer("start", 0), integer("length", 2)}, "y", kFloat, {2})
      .output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
}

TEST(Numbers, cannot_be_sizes_or_of_several_elements) {
  const std::string number = R"([{"as_sym_float":{"as_name":"n"}}])";
  ModelText several;
  several.input("x", kFloat, {2}).raw_node("aten.item.default", {kX}, number).output("x");
  const auto refused = lower(several.json());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("more than one element"), std::string::npos);
  ModelText filled;
  filled.input("x", kFloat, {}).raw_node("aten.item.default", {kX}, number);
  filled
      .node("aten.full.default",
            {integers("size", {2}), argument("fill_value", "as_sym_float", R"({"as_name":"n"})")},
            "y", kFloat, {2})
      .output("y");
  const auto full = lower(filled.json());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kUnsupported);
  EXPECT_NE(full.error().message.find("computes while it runs"), std::string::npos);
}

}  // namespace
}  // namespace kiln
