#include "compiler_core/plan/workload.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

Graph parsed(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? *std::move(graph) : Graph();
}
WorkloadBinding workload(std::string_view text) {
  auto binding = make_workload(parsed(text));
  EXPECT_TRUE(binding.has_value()) << binding.error().message;
  return binding ? *std::move(binding) : WorkloadBinding();
}
void expect_refused(std::string_view text, std::string_view why) {
  const auto family = classify(parsed(text));
  ASSERT_FALSE(family.has_value()) << text;
  EXPECT_EQ(family.error().code, Code::kUnsupported);
  EXPECT_NE(family.error().message.find(why), std::string::npos) << family.error().message;
}

constexpr std::string_view kSoftmax = R"(kiln.graph 1
%0 = input 0 : f32[4,8]
%1 = reduce_max %0 axes=[1] : f32[4]
%2 = view %1 strides=[1,0] offset=[0] : f32[4,8]
%3 = sub %0 %2 : f32[4,8]
%4 = exp %3 : f32[4,8]
%5 = reduce_sum %4 axes=[1] : f32[4]
%6 = view %5 strides=[1,0] offset=[0] : f32[4,8]
%7 = div %4 %6 : f32[4,8]
return %7
)";

TEST(Family, NamesRoundTrip) {
  for (const Family family :
       {Family::kPointwise, Family::kRowReduction, Family::kColumnReduction, Family::kMatmul})
    EXPECT_EQ(parse_family(to_string(family)).value(), family);
  EXPECT_FALSE(parse_family("gathering").has_value());
}

TEST(MakeWorkload, SoftmaxOverTheLastAxisIsARowReduction) {
  const Workload made = workload(kSoftmax).workload;
  EXPECT_EQ(made.family, Family::kRowReduction);
  const ReductionSpace space = reduction_space(made.graph);
  EXPECT_EQ(space.shape, (Shape{4, 8}));
  EXPECT_EQ(space.reduced_begin, 1);
  EXPECT_EQ(space.reduced_end, 2);
}

TEST(MakeWorkload, AxesAreMergedAndUnitsDropped) {
  const Workload flat = workload(kSoftmax).workload;
  const Workload deep = workload(R"(kiln.graph 1
%0 = input 0 : f32[2,1,2,8]
%1 = reduce_max %0 axes=[3] : f32[2,1,2]
%2 = view %1 strides=[2,0,1,0] offset=[0] : f32[2,1,2,8]
%3 = sub %0 %2 : f32[2,1,2,8]
%4 = exp %3 : f32[2,1,2,8]
%5 = reduce_sum %4 axes=[3] : f32[2,1,2]
%6 = view %5 strides=[2,0,1,0] offset=[0] : f32[2,1,2,8]
%7 = div %4 %6 : f32[2,1,2,8]
return %7
)")
                            .workload;
  EXPECT_EQ(flat.digest, deep.digest) << print(deep.graph);
}

TEST(MakeWorkload, AxesThatAMaskWalksDifferentlyStayApart) {
  const Workload made = workload(R"(kiln.graph 1
%0 = input 0 : f32[2,3,5]
%1 = input 1 : f32[3,5]
%2 = view %1 strides=[0,5,1] offset=[0] : f32[2,3,5]
%3 = add %0 %2 : f32[2,3,5]
return %3
)")
                            .workload;
  const Node& sum = made.graph.node(made.graph.outputs()[0]);
  EXPECT_EQ(sum.shape, (Shape{2, 15})) << print(made.graph);
}

TEST(MakeWorkload, ArithmeticGoesBelowABroadcast) {
  const Workload made = workload(R"(kiln.graph 1
%0 = input 0 : f32[8]
%1 = exp %0 : f32[8]
%2 = view %1 strides=[0,1] offset=[0] : f32[4,8]
return %2
)")
                            .workload;
  EXPECT_EQ(made.graph.node(made.graph.outputs()[0]).op, Op::kExp) << print(made.graph);
}

TEST(MakeWorkload, TheDigestDependsOnTheFamilyOnlyThroughTheGraphAndIsStable) {
  const auto a = workload(kSoftmax).workload, b = workload(kSoftmax).workload;
  EXPECT_EQ(a.digest, b.digest);
  const auto again = make_workload(a.graph);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->workload.digest, a.digest);
  EXPECT_EQ(again->workload.graph, a.graph);
}

TEST(MakeWorkload, InputOrderNamesTheSubgraphsInputs) {
  const WorkloadBinding binding = workload(R"(kiln.graph 1
%0 = input 0 : f32[9]
%1 = input 1 : f32[8]
%2 = exp %1 : f32[8]
return %2
)");
  EXPECT_EQ(binding.input_order, std::vector<int>{1});
}

TEST(Classify, RefusesWhatTheRulesExclude) {
  expect_refused("kiln.graph 1\n%0 = input 0 : bf16[4]\n%1 = exp %0 : bf16[4]\nreturn %1\n",
                 "only moved or converted");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4]\n%1 = exp %0 : f32[4]\n"
      "%2 = view %1 strides=[0,1] offset=[0] : f32[2,4]\nreturn %2\n",
      "view stands on arithmetic");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[2,3,4]\n%1 = reduce_sum %0 axes=[0,2] : f32[3]\n"
      "return %1\n",
      "not adjacent");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4,4]\n%1 = matmul %0 %0 : f32[4,4]\n"
      "%2 = matmul %1 %0 : f32[4,4]\nreturn %2\n",
      "one matmul");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4,4]\n%1 = matmul %0 %0 : f32[4,4]\n"
      "%2 = reduce_sum %1 axes=[1] : f32[4]\nreturn %2\n",
      "not matmul, softmax, matmul");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4,4]\n%1 = exp %0 : f32[4,4]\n"
      "%2 = matmul %1 %0 : f32[4,4]\nreturn %2\n",
      "views of inputs");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4,4]\n%1 = matmul %0 %0 : f32[4,4]\n"
      "%2 = exp %1 : f32[4,4]\nreturn %1 %2\n",
      "one output");
  expect_refused("kiln.graph 1\n%0 = input 0 : f32[0]\n%1 = exp %0 : f32[0]\nreturn %1\n",
                 "positive constant");
  expect_refused(
      "kiln.graph 1\n%0 = input 0 : f32[4,4]\n%1 = reduce_sum %0 axes=[1] : f32[4]\n"
      "%2 = view %1 strides=[0,1] offset=[0] : f32[4,4]\n%3 = add %0 %2 : f32[4,4]\n"
      "return %3\n",
      "neither a view of a leaf nor a spread");
}

TEST(Classify, AGatherOfARowReductionPicksOneElementARow) {
  constexpr std::string_view kPicked =
      "kiln.graph 1\n%0 = input 0 : f32[4,8]\n%1 = reduce_sum %0 axes=[1] : f32[4]\n"
      "%2 = input 1 : i64[4]\n%3 = view %0 strides=[1] offset=[0] : f32[32]\n"
      "%4 = gather %3 %2 : f32[4]\n%5 = add %1 %4 : f32[4]\nreturn %5\n";
  EXPECT_EQ(classify(parsed(kPicked)).value(), Family::kRowReduction);
  expect_refused(  // of columns
      "kiln.graph 1\n%0 = input 0 : f32[8,4]\n%1 = reduce_sum %0 axes=[0] : f32[4]\n"
      "%2 = input 1 : i64[4]\n%3 = input 2 : f32[32]\n"
      "%4 = gather %3 %2 : f32[4]\n%5 = add %1 %4 : f32[4]\nreturn %5\n",
      "one element a row");
  expect_refused(  // whole rows of a table
      "kiln.graph 1\n%0 = input 0 : f32[4,8]\n%1 = input 1 : f32[9,8]\n"
      "%2 = input 2 : i64[4]\n%3 = gather %1 %2 : f32[4,8]\n%4 = add %0 %3 : f32[4,8]\n"
      "%5 = reduce_sum %4 axes=[1] : f32[4]\nreturn %5\n",
      "one element a row");
}

TEST(Classify, TellsColumnsFromRows) {
  const auto column = classify(parsed(
      "kiln.graph 1\n%0 = input 0 : f32[4,8]\n%1 = reduce_sum %0 axes=[0] : f32[8]\nreturn %1\n"));
  EXPECT_EQ(column.value(), Family::kColumnReduction);
  EXPECT_EQ(classify(parsed(kSoftmax)).value(), Family::kRowReduction);
}

}  // namespace
}  // namespace kiln
