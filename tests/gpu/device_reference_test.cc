// The reference on the device against the interpreter: every op and dtype, random graphs, both
// precisions.
#include "worker/runner/cuda/cuda_evaluation_device.h"

#include <cmath>

#include <fmt/format.h>

#include "compiler_core/ir/builder.h"
#include "tests/compiler_core/ir/sample_custom_op.h"
#include "tests/compiler_core/kernels/random_graph.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/worker/prepared.h"

namespace kiln::runner {
namespace {

constexpr DType kFloats[] = {DType::kF64,  DType::kF32,    DType::kF16,
                             DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};
constexpr DType kIntegers[] = {DType::kI8,  DType::kI16, DType::kI32,
                               DType::kI64, DType::kU8,  DType::kBool};

constexpr int64_t kSlice = 150;  // elements; of most values here, a few slices

double roundoff(DType dtype) {
  return dtype == DType::kF64    ? 0x1p-48
         : dtype == DType::kF32  ? 0x1p-24
         : dtype == DType::kF16  ? 0x1p-11
         : dtype == DType::kBF16 ? 0x1p-8
                                 : 0x1p-3;
}

class DeviceReferenceTest : public test::GpuTest {
 protected:
  // Input and output tensors in one piece of device memory each.
  std::vector<PooledMemory> on_device(const std::vector<Tensor>& tensors,
                                      std::vector<DevicePtr>& pointers) {
    std::vector<PooledMemory> memory;
    for (const Tensor& tensor : tensors) {
      memory.push_back(device().pool().allocate(tensor.byte_size()).value());
      pointers.push_back(memory.back().data());
      EXPECT_TRUE(lab_->device()->copy_to_device(pointers.back(), tensor.bytes()));
    }
    return memory;
  }

  static void expect_close(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.sizes(), want.sizes());
    const DType dtype = want.dtype();
    for (int64_t i = 0; i < want.numel(); ++i) {
      if (!is_float(dtype)) {
        ASSERT_EQ(got.get_int(i), want.get_int(i)) << "element " << i;
        continue;
      }
      const double g = got.get(i), w = want.get(i);
      if (std::isnan(w) || std::isinf(w)) {
        ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : g == w) << "element " << i << " is " << g;
        continue;
      }
      // The last place of the dtype, or what sums in another order leave.
      ASSERT_NEAR(g, w, 4 * roundoff(dtype) * std::fabs(w) + 1e-12) << "element " << i;
    }
  }

  // Every graph with its values held whole, and in slices.
  void expect_interpreted(Result<Graph> graph, Floats floats = Floats::kNormal) {
    ASSERT_TRUE(graph.has_value()) << graph.error().message;
    const auto symbols = measured_symbols(*graph);
    const auto inputs = test::drawn_inputs(*graph, symbols, 11, floats);
    std::vector<const Tensor*> views;
    for (const Tensor& input : inputs) views.push_back(&input);
    for (const Precision precision : {Precision::kHigh, Precision::kDeclared}) {
      SCOPED_TRACE(precision == Precision::kHigh ? "high" : "declared");
      const auto want = interpret(*graph, views, precision).value();
      std::vector<DevicePtr> from;
      const auto memory = on_device(inputs, from);
      for (const int64_t elements : {INT64_MAX, kSlice}) {
        SCOPED_TRACE(elements);
        expect_evaluated(*graph, symbols, precision, from, want, elements);
      }
    }
  }
  void expect_evaluated(const Graph& graph, std::span<const int64_t> symbols, Precision precision,
                        std::span<const DevicePtr> from, const std::vector<Tensor>& want,
                        int64_t elements) {
    std::vector<DevicePtr> to;
    std::vector<Tensor> got;
    for (const Tensor& tensor : want) got.emplace_back(tensor.dtype(), tensor.sizes());
    const auto results = on_device(got, to);
    const int64_t usual = device().policy().reference_elements;
    device().set_reference_elements(elements);
    const Status evaluated = device().evaluate(graph, symbols, precision, from, to);
    device().set_reference_elements(usual);
    ASSERT_TRUE(evaluated) << evaluated.error().message;
    ASSERT_TRUE(device().synchronize());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(lab_->device()->copy_to_host(got[i].bytes(), to[i]));
      SCOPED_TRACE(fmt::format("output {} {}", i, to_string(want[i].dtype())));
      expect_close(got[i], want[i]);
    }
  }
};

std::vector<Op> ops_between(Op first, Op last) {
  std::vector<Op> ops;
  for (int op = static_cast<int>(first); op <= static_cast<int>(last); ++op)
    ops.push_back(static_cast<Op>(op));
  return ops;
}

TEST_F(DeviceReferenceTest, UnaryOps) {
  for (const Floats floats : {Floats::kNormal, Floats::kPositive})
    for (const DType dtype : kFloats) {
      GraphBuilder b;
      const NodeId x = b.input(dtype, {777});
      std::vector<NodeId> outputs;
      for (const Op op : ops_between(Op::kNeg, Op::kErf)) outputs.push_back(b.unary(op, x));
      expect_interpreted(b.finish(outputs), floats);
    }
  for (const DType dtype : kIntegers) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {777});
    if (dtype == DType::kBool)
      expect_interpreted(b.finish({b.unary(Op::kNot, x)}));
    else
      expect_interpreted(b.finish({b.unary(Op::kNeg, x), b.unary(Op::kAbs, x),
                                   b.unary(Op::kSign, x), b.unary(Op::kNot, x)}));
  }
}

TEST_F(DeviceReferenceTest, BinaryOpsComparisonsAndSelect) {
  for (const DType dtype : kFloats) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {777}), y = b.input(dtype, {777});
    std::vector<NodeId> outputs;
    for (const Op op : ops_between(Op::kAdd, Op::kMin)) outputs.push_back(b.binary(op, x, y));
    for (const Op op : ops_between(Op::kEq, Op::kLe)) outputs.push_back(b.binary(op, x, y));
    outputs.push_back(b.select(b.binary(Op::kLt, x, y), x, y));
    expect_interpreted(b.finish(outputs));
  }
  for (const DType dtype : kIntegers) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {777}), y = b.input(dtype, {777});
    std::vector<NodeId> outputs;
    const bool boolean = dtype == DType::kBool;
    for (const Op op : ops_between(Op::kAdd, Op::kXor)) {
      const bool logic = op == Op::kAnd || op == Op::kOr || op == Op::kXor;
      if (op == Op::kAtan2 || (boolean && !logic)) continue;
      outputs.push_back(b.binary(op, x, y));
    }
    outputs.push_back(b.binary(Op::kEq, x, y));
    outputs.push_back(b.binary(Op::kNe, x, y));
    outputs.push_back(b.select(b.binary(Op::kEq, x, y), x, y));
    expect_interpreted(b.finish(outputs));
  }
}

TEST_F(DeviceReferenceTest, CastsBetweenAllTypes) {
  std::vector<DType> all(std::begin(kFloats), std::end(kFloats));
  all.insert(all.end(), std::begin(kIntegers), std::end(kIntegers));
  GraphBuilder b;
  std::vector<NodeId> outputs;
  for (const DType from : all) {
    // Small and positive, so that it fits everything.
    const NodeId x = b.input(from, {99});
    const NodeId small = from == DType::kBool ? x : b.unary(Op::kAbs, x);
    for (const DType to : all) outputs.push_back(b.cast(small, to));
  }
  expect_interpreted(b.finish(outputs));
}

TEST_F(DeviceReferenceTest, ScalesOfBlocksAreConvertedAndMultiplied) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {777}), scale = b.input(DType::kF8E8M0, {99});
  expect_interpreted(b.finish({b.cast(x, DType::kF8E8M0), b.cast(scale, DType::kF32),
                               b.cast(scale, DType::kBF16), b.binary(Op::kMul, scale, scale)}));
}

TEST_F(DeviceReferenceTest, SourcesAndIndexMaps) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {5, 7, 6}), y = b.input(dtype, {5, 3, 6});
    const NodeId value = is_float(dtype) ? b.constant(dtype, 0.3) : b.constant_int(dtype, -3);
    const ConstantAttr filler = std::get<ConstantAttr>(b.node(value).attr);
    const NodeId both[] = {x, y, x};
    expect_interpreted(b.finish({
        b.permute(x, {2, 0, 1}),
        b.slice(x, 1, 6, 4, -2 + 1),
        b.broadcast(value, {4, 3}),
        b.broadcast(b.iota(dtype, 600), {2, 600}),
        b.pad(x, {1, 0, 2}, {0, 3, 1}, filler),
        b.concat(both, 1),
        b.view(x, {3, 2, 5}, {31, -1, 2}, 40),
    }));
  }
}

TEST_F(DeviceReferenceTest, ReductionsOverAnyAxes) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI32, DType::kU8}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {6, 11, 4, 9});
    std::vector<NodeId> outputs;
    for (const Op op : {Op::kReduceSum, Op::kReduceMax, Op::kReduceMin, Op::kReduceProd})
      for (const std::vector<int>& axes :
           std::vector<std::vector<int>>{{3}, {0}, {1, 2}, {0, 2}, {0, 3}, {0, 1, 2, 3}})
        outputs.push_back(b.reduce(op, x, axes));
    expect_interpreted(b.finish(outputs));
  }
}

TEST_F(DeviceReferenceTest, LongReductionsTakeSeveralStages) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {3, 20000}), n = b.input(DType::kI64, {3, 20000});
  const NodeId tall = b.input(DType::kF32, {20000, 3}), none = b.input(DType::kF32, {4, 0});
  std::vector<NodeId> outputs;
  for (const Op op : {Op::kReduceSum, Op::kReduceMax, Op::kReduceMin, Op::kReduceProd}) {
    for (const NodeId wide : {x, n}) {
      outputs.push_back(b.reduce(op, wide, {1}));
      outputs.push_back(b.reduce(op, wide, {0, 1}));
    }
    outputs.push_back(b.reduce(op, tall, {0}));
    outputs.push_back(b.reduce(op, none, {1}));
  }
  expect_interpreted(b.finish(outputs));
}

TEST_F(DeviceReferenceTest, ScansOfEveryLength) {
  for (const int64_t size : {1, 5, 128, 129, 40000}) {
    GraphBuilder b;
    const NodeId x = b.input(DType::kF32, {2, size, 3}), n = b.input(DType::kI32, {size});
    expect_interpreted(b.finish({b.scan_sum(x, 1), b.scan_sum(x, 0), b.scan_sum(n, 0)}));
  }
}

TEST_F(DeviceReferenceTest, MatmulAndGather) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {2, 13, 37}), y = b.input(dtype, {2, 37, 21});
    expect_interpreted(b.finish({b.matmul(x, y)}));
  }
  GraphBuilder b;
  const NodeId table = b.input(DType::kF16, {17, 3, 2}), index = b.input(DType::kI64, {4, 9});
  expect_interpreted(b.finish({b.gather(table, index)}));
}

// Products read the matrices in their table, those of other readers come by a copy.
TEST_F(DeviceReferenceTest, MatmulsWithMatricesThatAnIndexPicks) {
  for (const DType dtype : {DType::kF64, DType::kBF16}) {
    GraphBuilder b;
    const NodeId x = b.input(dtype, {9, 2, 13}), table = b.input(dtype, {4, 11, 13});
    const NodeId index = b.input(DType::kI64, {9});
    const NodeId from_end =
        b.binary(Op::kSub, index, b.broadcast(b.constant_int(DType::kI64, 4), {9}));
    const auto picked = [&](NodeId by) { return b.gather(b.permute(table, {0, 2, 1}), by); };
    const NodeId copied = b.gather(table, from_end);
    expect_interpreted(
        b.finish({b.matmul(x, picked(index)), b.matmul(x, picked(from_end)),
                  b.matmul(b.cast(b.matmul(x, picked(index)), dtype), copied), copied}));
  }
}

TEST_F(DeviceReferenceTest, Convolutions) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32}) {
    GraphBuilder b;
    const NodeId line = b.input(dtype, {2, 4, 9}), image = b.input(dtype, {2, 6, 7, 5}),
                 volume = b.input(dtype, {1, 2, 4, 3, 5});
    expect_interpreted(b.finish({
        b.convolution(line, b.input(dtype, {6, 4, 3}), {{1}, {2}, {1}, {0}, 1}),
        b.convolution(line, b.input(dtype, {8, 1, 2}), {{3}, {1}, {0}, {2}, 4}),
        b.convolution(image, b.input(dtype, {4, 3, 3, 2}), {{2, 1}, {1, 2}, {1, 0}, {2, 1}, 2}),
        b.convolution(volume, b.input(dtype, {3, 2, 2, 1, 3}),
                      {{1, 1, 2}, {1, 1, 1}, {0, 1, 1}, {1, 0, 0}, 1}),
    }));
  }
}

TEST_F(DeviceReferenceTest, ScattersEachWay) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI8, DType::kI64}) {
    GraphBuilder b;
    // Drawn from -8..8: some of 6 rows are named twice, some from the end, some do not exist.
    const NodeId index = b.input(DType::kI64, {3, 7}), x = b.input(dtype, {6, 5, 2}),
                 updates = b.input(dtype, {3, 7, 5, 2});
    const NodeId flat = b.input(dtype, {6}), few = b.input(dtype, {3, 7});
    std::vector<NodeId> outputs;
    for (const Combine combine :
         {Combine::kSet, Combine::kAdd, Combine::kMul, Combine::kMax, Combine::kMin}) {
      outputs.push_back(b.scatter(x, index, updates, combine));
      outputs.push_back(b.scatter(flat, index, few, combine));
    }
    expect_interpreted(b.finish(outputs));
  }
  GraphBuilder b;
  const NodeId x = b.input(DType::kBool, {6}), updates = b.input(DType::kBool, {9});
  expect_interpreted(b.finish({b.scatter(x, b.input(DType::kI64, {9}), updates, Combine::kSet)}));
}

TEST_F(DeviceReferenceTest, SortsRowsOfEveryLength) {
  for (const int64_t size : {1, 2, 3, 7, 64, 1000, 5000})
    for (const DType dtype : {DType::kF32, DType::kI8}) {
      GraphBuilder b;
      // Halved and rounded, floats have equals, both zeros and, of roots, NaN.
      NodeId x = b.input(dtype, {3, size});
      if (is_float(dtype)) {
        const NodeId rounded = b.unary(Op::kRound, x);
        const NodeId root = b.unary(Op::kSqrt, rounded);
        expect_interpreted(b.finish({b.argsort(rounded, false), b.argsort(rounded, true),
                                     b.argsort(root, false), b.argsort(root, true)}));
      } else {
        expect_interpreted(b.finish({b.argsort(x, false), b.argsort(x, true)}));
      }
    }
}

TEST_F(DeviceReferenceTest, RandomWords) {
  GraphBuilder b;
  const NodeId seed = b.input(DType::kI64, {});
  const NodeId other = b.constant_int(DType::kI64, -0x123456789abcdef);
  expect_interpreted(b.finish({b.philox(seed, {5}, 0), b.philox(seed, {3, 1001}, 7),
                               b.philox(other, {64}, int64_t{5} << 40)}));
}

TEST_F(DeviceReferenceTest, ACustomCallIsItsReference) {
  GraphBuilder b;
  const NodeId in[] = {b.unary(Op::kSin, b.input(DType::kF32, {6, 7})),
                       b.input(DType::kF32, {6, 7})};
  const NodeId y = testing::swish_op().call(b, in);
  expect_interpreted(b.finish({y, b.unary(Op::kNeg, y)}));
}

TEST_F(DeviceReferenceTest, Attention) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    GraphBuilder b;
    const int64_t heads = 3, n = 21, m = 34;
    const NodeId q = b.input(dtype, {heads, n, 8}), k = b.input(dtype, {heads, m, 8}),
                 v = b.input(dtype, {heads, m, 5}), mask = b.input(DType::kBool, {n, m});
    const auto spread = [&](NodeId x) { return b.view(x, {heads, n, m}, {n, 1, 0}, 0); };
    const NodeId products = b.cast(b.matmul(q, b.permute(k, {0, 2, 1})), dtype);
    const NodeId scores = b.select(b.view(mask, {heads, n, m}, {0, m, 1}, 0), products,
                                   b.broadcast(b.constant(dtype, -100), {heads, n, m}));
    const NodeId greatest = b.reduce(Op::kReduceMax, scores, {2});
    const NodeId weights = b.unary(Op::kExp, b.binary(Op::kSub, scores, spread(greatest)));
    const NodeId sum = b.reduce(Op::kReduceSum, weights, {2});
    const NodeId result = b.matmul(b.binary(Op::kDiv, weights, spread(sum)), v);
    expect_interpreted(b.finish({result, greatest}));
  }
}

TEST_F(DeviceReferenceTest, RandomGraphs) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    testing::RandomGraph random(seed);
    const Shape space{random.pick(1, 5), random.pick(1, 40), random.pick(1, 9)};
    if (seed % 2 == 0)
      expect_interpreted(random.pointwise(space, 12, true), Floats::kPositive);
    else
      expect_interpreted(random.reduction(space, 1, 3), Floats::kPositive);
  }
}

}  // namespace
}  // namespace kiln::runner
