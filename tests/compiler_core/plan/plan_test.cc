// How programs fall into kernels: the counts and families that people will see.
#include "compiler_core/plan/plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::families;

class PlanText : public GraphBuilder {
 public:
  NodeId like(double value, NodeId x) {
    return broadcast(constant(dtype(x), value), Shape(shape(x)));
  }
  NodeId add(NodeId a, NodeId b) { return with(Op::kAdd, a, b); }
  NodeId sub(NodeId a, NodeId b) { return with(Op::kSub, a, b); }
  NodeId mul(NodeId a, NodeId b) { return with(Op::kMul, a, b); }
  NodeId div(NodeId a, NodeId b) { return with(Op::kDiv, a, b); }
  NodeId sum(NodeId x, int axis) { return reduce(Op::kReduceSum, x, {axis}, true); }
  NodeId mean(NodeId x, int axis) {
    const NodeId s = sum(x, axis);
    return div(s, like(static_cast<double>(shape(x)[static_cast<size_t>(axis)].constant()), s));
  }
  NodeId softmax(NodeId x, int axis) {
    const NodeId e = unary(Op::kExp, sub(x, reduce(Op::kReduceMax, x, {axis}, true)));
    return div(e, sum(e, axis));
  }
  NodeId layernorm(NodeId x, NodeId weight, NodeId bias) {
    const int axis = static_cast<int>(shape(x).size()) - 1;
    const NodeId centred = sub(x, mean(x, axis));
    const NodeId variance = mean(mul(centred, centred), axis);
    const NodeId scale = unary(Op::kRsqrt, add(variance, like(1e-5, variance)));
    return add(mul(mul(centred, scale), weight), bias);
  }
  NodeId gelu(NodeId x) {
    const NodeId e = unary(Op::kErf, mul(x, like(0.7071, x)));
    return mul(mul(x, like(0.5, x)), add(e, like(1, x)));
  }
  NodeId silu(NodeId x) {
    return mul(x, unary(Op::kReciprocal, add(like(1, x), unary(Op::kExp, unary(Op::kNeg, x)))));
  }
  NodeId linear(NodeId x, NodeId weight) { return matmul(x, permute(weight, {1, 0})); }
  NodeId linear(NodeId x, NodeId weight, NodeId bias) {
    const NodeId product = linear(x, weight);
    return add(product, bias);
  }
  NodeId f32(Shape shape) { return input(DType::kF32, std::move(shape)); }

 private:
  // b is broadcast to a.
  NodeId with(Op op, NodeId a, NodeId b) { return binary(op, a, broadcast(b, Shape(shape(a)))); }
};

Graph graph_of(const std::function<std::vector<NodeId>(PlanText&)>& write) {
  PlanText program;
  std::vector<NodeId> outputs = write(program);
  auto graph = program.finish(std::move(outputs));
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return graph ? *std::move(graph) : Graph();
}

// Plans the program and checks that the plan computes what the graph does.
Plan plan_of(const Graph& graph) {
  const auto form = normalise(graph);
  EXPECT_TRUE(form.has_value()) << form.error().message;
  if (!form) return {};
  auto made = plan(form->graph);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  if (!made) return {};
  const auto inputs = testing::random_inputs(form->graph, 1);
  const auto expected = testing::evaluate(form->graph, testing::in_order(inputs));
  const auto actual = testing::run_plan(*made, testing::in_order(inputs));
  EXPECT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i)
    testing::expect_equal(expected[i], actual[i], 0.02);
  return *std::move(made);
}

void expect_families(const std::string& expected,
                     const std::function<std::vector<NodeId>(PlanText&)>& write) {
  const Graph graph = graph_of(write);
  EXPECT_EQ(families(plan_of(graph)), expected) << print(graph);
}

TEST(Plan, PointwiseProgramsAreOneKernel) {
  expect_families("pointwise", [](PlanText& p) {
    const NodeId x = p.f32({8, 16});
    return std::vector{p.gelu(x)};
  });
  expect_families("pointwise", [](PlanText& p) {  // two results of one read
    const NodeId x = p.f32({8, 16});
    return std::vector{p.unary(Op::kSin, x), p.unary(Op::kCos, x)};
  });
  expect_families("pointwise", [](PlanText& p) {
    const NodeId a = p.unary(Op::kSin, p.f32({8, 1, 24})), b = p.unary(Op::kCos, p.f32({6, 1}));
    return std::vector{p.add(p.broadcast(a, {8, 6, 24}), b)};
  });
  expect_families("pointwise", [](PlanText& p) {
    const NodeId gate = p.input(DType::kBF16, {8, 16}), up = p.input(DType::kBF16, {8, 16});
    return std::vector{p.mul(p.silu(gate), up)};
  });
}

TEST(Plan, RotaryEmbeddingIsOneKernelWithItsConcat) {
  expect_families("pointwise", [](PlanText& p) {
    const NodeId x = p.f32({2, 4, 6, 8}), cos = p.f32({6, 8}), sin = p.f32({6, 8});
    const std::vector<NodeId> halves = {p.unary(Op::kNeg, p.slice(x, 3, 4, 4)),
                                        p.slice(x, 3, 0, 4)};
    return std::vector{p.add(p.mul(x, cos), p.mul(p.concat(halves, 3), sin))};
  });
}

TEST(Plan, EachNormalisationIsOneRowKernel) {
  expect_families("row_reduction", [](PlanText& p) {
    return std::vector{p.softmax(p.f32({8, 16}), 1)};
  });
  expect_families("row_reduction", [](PlanText& p) {
    const NodeId x = p.f32({2, 8, 16}), w = p.f32({16}), b = p.f32({16});
    return std::vector{p.gelu(p.layernorm(x, w, b))};
  });
  expect_families("row_reduction", [](PlanText& p) {  // the sum with the residual is a result too
    const NodeId h = p.add(p.input(DType::kBF16, {8, 16}), p.input(DType::kBF16, {8, 16}));
    const NodeId x = p.cast(h, DType::kF32), square = p.mean(p.mul(x, x), 1);
    const NodeId scale = p.unary(Op::kRsqrt, p.add(square, p.like(1e-6, square)));
    const NodeId y = p.mul(p.cast(p.mul(x, scale), DType::kBF16), p.input(DType::kBF16, {16}));
    return std::vector{y, h};
  });
  expect_families("row_reduction", [](PlanText& p) {  // all of it to one number
    return std::vector{p.reduce(Op::kReduceSum, p.f32({8, 16}), {0, 1})};
  });
  expect_families("row_reduction", [](PlanText& p) {  // two statistics of one read
    const NodeId x = p.f32({8, 16});
    return std::vector{p.reduce(Op::kReduceSum, x, {1}), p.reduce(Op::kReduceMax, x, {1})};
  });
}

// As torchao writes it: the greatest magnitude of a row becomes the greatest of the type.
TEST(Plan, QuantisingRowsIsPartOfTheKernelThatComputesThem) {
  const auto normed = [](PlanText& p) {
    const NodeId x = p.cast(p.input(DType::kBF16, {8, 64}), DType::kF32),
                 square = p.mean(p.mul(x, x), 1);
    const NodeId scale = p.unary(Op::kRsqrt, p.add(square, p.like(1e-6, square)));
    return p.mul(p.cast(p.mul(x, scale), DType::kBF16), p.input(DType::kBF16, {64}));
  };
  const auto gated = [](PlanText& p) {
    return p.mul(p.silu(p.input(DType::kBF16, {8, 64})), p.input(DType::kBF16, {8, 64}));
  };
  using Rows = std::function<NodeId(PlanText&)>;
  for (const Rows& rows : {Rows(normed), Rows(gated)})
    for (const auto& [type, most] : {std::pair{DType::kI8, 127.0}, {DType::kF8E4M3, 448.0}})
      expect_families("row_reduction", [&](PlanText& p) {
        const NodeId x = p.cast(rows(p), DType::kF32);
        const NodeId greatest = p.reduce(Op::kReduceMax, p.unary(Op::kAbs, x), {1}, true);
        const NodeId quotient = p.div(greatest, p.like(most, greatest));
        const NodeId scale = p.binary(Op::kMax, quotient, p.like(1e-7, quotient));
        NodeId q = p.div(x, p.broadcast(scale, {8, 64}));
        if (type == DType::kI8) q = p.unary(Op::kRound, q);
        q = p.binary(Op::kMin, p.binary(Op::kMax, q, p.like(-most, q)), p.like(most, q));
        return std::vector{p.cast(q, type), scale};
      });
}

// The rows are needed again, by the residual: what is made of them for the norm is not stored too.
TEST(Plan, AnEmbeddingIsStoredAndNotItsSquares) {
  const Plan plan = plan_of(graph_of([](PlanText& p) {
    const NodeId table = p.f32({32, 16}), tokens = p.input(DType::kI64, {6});
    const NodeId column = p.broadcast_in(p.iota(DType::kI64, 16), {6, 16}, std::vector{1});
    const NodeId row = p.broadcast_in(tokens, {6, 16}, std::vector{0});
    const NodeId x =
        p.gather(p.reshape(table, {32 * 16}), p.add(p.mul(row, p.like(16, row)), column));
    const NodeId square = p.mean(p.mul(x, x), 1);
    const NodeId scale = p.unary(Op::kRsqrt, p.add(square, p.like(1e-6, square)));
    return std::vector{p.linear(p.mul(x, scale), p.f32({16, 16})), x};
  }));
  EXPECT_EQ(families(plan), "pointwise row_reduction matmul");
  ASSERT_FALSE(plan.launches.empty());
  EXPECT_EQ(plan.kernels[static_cast<size_t>(plan.launches[0].kernel)].graph.outputs().size(), 1);
}

// A cache of keys that one more is written to: the write reads buffers as they lie.
TEST(Plan, AProductInAnotherShapeOrOrderIsScattered) {
  const auto written = [](PlanText& p, NodeId row) {
    return std::vector{p.scatter(p.f32({10, 2, 8}), p.input(DType::kI64, {1}),
                                 p.add(p.reshape(row, {1, 2, 8}), p.f32({8})), Combine::kSet)};
  };
  expect_families("matmul scatter", [&](PlanText& p) {
    return written(p, p.matmul(p.f32({2, 8}), p.f32({8, 8})));
  });
  expect_families("matmul pointwise scatter", [&](PlanText& p) {
    return written(p, p.permute(p.matmul(p.f32({8, 8}), p.f32({8, 2})), {1, 0}));
  });
}

// Its scale is a column spread over each row: no reason to turn the rows in front of the product.
TEST(Plan, ANormWithoutAWeightIsOneRowKernelInFrontOfAProduct) {
  expect_families("row_reduction matmul", [](PlanText& p) {
    const NodeId x = p.f32({6, 16}), square = p.mean(p.mul(x, x), 1);
    const NodeId scale = p.unary(Op::kRsqrt, p.add(square, p.like(1e-6, square)));
    return std::vector{p.linear(p.mul(x, scale), p.f32({16, 16}))};
  });
}

// x[i, column[i]] of a [rows, columns] value, as the frontend lowers gather along an axis.
NodeId pick(PlanText& p, NodeId x, NodeId column) {
  const int64_t rows = p.shape(x)[0].constant(), columns = p.shape(x)[1].constant();
  const NodeId number = p.broadcast_in(p.iota(DType::kI64, rows), {rows, 1}, std::vector{0});
  const NodeId from = p.mul(number, p.like(static_cast<double>(columns), number));
  return p.gather(p.reshape(x, {rows * columns}), p.add(p.reshape(column, {rows, 1}), from));
}

TEST(Plan, TheTargetsEntryOfALogSoftmaxBelongsToItsRowKernel) {
  const auto cross_entropy = [](PlanText& p, DType dtype) {
    const NodeId x = p.cast(p.input(dtype, {9, 16}), DType::kF32),
                 target = p.input(DType::kI64, {9});
    const NodeId inside =
        p.binary(Op::kMax, p.binary(Op::kMin, target, p.like(15, target)), p.like(0, target));
    const NodeId below = p.sub(x, p.reduce(Op::kReduceMax, x, {1}, true));
    const NodeId logs = p.sub(below, p.unary(Op::kLog, p.sum(p.unary(Op::kExp, below), 1)));
    const NodeId loss = p.reshape(p.unary(Op::kNeg, pick(p, logs, inside)), {9});
    const NodeId kept = p.binary(Op::kNe, target, p.like(-100, target));
    return std::pair(p.select(kept, loss, p.like(0, loss)), logs);
  };
  expect_families("row_reduction",
                  [&](PlanText& p) { return std::vector{cross_entropy(p, DType::kBF16).first}; });
  expect_families("row_reduction row_reduction", [&](PlanText& p) {  // and the mean over the rows
    return std::vector{p.reduce(Op::kReduceSum, cross_entropy(p, DType::kF32).first, {0})};
  });
  expect_families("row_reduction", [&](PlanText& p) {
    const auto [loss, logs] = cross_entropy(p, DType::kF32);
    return std::vector{loss, logs};
  });
  // What has no reduction in it stays a gather of what is stored, or of an input.
  expect_families("pointwise", [](PlanText& p) {
    return std::vector{
        p.unary(Op::kExp, pick(p, p.f32({9, 16}), p.like(3, p.iota(DType::kI64, 9))))};
  });
}

TEST(Plan, ReductionsOverOuterAxesAreColumnKernels) {
  expect_families("column_reduction", [](PlanText& p) {
    return std::vector{p.reduce(Op::kReduceSum, p.f32({9, 7}), {0})};
  });
  expect_families("column_reduction", [](PlanText& p) {
    return std::vector{p.softmax(p.f32({9, 7}), 0)};
  });
  expect_families("column_reduction", [](PlanText& p) {  // batch, reduced, kept
    return std::vector{p.softmax(p.f32({2, 9, 7}), 1)};
  });
}

TEST(Plan, AReductionOverScatteredAxesIsTwoKernels) {
  expect_families("row_reduction column_reduction", [](PlanText& p) {
    return std::vector{p.reduce(Op::kReduceSum, p.f32({3, 5, 7}), {0, 2})};
  });
}

TEST(Plan, AMatmulTakesItsEpilogue) {
  expect_families("matmul", [](PlanText& p) {
    return std::vector{p.matmul(p.f32({4, 8}), p.f32({8, 6}))};
  });
  expect_families("matmul", [](PlanText& p) {
    const NodeId x = p.f32({4, 8}), w = p.f32({6, 8}), b = p.f32({6});
    return std::vector{p.gelu(p.linear(x, w, b))};
  });
  expect_families("matmul", [](PlanText& p) {  // bf16 in, bf16 out
    return std::vector{p.cast(
        p.matmul(p.input(DType::kBF16, {4, 8}), p.input(DType::kBF16, {8, 6})), DType::kBF16)};
  });
  expect_families("matmul", [](PlanText& p) {  // residual, and the reshape around a linear layer
    const NodeId x = p.f32({2, 4, 8}), w = p.f32({8, 8});
    const NodeId y = p.reshape(p.linear(p.reshape(x, {8, 8}), w), {2, 4, 8});
    return std::vector{p.add(p.add(y, p.f32({8})), x)};
  });
}

TEST(Plan, AnEpilogueThatStandsInAPermutationOfTheProductIsStillFused) {
  expect_families("matmul matmul", [](PlanText& p) {
    const NodeId x = p.f32({6, 8}), w = p.f32({8, 8}), b = p.f32({8}), k = p.f32({2, 4, 6});
    const NodeId heads = p.permute(p.reshape(p.linear(x, w, b), {6, 2, 4}), {1, 0, 2});
    return std::vector{p.matmul(heads, k)};
  });
}

TEST(Plan, LayersOfMatmulsAreOneKernelEach) {
  expect_families("matmul matmul", [](PlanText& p) {
    const NodeId x = p.f32({4, 8}), w = p.f32({16, 8}), v = p.f32({8, 16});
    return std::vector{p.linear(p.silu(p.linear(x, w)), v)};
  });
  expect_families("matmul row_reduction", [](PlanText& p) {
    const NodeId x = p.f32({4, 8}), w = p.f32({16, 8}), b = p.f32({16});
    return std::vector{p.gelu(p.layernorm(p.linear(x, w, b), p.f32({16}), p.f32({16})))};
  });
  expect_families("attention", [](PlanText& p) {
    const NodeId q = p.f32({2, 3, 5, 4}), k = p.f32({2, 3, 5, 4}), v = p.f32({2, 3, 5, 4});
    const NodeId scores = p.matmul(q, p.permute(k, {0, 1, 3, 2}));
    return std::vector{p.matmul(p.softmax(p.div(scores, p.like(2, scores)), 3), v)};
  });
}

TEST(Plan, AGatedProductStoresOneGateAndReadsIt) {
  expect_families("matmul matmul", [](PlanText& p) {
    const NodeId x = p.f32({4, 8}), w = p.f32({16, 8}), v = p.f32({16, 8});
    return std::vector{p.mul(p.silu(p.linear(x, w)), p.linear(x, v))};
  });
}

TEST(Plan, EqualKernelsAreOneEntry) {
  const Plan made = plan_of(graph_of([](PlanText& p) {
    NodeId x = p.f32({8, 8});
    for (int layer = 0; layer < 6; ++layer) x = p.gelu(p.linear(x, p.f32({8, 8}), p.f32({8})));
    return std::vector{x};
  }));
  EXPECT_EQ(made.launches.size(), 6u);
  EXPECT_EQ(made.kernels.size(), 1u);
}

TEST(Plan, RanksAreMergedSoThatEqualKernelsMeet) {
  const auto digest = [](Shape shape) {
    return plan_of(graph_of([&](PlanText& p) { return std::vector{p.gelu(p.f32(shape))}; }))
        .kernels[0]
        .digest;
  };
  EXPECT_EQ(digest({4, 8}), digest({32}));
  EXPECT_EQ(digest({2, 2, 1, 8}), digest({32}));
  EXPECT_NE(digest({4, 9}), digest({32}));
}

TEST(Plan, AnOutputThatIsAnInputNeedsNoKernel) {
  const Plan made = plan_of(graph_of([](PlanText& p) {
    const NodeId x = p.f32({4});
    return std::vector{x, p.unary(Op::kExp, x), x};
  }));
  EXPECT_EQ(made.launches.size(), 1u);
  EXPECT_EQ(made.output_buffers[0], made.output_buffers[2]);
  EXPECT_EQ(made.buffers[static_cast<size_t>(made.output_buffers[0])].kind, Buffer::Kind::kInput);
}

TEST(Plan, AViewOfAnInputAsOutputIsACopyKernel) {
  expect_families("pointwise", [](PlanText& p) {
    return std::vector{p.permute(p.f32({4, 6}), {1, 0})};
  });
  expect_families("pointwise", [](PlanText& p) {
    return std::vector{p.reshape(p.f32({4, 6}), {24})};
  });
  expect_families("pointwise", [](PlanText& p) { return std::vector{p.like(3, p.f32({4}))}; });
}

TEST(Plan, TwoOutputsThatAreOneNodeShareABuffer) {
  const Plan made = plan_of(graph_of([](PlanText& p) {
    const NodeId y = p.unary(Op::kExp, p.f32({4}));
    return std::vector{y, y};
  }));
  EXPECT_EQ(made.output_buffers, (std::vector<int>{1, 1}));
}

TEST(Plan, EmptyResultsNeedNoKernel) {
  const Plan made = plan_of(graph_of([](PlanText& p) {
    return std::vector{p.unary(Op::kExp, p.f32({0, 4})), p.unary(Op::kExp, p.f32({3}))};
  }));
  EXPECT_EQ(made.launches.size(), 1u);
}

TEST(Plan, ALongChainOfArithmeticIsCut) {
  const Plan made = plan_of(graph_of([](PlanText& p) {
    NodeId x = p.f32({4});
    for (int i = 0; i < 1000; ++i) x = p.unary(i % 2 == 0 ? Op::kSin : Op::kCos, x);
    return std::vector{x};
  }));
  EXPECT_GT(made.launches.size(), 3u);
  EXPECT_LT(made.launches.size(), 20u);
}

// A kernel takes each buffer as an argument: no compiler likes thousands.
TEST(Plan, ASumOfManyInputsIsCutIntoKernelsOfFewBuffers) {
  for (const bool tree : {false, true}) {
    const Plan made = plan_of(graph_of([tree](PlanText& p) {
      std::vector<NodeId> level;
      for (int i = 0; i < 500; ++i) level.push_back(p.f32({4}));
      while (level.size() > 1) {
        std::vector<NodeId> next;
        if (tree) {
          for (size_t i = 0; i + 1 < level.size(); i += 2)
            next.push_back(p.binary(Op::kAdd, level[i], level[i + 1]));
          if (level.size() % 2 == 1) next.push_back(level.back());
        } else {
          next.push_back(p.binary(Op::kAdd, level[0], level[1]));
          next.insert(next.end(), level.begin() + 2, level.end());
        }
        level = std::move(next);
      }
      return level;
    }));
    for (const Launch& launch : made.launches) EXPECT_LE(launch.args.size(), 33u);
    EXPECT_LE(made.launches.size(), tree ? 40u : 17u);
  }
}

Error refusal(const std::function<std::vector<NodeId>(PlanText&)>& write) {
  const auto form = normalise(graph_of(write));
  EXPECT_TRUE(form.has_value());
  const auto made = plan(form->graph);
  EXPECT_FALSE(made.has_value());
  return made ? Error{} : made.error();
}

TEST(Plan, RefusesWhatNoFamilyCoversByName) {
  const Error f8 = refusal([](PlanText& p) {
    return std::vector{p.matmul(p.input(DType::kF8E4M3, {4, 6}), p.input(DType::kF8E4M3, {6, 4}))};
  });
  EXPECT_EQ(f8.code, Code::kUnsupported);
  EXPECT_NE(f8.message.find("matmul f32"), std::string::npos) << f8.message;
}

TEST(Plan, RefusesASizeThatNoInputTells) {
  GraphBuilder b;
  const Dim bound = Dim::symbol(b.symbol({1, 8}, 4)), free = Dim::symbol(b.symbol({1, 8}, 4));
  const NodeId x = b.input(DType::kF32, {bound});
  const NodeId y = b.broadcast(b.constant(DType::kF32, 2), {free, bound});
  const auto made = plan(*b.finish({b.binary(Op::kAdd, b.broadcast(x, {free, bound}), y)}));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  EXPECT_NE(made.error().message.find("size s1 is a size of no input"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace kiln
