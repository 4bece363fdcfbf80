#include "compiler_core/plan/row_update.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/row_updates.h"

namespace kiln {
namespace {

using testing::check_sizes;
using testing::check_space;
using testing::own_and_cuda;
using testing::random_inputs;
using testing::row_update;
using testing::updated_row;

std::string check_row(const Workload& workload, int64_t index) {
  std::mt19937 random(7);
  std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (Tensor& input : inputs)
    if (input.dtype() == DType::kI64) input.set_int(0, index);
  for (const Target& target : own_and_cuda())
    if (const std::string wrong = check_space(workload, target, inputs, 100); !wrong.empty())
      return wrong + "\n" + print(workload.graph);
  return "";
}

TEST(RowUpdateKernels, EveryTypeAndShape) {
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI8, DType::kBool})
    for (const Shape& shape : {Shape{3, 50, 64}, Shape{1, 50, 24}, Shape{5, 7, 3}}) {
      GraphBuilder b;
      const NodeId index = b.input(DType::kI64, {});
      const Workload workload = row_update(*b.finish({updated_row(b, dtype, shape, index)}));
      EXPECT_EQ(check_row(workload, 4), "") << to_string(dtype) << to_string(shape);
    }
}

TEST(RowUpdateKernels, AnyIndex) {
  const Workload workload = row_update({4, 9, 16});
  for (const int64_t at : {int64_t{0}, int64_t{8}, int64_t{-1}, int64_t{-9}, int64_t{-10},
                           int64_t{9}, INT64_MAX, INT64_MIN})
    EXPECT_EQ(check_row(workload, at), "") << at;
}

// A row that is turned by its place, as keys are.
TEST(RowUpdateKernels, ARowThatIsComputed) {
  GraphBuilder b;
  const Shape shape = {4, 40, 16};
  const NodeId x = b.input(DType::kBF16, shape), index = b.input(DType::kI64, {});
  const NodeId row = b.cast(b.input(DType::kBF16, {4, 1, 16}), DType::kF32);
  const NodeId angles = b.broadcast(b.input(DType::kF32, {16}), {4, 1, 16});
  const NodeId halves[] = {b.unary(Op::kNeg, b.slice(row, 2, 8, 8)), b.slice(row, 2, 0, 8)};
  const NodeId turned =
      b.binary(Op::kAdd, b.binary(Op::kMul, row, b.unary(Op::kCos, angles)),
               b.binary(Op::kMul, b.concat(halves, 2), b.unary(Op::kSin, angles)));
  const std::vector<int> axis = {1};
  const NodeId positions = b.broadcast_in(b.iota(DType::kI64, 40), shape, axis);
  const NodeId is_there = b.binary(Op::kEq, positions, b.broadcast(index, shape));
  const NodeId value = b.broadcast(b.cast(turned, DType::kBF16), shape);
  const Workload workload = row_update(*b.finish({b.select(is_there, value, x)}));
  for (const int64_t at : {0, 17, 39, 40}) EXPECT_EQ(check_row(workload, at), "") << at;
}

TEST(RowUpdateKernels, TwoOutputs) {
  GraphBuilder b;
  const NodeId index = b.input(DType::kI64, {});
  const NodeId keys = updated_row(b, DType::kF16, {6, 20, 16}, index);
  const Workload workload =
      row_update(*b.finish({keys, updated_row(b, DType::kF32, {6, 20, 16}, index)}));
  EXPECT_EQ(check_row(workload, 11), "");
}

TEST(RowUpdateKernels, ReadAndWriteARowAlone) {
  GraphBuilder b;
  const NodeId index = b.input(DType::kI64, {});
  const Workload workload =
      row_update(*b.finish({updated_row(b, DType::kF32, {6, 20, 16}, index)}));
  for (const Target& target : own_and_cuda()) {
    const auto space = search_space(workload, target);
    ASSERT_TRUE(space && !space->empty());
    const auto source = lower_to_source(workload, space->front(), target);
    ASSERT_TRUE(source) << source.error().message;
    const auto base =
        std::get<InputAttr>(workload.graph.node(find_row_update(workload.graph)->bases[0]).attr);
    EXPECT_EQ(source->recipe.kept, (std::vector<KeptOutput>{{0, base.index}}));
    // 96 elements: one block, where all rows are 1,920.
    EXPECT_EQ(*source->recipe.phases[0].grid.blocks({}), 1) << target.to_string();
  }
}

TEST(RowUpdateKernels, SizesThatAreNotKnown) {
  const char* const text = R"(kiln.graph 1
s0 = symbol 1..4096 hint 64
s1 = symbol 1..512 hint 8
%0 = input 0 : f32[s1,s0,16]
%1 = input 1 : i64[]
%2 = input 2 : f32[s1,16]
%3 = iota : i64[s0]
%4 = view %3 strides=[0,1,0] offset=[0] : i64[s1,s0,16]
%5 = view %1 strides=[0,0,0] offset=[0] : i64[s1,s0,16]
%6 = eq %4 %5 : bool[s1,s0,16]
%7 = view %2 strides=[16,0,1] offset=[0] : f32[s1,s0,16]
%8 = select %6 %7 %0 : f32[s1,s0,16]
return %8
)";
  const auto graph = parse_graph(text);
  ASSERT_TRUE(graph) << graph.error().message;
  const Workload workload = row_update(*graph);
  for (const Target& target : own_and_cuda()) {
    const auto space = search_space(workload, target);
    ASSERT_TRUE(space && !space->empty());
    for (const Schedule& schedule : *space)
      EXPECT_EQ(check_sizes(workload, schedule, target, {{64, 8}, {1, 1}, {9, 33}, {300, 2}}), "");
  }
}

}  // namespace
}  // namespace kiln
