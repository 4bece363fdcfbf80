#include "client/cli/explain/program_difference.h"

#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/model_text.h"

namespace kiln::cli {
namespace {

using namespace kiln::testing;  // NOLINT: the model's arguments read as they are written

// relu(x * factor + y), summed along `axis`.
std::string model(const std::string& op, const std::string& factor, int64_t columns,
                  const std::string& most = "") {
  const std::string rows = most.empty() ? "4" : "s0";
  const ModelText::Sizes sizes = {rows, std::to_string(columns)};
  ModelText m;
  if (!most.empty()) m.range("s0", R"({"min_val":1,"max_val":)" + most + "}");
  m.symbolic_input("x", kFloat, sizes).symbolic_input("y", kFloat, sizes);
  m.stack_trace(R"x("File \"net.py\", line 7, in forward\n    z = x * f")x");
  m.symbolic_node("aten.mul.Scalar", {tensor("self", "x"), real("other", factor)}, "s", kFloat,
                  sizes);
  m.stack_trace(R"x("File \"net.py\", line 8, in forward\n    r = f(z)")x");
  m.symbolic_node(op, {tensor("self", "s")}, "r", kFloat, sizes);
  m.stack_trace(R"x("File \"net.py\", line 9, in forward\n    return r + y")x");
  m.symbolic_node("aten.add.Tensor", {tensor("self", "r"), tensor("other", "y")}, "z", kFloat,
                  sizes);
  return m.output("z").json();
}

std::vector<Difference> differences(const std::string& first, const std::string& second) {
  const auto a = lower(first), b = lower(second);
  EXPECT_TRUE(a.has_value() && b.has_value());
  if (!a || !b) return {};
  const auto found = find_differences(*a, *b);
  EXPECT_TRUE(found.has_value());
  EXPECT_EQ(found->same(), found->differences.empty());
  return found->differences;
}

const std::string kStock = model("aten.sin.default", "0.5", 8);

TEST(ProgramDifference, OfEqualProgramsIsNothing) {
  EXPECT_TRUE(differences(kStock, model("aten.sin.default", "0.5", 8)).empty());
}

TEST(ProgramDifference, AnotherOperatorIsReportedWhereItStands) {
  const auto found = differences(kStock, model("aten.cos.default", "0.5", 8));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, "operator");
  EXPECT_EQ(found[0].where, "aten.sin.default at net.py:8 in forward");
  EXPECT_EQ(found[0].first, "sin : f32[4,8]");
  EXPECT_EQ(found[0].second, "");
  EXPECT_EQ(found[1].where, "aten.cos.default at net.py:8 in forward");
  EXPECT_EQ(found[1].second, "cos : f32[4,8]");
}

TEST(ProgramDifference, AnotherConstantIsOneDifferenceWithBothValues) {
  const auto found = differences(kStock, model("aten.sin.default", "0.75", 8));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "constant");
  EXPECT_EQ(found[0].where, "aten.mul.Scalar at net.py:7 in forward");
  EXPECT_EQ(found[0].first, "0.5 f32");
  EXPECT_EQ(found[0].second, "0.75 f32");
}

TEST(ProgramDifference, OtherShapesAreReportedAtInputsAndOutputs) {
  const auto found = differences(kStock, model("aten.sin.default", "0.5", 16));
  ASSERT_GE(found.size(), 3u);
  EXPECT_EQ(found[0].kind, "input");
  EXPECT_EQ(found[0].where, "x");
  EXPECT_EQ(found[0].first, "f32[4,8]");
  EXPECT_EQ(found[0].second, "f32[4,16]");
  EXPECT_EQ(found[2].kind, "output");
}

TEST(ProgramDifference, OtherRangesAreReported) {
  const auto found = differences(model("aten.sin.default", "0.5", 8, "64"),
                                 model("aten.sin.default", "0.5", 8, "128"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "range");
  EXPECT_EQ(found[0].first, "1 to 64");
  EXPECT_EQ(found[0].second, "1 to 128");
}

TEST(ProgramDifference, TheSameOperatorsInAnotherWiringAreSaidToBe) {
  const auto minus = [](const char* first, const char* second) {
    ModelText m;
    m.input("x", kFloat, {4}).input("y", kFloat, {4});
    m.node("aten.sub.Tensor", {tensor("self", first), tensor("other", second)}, "d", kFloat, {4});
    m.node("aten.mul.Tensor", {tensor("self", "d"), tensor("other", "x")}, "z", kFloat, {4});
    return m.output("z").json();
  };
  const auto found = differences(minus("x", "y"), minus("y", "x"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "wiring");
}

}  // namespace
}  // namespace kiln::cli
