#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::hopper;
using testing::random_inputs;
using testing::run_source;
using testing::targets;

std::string check_random(const Graph& graph, int limit) {
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kPointwise) return "not pointwise";
  std::mt19937 random(5);
  std::vector<Tensor> inputs = random_inputs(made->workload.graph, random);
  for (Tensor& x : inputs)
    if (x.dtype() == DType::kI64) x.set_int(0, int64_t{0x123456789abcdef});
  std::vector<Target> all = targets();
  all.push_back(hopper());
  for (const Target& target : all) {
    const std::string wrong = check_space(made->workload, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(made->workload.graph);
  }
  return "";
}

TEST(RandomValues, AreThoseOfTheInterpreter) {
  for (const Shape& shape : {Shape{}, {1}, {7}, {64}, {5, 33}, {3, 4, 8}}) {
    GraphBuilder b;
    const NodeId seed = b.input(DType::kI64, {});
    EXPECT_EQ(check_random(*b.finish({b.philox(seed, shape, 3)}), 2), "");
  }
}

// The generator's authors' answers for a key and counter of zeros.
TEST(RandomValues, AreTheGeneratorsOwn) {
  GraphBuilder b;
  const auto made = make_workload(*b.finish({b.philox(b.input(DType::kI64, {}), {4}, 0)}));
  std::vector<Tensor> seed;
  seed.emplace_back(DType::kI64, std::vector<int64_t>{});
  seed[0].set_int(0, 0);
  const auto space = search_space(made->workload, targets()[0]);
  ASSERT_TRUE(space.has_value());
  const auto source = lower_to_source(made->workload, space->front(), targets()[0]);
  ASSERT_TRUE(source.has_value());
  const auto words = run_source(*source, targets()[0], seed);
  ASSERT_TRUE(words.has_value());
  const int64_t want[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ((*words)[0].get_int(i), want[i]);
}

// Dropout: what is kept, and what it becomes.
TEST(RandomValues, MeetTheirNeighboursInOneKernel) {
  GraphBuilder b;
  const Shape shape = {6, 50};
  const NodeId seed = b.input(DType::kI64, {}), x = b.input(DType::kF32, shape);
  const NodeId uniform = b.binary(Op::kMul, b.cast(b.philox(seed, shape, 0), DType::kF32),
                                  b.broadcast(b.constant(DType::kF32, 0x1p-32), shape));
  const NodeId keeps =
      b.binary(Op::kLe, b.broadcast(b.constant(DType::kF32, 0.25), shape), uniform);
  const NodeId kept = b.binary(Op::kMul, x, b.cast(keeps, DType::kF32));
  EXPECT_EQ(check_random(*b.finish({kept, keeps}), 100), "");
}

// The position counts in the node's own shape, however it is read.
TEST(RandomValues, AreTheSameThroughViews) {
  const auto check_read = [](auto read) {
    GraphBuilder b;
    const NodeId seeds = b.input(DType::kI64, {3});
    const NodeId x = b.philox(b.view(seeds, {}, {}, 1), {6, 8}, 9);
    return check_random(*b.finish({read(b, x)}), 1);
  };
  EXPECT_EQ(check_read([](GraphBuilder& b, NodeId x) { return b.permute(x, {1, 0}); }), "");
  EXPECT_EQ(check_read([](GraphBuilder& b, NodeId x) {
              return b.view(x, {3, 4}, {16, -2}, 7);
            }),
            "");
  EXPECT_EQ(check_read([](GraphBuilder& b, NodeId x) {
              return b.binary(Op::kXor, b.reshape(x, {48}), b.iota(DType::kI64, 48));
            }),
            "");
}

}  // namespace
}  // namespace kiln
