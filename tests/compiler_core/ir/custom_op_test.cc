#include "compiler_core/ir/custom_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "tests/compiler_core/ir/sample_custom_op.h"

namespace kiln {
namespace {

using testing::swish_op;

// What calling `op` on two operands of these types leaves.
Result<Graph> called(const CustomOp& op, Shape a = {2, 3}, DType dtype = DType::kF32) {
  GraphBuilder b;
  const NodeId in[] = {b.input(dtype, a), b.input(dtype, a)};
  return b.finish({op.call(b, in)});
}

void expect_refused(const CustomOp& op, const std::vector<std::string>& words,
                    Code code = Code::kInvalidArgument) {
  const auto graph = called(op);
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().code, code);
  for (const std::string& word : words)
    EXPECT_NE(graph.error().message.find(word), std::string::npos) << graph.error().message;
}

TEST(CustomOp, ACallIsANodeThatTheReferenceExplains) {
  const auto graph = called(swish_op());
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(verify(*graph));
  const Node& node = graph->node(graph->outputs()[0]);
  EXPECT_EQ(node.op, Op::kCustomCall);
  EXPECT_EQ(node.shape, (Shape{2, 3}));
  Tensor x(DType::kF32, {2, 3}), bias(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) x.set(i, static_cast<double>(i)), bias.set(i, 1);
  const Tensor* inputs[] = {&x, &bias};
  const auto out = interpret(*graph, inputs);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_FLOAT_EQ(static_cast<float>((*out)[0].get(2)), 2 / (1 + std::exp(-2.0f)) + 1);
}

TEST(CustomOp, EqualCallsAreOneNode) {
  GraphBuilder b;
  const NodeId in[] = {b.input(DType::kF32, {4}), b.input(DType::kF32, {4})};
  const CustomOp op = swish_op();
  EXPECT_EQ(op.call(b, in), op.call(b, in));
  CustomOp other = op;
  other.kernels[0].source += "// another\n";
  EXPECT_NE(op.call(b, in), other.call(b, in));
}

TEST(CustomOp, AShapeFunctionThatThrowsIsHeard) {
  GraphBuilder b;
  const NodeId in[] = {b.input(DType::kF32, {4}), b.input(DType::kF32, {5})};
  EXPECT_EQ(swish_op().call(b, in), kInvalidNode);
  ASSERT_NE(b.error(), nullptr);
  EXPECT_EQ(b.error()->code, Code::kInvalidArgument);
  EXPECT_EQ(
      b.error()->message,
      "custom op tests::swish_bias: its shape function fails: swish_bias takes two tensors of "
      "one type");
  CustomOp op = swish_op();
  op.shape = [](auto) -> OperandType { throw 7; };
  expect_refused(op, {"shape function", "no std::exception"});
}

TEST(CustomOp, AShapeFunctionThatLiesIsRefusedNamingBoth) {
  CustomOp op = swish_op();
  op.shape = [](auto) { return OperandType{DType::kF32, {3, 2}}; };
  expect_refused(op, {"says f32[3,2]", "gives f32[2,3]"});
  op.shape = [](auto) { return OperandType{DType::kF64, {2, 3}}; };
  expect_refused(op, {"says f64[2,3]", "gives f32[2,3]"});
}

TEST(CustomOp, AReferenceThatThrowsOrDoesNotBuildIsRefused) {
  CustomOp op = swish_op();
  op.reference = [](GraphBuilder&, auto) -> NodeId { throw std::runtime_error("no idea"); };
  expect_refused(op, {"reference", "no idea"});
  op.reference = [](GraphBuilder& b, std::span<const NodeId> in) { return b.matmul(in[0], in[1]); };
  expect_refused(op, {"reference", "matmul"});
  op.reference = [](GraphBuilder&, auto) { return NodeId{99}; };
  expect_refused(op, {"reference"});
  op.reference = {};
  expect_refused(op, {"needs a shape function and a reference"});
}

TEST(CustomOp, DynamicSizesAreRefused) {
  GraphBuilder b;
  const Dim s = Dim::symbol(b.symbol({1, 8}, 4));
  const NodeId in[] = {b.input(DType::kF32, {s}), b.input(DType::kF32, {s})};
  swish_op().call(b, in);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.error()->code, Code::kUnsupported);
  EXPECT_NE(b.error()->message.find("static"), std::string::npos) << b.error()->message;
}

TEST(CustomOp, KernelsKeepTheRules) {
  using Change = void (*)(CustomKernel&);
  const std::pair<Change, const char*> changes[] = {
      {[](CustomKernel& k) { k.backend = "metal"; }, "'metal' is no backend"},
      {[](CustomKernel& k) { k.backend = "cuda"; }, "two kernels for cuda"},
      {[](CustomKernel& k) { k.function = "a b"; }, "'a b' is not a name"},
      {[](CustomKernel& k) { k.function = "KILN_x"; }, "'KILN_x' is not a name"},
      {[](CustomKernel& k) { k.source = ""; }, "source is empty"},
      {[](CustomKernel& k) { k.source.resize((1 << 20) + 1); }, "1 MiB"},
      {[](CustomKernel& k) { k.items = -1; }, "items"},
      {[](CustomKernel& k) { k.block = "TILE"; }, "'TILE' is not a product"},
      {[](CustomKernel& k) { k.block = ""; }, "'' is not a product"},
      {[](CustomKernel& k) { k.block = "4**2"; }, "'4**2' is not a product"},
      {[](CustomKernel& k) { k.block = "9999999999*9999999999"; }, "is not a product"},
      {[](CustomKernel& k) { k.decisions[0].values = {}; }, "UNROLL needs 1 to 64 values"},
      {[](CustomKernel& k) { k.decisions[0].name = "1x"; }, "'1x' is not a name"},
      {[](CustomKernel& k) { k.decisions[0].name = "swish"; }, "'swish' is not a name"},
      {[](CustomKernel& k) { k.decisions.push_back(k.decisions[0]); }, "declared twice"},
      {[](CustomKernel& k) { k.decisions.resize(17, k.decisions[0]); }, "16 decisions"},
  };
  for (const auto& [change, word] : changes) {
    CustomOp op = swish_op();
    change(op.kernels[0]);
    expect_refused(op, {"tests::swish_bias", word});
  }
  CustomOp op = swish_op();
  op.name = "no good";
  expect_refused(op, {"'no good' is not a name"});
}

TEST(CustomOp, AReferenceHasCoreOpsOnly) {
  CustomOp outer = swish_op();
  outer.reference = [](GraphBuilder& b, std::span<const NodeId> in) {
    return swish_op().call(b, in);
  };
  expect_refused(outer, {"calls tests::swish_bias"});
}

TEST(CustomCall, ProductsOfNumbersAndDecisions) {
  CustomKernel kernel = swish_op().kernels[0];
  kernel.decisions.push_back({"TILE", {7}});
  const int64_t values[] = {4, 7};
  EXPECT_EQ(evaluate_product(kernel, values, "12").value(), 12);
  EXPECT_EQ(evaluate_product(kernel, values, "TILE").value(), 7);
  EXPECT_EQ(evaluate_product(kernel, values, "3*TILE*UNROLL").value(), 84);
  EXPECT_FALSE(evaluate_product(kernel, values, "-3"));
}

TEST(CustomCall, InliningPutsTheReferenceInItsPlace) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  const NodeId in[] = {b.unary(Op::kSin, x), x};
  const NodeId y = swish_op().call(b, in);
  const auto graph = b.finish({b.unary(Op::kCos, y), y});
  ASSERT_TRUE(graph);
  ASSERT_TRUE(has_custom_calls(*graph));
  const auto plain = inline_custom_calls(*graph);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_FALSE(has_custom_calls(*plain));
  EXPECT_TRUE(verify(*plain));
  Tensor tensor(DType::kF32, {4});
  for (int64_t i = 0; i < 4; ++i) tensor.set(i, 0.3 * static_cast<double>(i));
  const Tensor* inputs[] = {&tensor};
  const auto a = interpret(*graph, inputs), c = interpret(*plain, inputs);
  ASSERT_TRUE(a && c);
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(std::ranges::equal((*a)[k].bytes(), (*c)[k].bytes()));
}

TEST(CustomCall, RoundTripsAndSurvivesDamage) {
  const auto graph = called(swish_op());
  ASSERT_TRUE(graph);
  const CustomCall& call = *std::get<CustomAttr>(graph->node(graph->outputs()[0]).attr).call;
  const std::string word = print_custom_call(call);
  EXPECT_EQ(word.find_first_not_of("0123456789abcdef"), std::string::npos);
  const auto parsed = parse_custom_call(word);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, call);

  std::mt19937 random(5);
  int survivors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = word;
    // Bytes of the fields, not only of the hex digits.
    for (unsigned edits = 1 + random() % 2; edits-- > 0;) {
      const size_t at = random() % (text.size() / 2) * 2;
      if (random() % 3 == 0)
        text.erase(at, 2);
      else
        text[at + random() % 2] = "0123456789abcdef"[random() % 16];
    }
    const auto damaged = parse_custom_call(text);
    if (!damaged) {
      EXPECT_EQ(damaged.error().code, Code::kInvalidArgument);
      continue;
    }
    EXPECT_TRUE(verify_custom_call(*damaged));
    ++survivors;
  }
  EXPECT_GT(survivors, 0);  // damage inside a source is not noticed, and need not be
  for (const char* text : {"", "0", "zz", "ff", "313a", "393939393939393939393a"})
    EXPECT_FALSE(parse_custom_call(text)) << text;
}

TEST(CustomCall, GraphsWithOneRoundTripAsText) {
  const auto graph = called(swish_op());
  ASSERT_TRUE(graph);
  const auto parsed = parse_graph(print(*graph));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, *graph);
}

}  // namespace
}  // namespace kiln
