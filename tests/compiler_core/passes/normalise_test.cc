// The promises of the graph digest: every listed invariance and sensitivity.
#include "compiler_core/passes/normalise.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

constexpr DType kF32 = DType::kF32;

using Program = std::function<std::vector<NodeId>(GraphBuilder&)>;

NormalForm normal_form(const Program& program) {
  GraphBuilder b;
  std::vector<NodeId> outputs = program(b);
  auto graph = b.finish(std::move(outputs));
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  if (!graph) return {};
  auto form = normalise(*graph);
  EXPECT_TRUE(form.has_value()) << form.error().message;
  return form ? *std::move(form) : NormalForm();
}

void expect_same(const Program& a, const Program& b) {
  const NormalForm x = normal_form(a), y = normal_form(b);
  EXPECT_EQ(x.digest, y.digest) << print(x.graph) << print(y.graph);
}
void expect_different(const Program& a, const Program& b) {
  const NormalForm x = normal_form(a), y = normal_form(b);
  EXPECT_NE(x.digest, y.digest) << print(x.graph) << print(y.graph);
}

NodeId number(GraphBuilder& b, double value, NodeId like) {
  return b.broadcast(b.constant(b.dtype(like), value), Shape(b.shape(like)));
}

// softmax over the last axis of f32[4,8], as most of the tests' stock program.
NodeId softmax(GraphBuilder& b, NodeId x) {
  const Shape shape = b.shape(x);
  const int last = static_cast<int>(shape.size()) - 1;
  const NodeId max = b.reduce(Op::kReduceMax, x, {last}, true);
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, x, b.broadcast(max, shape)));
  const NodeId sum = b.reduce(Op::kReduceSum, e, {last}, true);
  return b.binary(Op::kDiv, e, b.broadcast(sum, shape));
}

TEST(GraphDigest, DoesNotDependOnTheOrderOfNodes) {
  expect_same(
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4}), s = b.unary(Op::kSin, x), c = b.unary(Op::kCos, x);
        return std::vector{b.binary(Op::kSub, s, c)};
      },
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4}), c = b.unary(Op::kCos, x), s = b.unary(Op::kSin, x);
        return std::vector{b.binary(Op::kSub, s, c)};
      });
}

TEST(GraphDigest, DoesNotDependOnArgumentOrderOfCommutativeOps) {
  for (const Op op : {Op::kAdd, Op::kMul, Op::kMax, Op::kMin, Op::kEq, Op::kNe})
    expect_same(
        [op](GraphBuilder& b) {
          const NodeId x = b.input(kF32, {4}), y = b.unary(Op::kSin, x);
          return std::vector{b.binary(op, x, y)};
        },
        [op](GraphBuilder& b) {
          const NodeId x = b.input(kF32, {4}), y = b.unary(Op::kSin, x);
          return std::vector{b.binary(op, y, x)};
        });
}

TEST(GraphDigest, ArgumentOrderOfOtherOpsCounts) {
  for (const Op op : {Op::kSub, Op::kDiv, Op::kPow, Op::kLt, Op::kAtan2})
    expect_different(
        [op](GraphBuilder& b) {
          const NodeId x = b.input(kF32, {4}), y = b.unary(Op::kSin, x);
          return std::vector{b.binary(op, x, y)};
        },
        [op](GraphBuilder& b) {
          const NodeId x = b.input(kF32, {4}), y = b.unary(Op::kSin, x);
          return std::vector{b.binary(op, y, x)};
        });
}

TEST(GraphDigest, DoesNotDependOnTheOrderOfInputsAndSaysWhichIsWhich) {
  const Program first = [](GraphBuilder& b) {
    const NodeId x = b.input(kF32, {4, 8}), y = b.input(kF32, {8});
    return std::vector{b.binary(Op::kSub, x, b.broadcast(y, {4, 8}))};
  };
  const Program second = [](GraphBuilder& b) {
    const NodeId y = b.input(kF32, {8}), x = b.input(kF32, {4, 8});
    return std::vector{b.binary(Op::kSub, x, b.broadcast(y, {4, 8}))};
  };
  expect_same(first, second);
  const NormalForm a = normal_form(first), b = normal_form(second);
  ASSERT_EQ(a.input_order.size(), 2u);
  EXPECT_EQ(a.input_order[0], b.input_order[1]);
  EXPECT_EQ(a.input_order[1], b.input_order[0]);
}

TEST(GraphDigest, DoesNotDependOnDeadCodeOrUnusedInputs) {
  const Program lean = [](GraphBuilder& b) {
    return std::vector{b.unary(Op::kSin, b.input(kF32, {4}))};
  };
  const Program fat = [](GraphBuilder& b) {
    const NodeId unused = b.input(kF32, {9}), x = b.input(kF32, {4});
    b.unary(Op::kCos, unused);
    b.unary(Op::kExp, x);
    return std::vector{b.unary(Op::kSin, x)};
  };
  expect_same(lean, fat);
  EXPECT_EQ(normal_form(fat).input_order, std::vector<int>{1});
}

TEST(GraphDigest, DoesNotDependOnDuplicateSubexpressions) {
  // Interning already merges equal nodes; these two become equal only in normal form.
  expect_same(
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4}), s = b.unary(Op::kSin, x);
        return std::vector{b.binary(Op::kAdd, s, s)};
      },
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4}), one = number(b, 1, x);
        const NodeId s = b.unary(Op::kSin, x), t = b.unary(Op::kSin, b.binary(Op::kMul, x, one));
        return std::vector{b.binary(Op::kAdd, s, t)};
      });
}

TEST(GraphDigest, ChainsOfViewsThatComposeToOneMapAreOne) {
  const Program direct = [](GraphBuilder& b) {
    const NodeId x = b.input(kF32, {2, 3, 4});
    return std::vector{b.unary(Op::kExp, b.permute(x, {2, 0, 1}))};
  };
  expect_same(direct, [](GraphBuilder& b) {
    const NodeId x = b.input(kF32, {2, 3, 4});
    return std::vector{b.unary(Op::kExp, b.permute(b.permute(x, {0, 2, 1}), {1, 0, 2}))};
  });
  expect_same(direct, [](GraphBuilder& b) {
    const NodeId flat = b.reshape(b.input(kF32, {2, 3, 4}), {6, 4});
    return std::vector{b.unary(Op::kExp, b.reshape(b.permute(flat, {1, 0}), {4, 2, 3}))};
  });
  expect_same(direct, [](GraphBuilder& b) {  // the view after the arithmetic
    const NodeId x = b.input(kF32, {2, 3, 4});
    return std::vector{b.permute(b.unary(Op::kExp, x), {2, 0, 1})};
  });
  expect_same(
      [](GraphBuilder& b) {
        return std::vector{b.unary(Op::kExp, b.slice(b.input(kF32, {16}), 0, 6, 4))};
      },
      [](GraphBuilder& b) {
        return std::vector{
            b.unary(Op::kExp, b.slice(b.slice(b.input(kF32, {16}), 0, 4, 8), 0, 2, 4))};
      });
}

TEST(GraphDigest, XTimesTwoIsTwoTimesX) {
  expect_same(
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4});
        return std::vector{b.binary(Op::kMul, x, number(b, 2, x))};
      },
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4});
        return std::vector{b.binary(Op::kMul, number(b, 2, x), x)};
      });
}

TEST(GraphDigest, ACompositeIsItsOwnDecomposition) {
  const Program composite = [](GraphBuilder& b) {
    const NodeId x = b.input(kF32, {4, 8});
    return std::vector{b.binary(Op::kPow, softmax(b, x), number(b, 2, x))};
  };
  expect_same(composite, [](GraphBuilder& b) {  // without keepdim, and the square by hand
    const NodeId x = b.input(kF32, {4, 8});
    const auto spread = [&](NodeId r) { return b.broadcast_in(r, {4, 8}, std::vector<int>{0}); };
    const NodeId max = b.reduce(Op::kReduceMax, x, {1});
    const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, x, spread(max)));
    const NodeId p = b.binary(Op::kDiv, e, spread(b.reduce(Op::kReduceSum, e, {1})));
    return std::vector{b.binary(Op::kMul, p, p)};
  });
}

TEST(GraphDigest, KeepdimArithmeticIsTheSameWithoutTheAxis) {
  expect_same(
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4, 8}), sum = b.reduce(Op::kReduceSum, x, {1}, true);
        return std::vector{b.binary(Op::kMul, x, b.broadcast(b.unary(Op::kRsqrt, sum), {4, 8}))};
      },
      [](GraphBuilder& b) {
        const NodeId x = b.input(kF32, {4, 8}), sum = b.reduce(Op::kReduceSum, x, {1});
        const std::vector<int> axes = {0};
        return std::vector{
            b.binary(Op::kMul, x, b.broadcast_in(b.unary(Op::kRsqrt, sum), {4, 8}, axes))};
      });
}

TEST(GraphDigest, HalfArithmeticIsItsExpansionInF32) {
  expect_same(
      [](GraphBuilder& b) {
        const NodeId x = b.input(DType::kBF16, {4});
        return std::vector{b.unary(Op::kExp, x)};
      },
      [](GraphBuilder& b) {
        const NodeId x = b.cast(b.input(DType::kBF16, {4}), kF32);
        return std::vector{b.cast(b.unary(Op::kExp, x), DType::kBF16)};
      });
}

TEST(GraphDigest, DoesNotDependOnTheNumberingOrHintsOfSymbols) {
  const auto with = [](bool swapped) {
    return [swapped](GraphBuilder& b) {
      const SymbolId first = b.symbol({1, 64}, swapped ? 3 : 9), second = b.symbol({1, 64}, 0);
      const Dim rows = Dim::symbol(swapped ? second : first);
      const Dim columns = Dim::symbol(swapped ? first : second);
      const NodeId x = b.input(kF32, {rows, columns});
      return std::vector{b.unary(Op::kExp, b.reduce(Op::kReduceSum, x, {1}))};
    };
  };
  expect_same(with(false), with(true));
}

TEST(GraphDigest, AnInputThatAloneSaysASizeIsKept) {
  const NormalForm form = normal_form([](GraphBuilder& b) {
    const Dim n = Dim::symbol(b.symbol({1, 64}, 0));
    b.input(kF32, {3});
    b.input(kF32, {n});
    return std::vector{b.iota(DType::kI64, n)};
  });
  EXPECT_EQ(form.input_order, std::vector<int>{1});
}

TEST(GraphDigest, SymmetricInputsAreNumberedAlikeHoweverTheyArePaired) {
  const auto pairs = [](int p, int q, int r, int s) {
    return [=](GraphBuilder& b) {
      std::vector<NodeId> x;
      for (int i = 0; i < 4; ++i) x.push_back(b.input(kF32, {4}));
      const auto at = [&](int i) { return x[static_cast<size_t>(i)]; };
      return std::vector{
          b.binary(Op::kMul, b.binary(Op::kAdd, at(p), at(q)), b.binary(Op::kAdd, at(r), at(s)))};
    };
  };
  expect_same(pairs(0, 1, 2, 3), pairs(0, 2, 1, 3));
  expect_same(pairs(0, 1, 2, 3), pairs(3, 0, 2, 1));
  expect_different(pairs(0, 1, 2, 3), pairs(0, 1, 0, 3));
}

// Each sensitivity: one field of softmax(x * 2)[...] changed.
struct Variant {
  DType dtype = kF32;
  Shape shape = {4, 8};
  double factor = 2;
  int axis = 1;
  Op op = Op::kExp;
  SymbolRange range{1, 64};
  bool rounded = false, plus_zero = false;
  std::vector<int> order = {0, 1};
};
Program program(const Variant& v) {
  return [v](GraphBuilder& b) {
    Shape shape = v.shape;
    shape.insert(shape.begin(), Dim::symbol(b.symbol(v.range, 0)));
    NodeId x = b.input(v.dtype, shape);
    x = b.binary(Op::kMul, x, number(b, v.factor, x));
    if (v.rounded) x = b.cast(b.cast(x, DType::kBF16), v.dtype);
    if (v.plus_zero) x = b.binary(Op::kAdd, x, number(b, 0, x));
    x = b.unary(v.op, b.reduce(Op::kReduceSum, x, {v.axis}));
    std::vector<NodeId> outputs = {x, b.unary(Op::kNeg, x)};
    return std::vector{outputs[static_cast<size_t>(v.order[0])],
                       outputs[static_cast<size_t>(v.order[1])]};
  };
}

TEST(GraphDigest, EveryFieldThatChangesTheResultChangesIt) {
  const Program base = program({});
  const auto differs = [&](const char* what, auto change) {
    SCOPED_TRACE(what);
    Variant v;
    change(v);
    expect_different(base, program(v));
  };
  expect_same(base, program({}));
  differs("dtype", [](Variant& v) { v.dtype = DType::kF64; });
  differs("half dtype", [](Variant& v) { v.dtype = DType::kF16; });
  differs("size", [](Variant& v) { v.shape = {4, 9}; });
  differs("rank", [](Variant& v) { v.shape = {4, 4, 2}; });
  differs("constant", [](Variant& v) { v.factor = 2.0000002384185791; });
  differs("axis", [](Variant& v) { v.axis = 2; });
  differs("op", [](Variant& v) { v.op = Op::kExpm1; });
  differs("guard", [](Variant& v) { v.range = {1, 65}; });
  differs("least size", [](Variant& v) { v.range = {2, 64}; });
  differs("a rounding on the way", [](Variant& v) { v.rounded = true; });
  differs("x + 0, which turns -0 into 0", [](Variant& v) { v.plus_zero = true; });
  differs("order of outputs", [](Variant& v) { v.order = {1, 0}; });
  differs("an output twice", [](Variant& v) { v.order = {0, 0}; });
}

TEST(GraphDigest, StridesAndOffsetsCount) {
  const auto sliced = [](int64_t start, int64_t step) {
    return [=](GraphBuilder& b) {
      return std::vector{b.unary(Op::kExp, b.slice(b.input(kF32, {16}), 0, start, 4, step))};
    };
  };
  expect_different(sliced(0, 1), sliced(1, 1));
  expect_different(sliced(0, 1), sliced(0, 2));
  expect_different(sliced(3, 1), sliced(3, -1));
}

TEST(GraphDigest, EveryAttributeCounts) {
  const auto padded = [](int64_t low, int64_t high, double value) {
    return [=](GraphBuilder& b) {
      const NodeId x = b.input(kF32, {4, 4});
      return std::vector{b.pad(x, {low, 0}, {high, 0}, constant_bits(kF32, value))};
    };
  };
  expect_different(padded(1, 2, 0), padded(2, 1, 0));
  expect_different(padded(1, 2, 0), padded(1, 2, 1));
  expect_different(padded(1, 2, 0), padded(1, 2, -0.0));
  const auto joined = [](int axis, bool swapped) {
    return [=](GraphBuilder& b) {
      const NodeId x = b.input(kF32, {4, 4}), y = b.unary(Op::kSin, x);
      const std::vector<NodeId> parts = swapped ? std::vector{y, x} : std::vector{x, y};
      return std::vector{b.concat(parts, axis), b.concat(parts, 1)};
    };
  };
  expect_different(joined(0, false), joined(1, false));
  expect_different(joined(0, false), joined(0, true));
  const auto scanned = [](int axis) {
    return [=](GraphBuilder& b) { return std::vector{b.scan_sum(b.input(kF32, {4, 4}), axis)}; };
  };
  expect_different(scanned(0), scanned(1));
  const auto counted = [](DType dtype, int64_t size) {
    return [=](GraphBuilder& b) { return std::vector{b.iota(dtype, size)}; };
  };
  expect_different(counted(kF32, 4), counted(kF32, 5));
  expect_different(counted(kF32, 4), counted(DType::kI64, 4));
  const auto product = [](bool swapped) {
    return [=](GraphBuilder& b) {
      const NodeId x = b.input(kF32, {4, 4}), y = b.unary(Op::kSin, x);
      return std::vector{swapped ? b.matmul(y, x) : b.matmul(x, y)};
    };
  };
  expect_different(product(false), product(true));
  const auto picked = [](DType index) {
    return [=](GraphBuilder& b) {
      return std::vector{b.gather(b.input(kF32, {4, 4}), b.input(index, {2}))};
    };
  };
  expect_different(picked(DType::kI64), picked(DType::kI32));
}

TEST(GraphDigest, DomainSeparatesKindsOfKey) {
  const NormalForm form = normal_form(program({}));
  EXPECT_EQ(form.digest, digest_of(form.graph, "kiln.graph"));
  EXPECT_NE(form.digest, digest_of(form.graph, "kiln.other"));
}

TEST(Normalise, AChainOfFiftyThousandNodesPasses) {
  const NormalForm form = normal_form([](GraphBuilder& b) {
    NodeId x = b.input(kF32, {2, 3});
    for (int i = 0; i < 50'000; ++i)
      x = i % 5 == 0 ? b.permute(x, {1, 0}) : b.unary(i % 2 == 0 ? Op::kSin : Op::kCos, x);
    return std::vector{x};
  });
  EXPECT_EQ(form.graph.size(), 40'001);  // the permutations cancel
}

TEST(Normalise, AnOutputMayBeAnInputOrAConstant) {
  const NormalForm form = normal_form([](GraphBuilder& b) {
    const NodeId x = b.input(kF32, {2});
    return std::vector{x, b.constant(kF32, 2), x};
  });
  EXPECT_EQ(form.graph.outputs().size(), 3u);
  EXPECT_EQ(form.graph.outputs()[0], form.graph.outputs()[2]);
}

}  // namespace
}  // namespace kiln
