#include "compiler_core/frontend/onnx/onnx_program.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/verify.h"
#include "tests/support/onnx_writer.h"

namespace kiln {
namespace {

using namespace kiln::testing;

Tensor tensor_of(std::vector<int64_t> sizes, const std::vector<double>& values) {
  Tensor tensor(DType::kF32, std::move(sizes));
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, values[static_cast<size_t>(i)]);
  return tensor;
}

OnnxGraphText relu() {
  return {{onnx_node("Relu", {"x"}, {"y"}, {}, "/act/Relu")},
          {},
          {onnx_value("x", kOnnxFloat, {"2", "3"})},
          {onnx_value("y", kOnnxFloat, {"2", "3"})}};
}

Error refused(const OnnxGraphText& graph) {
  const auto program = read_onnx_bytes(onnx_model(graph), std::nullopt);
  EXPECT_FALSE(program);
  return program ? Error{} : program.error();
}

bool says(const Error& error, std::string_view part) {
  return error.message.find(part) != std::string::npos;
}

TEST(OnnxProgram, IsReadOntoCoreOps) {
  const auto program = read_onnx_bytes(onnx_model(relu()), std::nullopt);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(verify(program->graph));
  ASSERT_EQ(program->inputs.size(), 1u);
  EXPECT_EQ(program->inputs[0].name, "x");
  EXPECT_EQ(program->outputs[0].name, "y");
  const Tensor x = tensor_of({2, 3}, {-1, 2, -3, 4, -5, 6});
  const Tensor* inputs[] = {&x};
  const auto results = interpret(program->graph, inputs);
  ASSERT_TRUE(results);
  EXPECT_EQ((*results)[0].get(0), 0);
  EXPECT_EQ((*results)[0].get(5), 6);
  EXPECT_EQ(program->graph.origins()[0].op, "onnx.Relu");
  EXPECT_EQ(program->graph.origins()[0].module, "act");
}

TEST(OnnxProgram, WeightsAreInputsAndNumbersAreConstants) {
  OnnxGraphText graph = relu();
  graph.nodes = {onnx_node("MatMul", {"x", "w"}, {"h"}), onnx_node("Mul", {"h", "two"}, {"y"})};
  graph.initializers = {onnx_tensor_of<float>("w", kOnnxFloat, {3, 1}, {1, 2, 3}),
                        onnx_tensor_of<float>("two", kOnnxFloat, {}, {2})};
  const auto program = read_onnx_bytes(onnx_model(graph), std::nullopt);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->inputs.size(), 2u);
  EXPECT_EQ(program->inputs[1].name, "w");
  EXPECT_EQ(program->inputs[1].kind, ExportedInput::Kind::kParameter);
  EXPECT_TRUE(program->inputs[1].has_payload);
}

// Shape -> Gather -> Concat -> Reshape, as exporters flatten: the result's size is a polynomial.
TEST(OnnxProgram, ArithmeticOnDynamicSizesIsDoneWhileReading) {
  OnnxGraphText graph;
  graph.inputs = {onnx_value("x", kOnnxFloat, {"batch", "4", "length"})};
  graph.outputs = {onnx_value("y", kOnnxFloat, {"?", "?"})};
  graph.initializers = {onnx_tensor_of<int64_t>("zero", kOnnxInt64, {}, {0}),
                        onnx_tensor_of<int64_t>("two", kOnnxInt64, {}, {2}),
                        onnx_tensor_of<int64_t>("axes", kOnnxInt64, {1}, {0}),
                        onnx_tensor_of<int64_t>("rest", kOnnxInt64, {1}, {-1})};
  graph.nodes = {onnx_node("Shape", {"x"}, {"s"}),
                 onnx_node("Gather", {"s", "zero"}, {"b"}),
                 onnx_node("Gather", {"s", "two"}, {"l"}),
                 onnx_node("Mul", {"b", "l"}, {"rows"}),
                 onnx_node("Unsqueeze", {"rows", "axes"}, {"row"}),
                 onnx_node("Concat", {"row", "rest"}, {"shape"}, {onnx_integer("axis", 0)}),
                 onnx_node("Transpose", {"x"}, {"t"}, {onnx_integers("perm", {0, 2, 1})}),
                 onnx_node("Reshape", {"t", "shape"}, {"y"})};
  const auto program = read_onnx_bytes(onnx_model(graph), std::nullopt);
  ASSERT_TRUE(program) << program.error().message;
  const Node& y = program->graph.node(program->graph.outputs()[0]);
  EXPECT_EQ(to_string(y.shape), "[s0*s1,4]");
  EXPECT_EQ(program->graph.symbols().size(), 2u);
  EXPECT_EQ(program->graph.symbols()[0].range.min, 1);
}

// A table of positions, of which a text's length is taken: a text is at most as long as it.
TEST(OnnxProgram, ASliceOfAConstantSizeToADynamicOneBoundsIt) {
  OnnxGraphText graph;
  graph.inputs = {onnx_value("x", kOnnxFloat, {"length", "2"})};
  graph.outputs = {onnx_value("y", kOnnxFloat, {"length", "2"})};
  graph.initializers = {
      onnx_tensor_of<float>("table", kOnnxFloat, {6, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
      onnx_tensor_of<int64_t>("zero", kOnnxInt64, {1}, {0}),
      onnx_tensor_of<int64_t>("one", kOnnxInt64, {1}, {1})};
  graph.nodes = {onnx_node("Shape", {"x"}, {"s"}), onnx_node("Gather", {"s", "zero"}, {"l"}),
                 onnx_node("Add", {"l", "one"}, {"end"}),
                 onnx_node("Slice", {"table", "one", "end", "zero"}, {"positions"}),
                 onnx_node("Add", {"x", "positions"}, {"y"})};
  const auto program = read_onnx_bytes(onnx_model(graph), std::nullopt);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(verify(program->graph));
  EXPECT_EQ(program->graph.symbols()[0].range, (SymbolRange{1, 5}));
  EXPECT_EQ(to_string(program->graph.node(program->graph.outputs()[0]).shape), "[s0,2]");
}

TEST(OnnxProgram, EveryUncoveredOpIsNamedWithItsNodeAndAWayOut) {
  OnnxGraphText graph = relu();
  graph.nodes = {onnx_node("NonZero", {"x"}, {"n"}, {}, "first"),
                 onnx_node("NonZero", {"x"}, {"m"}, {}, "second"),
                 onnx_node("LSTM", {"x"}, {"y"}, {}, "cell")};
  const Error error = refused(graph);
  EXPECT_EQ(error.code, Code::kUnsupported);
  for (const char* part : {"NonZero (2 uses, the first node 'first'", "depends on data",
                           "LSTM (1 use", "torch.export"})
    EXPECT_TRUE(says(error, part)) << error.message;
}

TEST(OnnxProgram, WhatDoesNotFitIsAnErrorOfItsNode) {
  OnnxGraphText graph = relu();
  graph.nodes = {onnx_node("Relu", {"gone"}, {"y"}, {}, "n1")};
  EXPECT_TRUE(says(refused(graph), "node 'n1' (Relu): uses 'gone', which no input"));
  graph.nodes = {onnx_node("Transpose", {"x"}, {"y"}, {onnx_integers("perm", {0, 0})}, "n2")};
  EXPECT_TRUE(says(refused(graph), "node 'n2' (Transpose): attribute 'perm' is no order"));
  graph.nodes = {onnx_node("Reshape", {"x", "x"}, {"y"}, {}, "n3")};
  EXPECT_TRUE(says(refused(graph), "computed from data"));
  graph = relu();
  graph.nodes.push_back(graph.nodes[0]);
  EXPECT_TRUE(says(refused(graph), "'y' is defined twice"));
  graph = relu();
  graph.opset = 10;
  EXPECT_TRUE(says(refused(graph), "opset 10 is not covered, opsets 11 to"));
}

// What a model may have for a number, and no integer is.
TEST(OnnxProgram, NumbersThatAreNoSizesAreRefused) {
  constexpr char kNaN[] = "\0\0\xc0\x7f", kInfinity[] = "\0\0\x80\x7f", kOne[] = "\0\0\x80\x3f";
  const auto scales = [&](const char* last) { return std::string(kOne, 4) + std::string(last, 4); };
  OnnxGraphText graph = relu();
  graph.nodes = {onnx_node("Resize", {"x", "", "s"}, {"y"}, {}, "grow")};
  for (const std::string& bytes : {scales(kNaN), scales("\0\0\0\0"), scales("\0\0\x80\xff")}) {
    graph.initializers = {onnx_tensor("s", kOnnxFloat, {2}, bytes)};
    EXPECT_TRUE(says(refused(graph), "node 'grow' (Resize): a size is not positive"))
        << refused(graph).message;
  }
  graph.nodes = {onnx_node("Cast", {"x"}, {"i"}, {onnx_integer("to", 7)}),
                 onnx_node("OneHot", {"i", "d", "v"}, {"y"}, {}, "hot")};
  for (const char* depth : {kNaN, kInfinity}) {
    graph.initializers = {onnx_tensor("d", kOnnxFloat, {1}, std::string(depth, 4)),
                          onnx_tensor("v", kOnnxFloat, {2}, scales(kOne))};
    EXPECT_TRUE(says(refused(graph), "node 'hot' (OneHot): needs a depth"))
        << refused(graph).message;
  }
}

TEST(OnnxProgram, AFewBytesCannotClaimMuch) {
  OnnxGraphText graph = relu();
  graph.nodes = {onnx_node("Add", {"x", "w"}, {"y"})};
  graph.initializers = {onnx_tensor("w", kOnnxFloat, {int64_t{1} << 40, 1 << 10}, "abcd")};
  EXPECT_TRUE(says(refused(graph), "holds 4 bytes of"));
  graph.initializers = {onnx_tensor("w", kOnnxFloat, {int64_t{1} << 40, int64_t{1} << 40}, "")};
  EXPECT_EQ(refused(graph).code, Code::kInvalidArgument);
  graph.initializers = {onnx_tensor("w", kOnnxFloat, std::vector<int64_t>(17, 1), "abcd")};
  EXPECT_TRUE(says(refused(graph), "more than 16"));
}

TEST(OnnxProgram, AModelThatEndsEarlyIsRefused) {
  const std::string whole = onnx_model(relu());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(read_onnx_bytes(std::string_view(whole).substr(0, size), std::nullopt)) << size;
}

}  // namespace
}  // namespace kiln
