// Which kernels are joined where very many read one value: fuse.h.
#include "compiler_core/plan/fusion/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "compiler_core/ir/builder.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/random_graph.h"
#include "tests/compiler_core/plan/run_plan.h"

namespace kiln {
namespace {

using testing::right_plan;

constexpr size_t kMostBuffers = 32;  // of a kernel

size_t launches_of(const Plan& plan, Family family) {
  return static_cast<size_t>(
      std::count_if(plan.launches.begin(), plan.launches.end(), [&](const Launch& launch) {
        return plan.kernels[static_cast<size_t>(launch.kernel)].family == family;
      }));
}

NodeId times(GraphBuilder& b, NodeId x, double factor) {
  return b.binary(Op::kMul, x, b.broadcast(b.constant(DType::kF32, factor), Shape(b.shape(x))));
}

// The largest of each window of `size` by `size`, of the sizes of x.
NodeId pool(GraphBuilder& b, NodeId x, int64_t size) {
  const Shape shape = b.shape(x);
  const int64_t low = (size - 1) / 2, high = size / 2;
  const NodeId padded =
      b.pad(x, {0, low, low}, {0, high, high}, ConstantAttr{std::bit_cast<uint64_t>(-1e30)});
  NodeId largest = kInvalidNode;
  for (int64_t i = 0; i < size * size; ++i) {
    const NodeId part = b.slice(b.slice(padded, 1, i / size, shape[1]), 2, i % size, shape[2]);
    largest = largest == kInvalidNode ? part : b.binary(Op::kMax, largest, part);
  }
  return largest;
}

// As in GoogLeNet: 9 * 4 * 4 elements of four buffers, in one kernel, kept NVRTC busy for a minute.
TEST(Fuse, WindowsOfWindowsAreComputedOnce) {
  for (const bool joins : {false, true}) {
    GraphBuilder b;
    std::vector<NodeId> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(b.input(DType::kF32, {2, 9, 9}));
    const NodeId x = joins ? b.concat(parts, 0) : parts[0];
    const auto made = right_plan(b.finish({pool(b, pool(b, x, 2), 3)}).value());
    EXPECT_EQ(launches_of(made, Family::kPointwise), joins ? 2U : 1U);
  }
}

// Windows of 3 by `width` of an image of 6 by 6, one behind the other; a row a pixel of the image.
NodeId rows_of_windows(GraphBuilder& b, int64_t width, int64_t channels) {
  const NodeId windows = b.input(DType::kF32, {2, 2, 6 / width, 3, width, channels});
  return b.reshape(b.permute(windows, {0, 1, 3, 2, 4, 5}), {2, 36, channels});
}

// As behind the attention of a Swin: the norm reads windows where they lie.
TEST(Fuse, ARowReductionReadsRowsOfWindows) {
  constexpr int64_t kChannels = 1024;  // so many that divisions of each element's place would count
  for (const int64_t other : {0, 3, 2}) {
    GraphBuilder b;
    NodeId sum = b.binary(Op::kAdd, b.input(DType::kF32, {2, 36, kChannels}),
                          rows_of_windows(b, 3, kChannels));
    if (other > 0) sum = b.binary(Op::kAdd, sum, rows_of_windows(b, other, kChannels));
    const NodeId mean = b.unary(Op::kTanh, b.reduce(Op::kReduceSum, sum, {2}));
    const NodeId centred =
        b.binary(Op::kSub, sum, b.broadcast_in(mean, Shape(b.shape(sum)), std::vector<int>{0, 1}));
    const Plan plan = right_plan(*b.finish({sum, b.reshape(centred, {72, kChannels})}));
    // Windows of 3 and of 2 split a line of 6 at places that do not go together.
    EXPECT_EQ(plan.launches.size() == 1, other != 2) << testing::families(plan);
    EXPECT_EQ(launches_of(plan, Family::kRowReduction), 1u) << testing::families(plan);
  }
}

TEST(Fuse, ARowReductionOfNoRowsIsPlanned) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {0, 6, 4});
  const NodeId sum = b.reduce(Op::kReduceSum, b.reshape(b.unary(Op::kTanh, x), {0, 4}), {1});
  right_plan(*b.finish({sum}));
}

TEST(Fuse, ReadersOfOneValueShareAsManyKernelsAsTheirBuffersNeed) {
  constexpr size_t kReaders = 300;
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  std::vector<NodeId> outputs;
  for (size_t i = 0; i < kReaders; ++i) outputs.push_back(times(b, x, static_cast<double>(i + 2)));
  const Plan plan = right_plan(*b.finish(std::move(outputs)));
  // A join is judged by what both read, so the last buffer may stay free.
  EXPECT_LE(plan.launches.size(), kReaders / (kMostBuffers - 3) + 1);
}

// RWKV's attention, written out. Each step reads slices of [batch, steps, width], has states of
// [batch, width], and puts its result into a tensor of all steps. Few elements cost less in
// divisions than in launches.
TEST(Fuse, StepsOfARecurrenceOverFewElementsShareKernels) {
  constexpr int64_t kSteps = 16;
  std::vector<size_t> launches;
  for (const int64_t width : {64, 1 << 14}) {
    GraphBuilder b;
    const Shape state = {2, width};
    const auto add = [&](NodeId x, NodeId y) { return b.binary(Op::kAdd, x, y); };
    const auto times_exp = [&](NodeId x, NodeId largest, NodeId y) {
      return b.binary(Op::kMul, b.unary(Op::kExp, b.binary(Op::kSub, x, largest)), y);
    };
    const auto product = [&] {
      const NodeId rows = b.input(DType::kF32, {2 * kSteps, 4});
      return b.reshape(b.matmul(rows, b.input(DType::kF32, {4, width})), {2, kSteps, width});
    };
    const NodeId keys = product(), values = product();
    const NodeId decay = b.broadcast(b.input(DType::kF32, {width}), state);
    const NodeId first = b.broadcast(b.input(DType::kF32, {width}), state);
    const NodeId one = b.broadcast(b.constant(DType::kF32, 1), state);
    NodeId largest = b.input(DType::kF32, state);
    NodeId sum = b.input(DType::kF32, state), weight = b.input(DType::kF32, state);
    NodeId result = b.broadcast(b.constant(DType::kF32, 0), {2, kSteps, width});
    for (int64_t step = 0; step < kSteps; ++step) {
      const NodeId key = b.reshape(b.slice(keys, 1, step, 1), state);
      const NodeId value = b.reshape(b.slice(values, 1, step, 1), state);
      const NodeId now = add(key, first), most = b.binary(Op::kMax, largest, now);
      const NodeId numerator = add(times_exp(largest, most, sum), times_exp(now, most, value));
      const NodeId denominator = add(times_exp(largest, most, weight), times_exp(now, most, one));
      const NodeId before = add(largest, decay);
      largest = b.binary(Op::kMax, before, key);
      sum = add(times_exp(before, largest, sum), times_exp(key, largest, value));
      weight = add(times_exp(before, largest, weight), times_exp(key, largest, one));
      const NodeId row = b.reshape(b.binary(Op::kDiv, numerator, denominator), {2, 1, width});
      result = add(result, b.pad(row, {0, step, 0}, {0, kSteps - 1 - step, 0}, ConstantAttr{}));
    }
    const Plan plan = right_plan(*b.finish({result}));
    launches.push_back(launches_of(plan, Family::kPointwise));
  }
  EXPECT_LT(3 * launches[0], 2 * launches[1]) << launches[0] << " of " << launches[1];
}

// Between the two readers that fit stand many that could never join, of every kind.
TEST(Fuse, ReadersThatFitAreJoinedHoweverManyOthersStandBetween) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8, 8});
  std::vector<NodeId> outputs = {times(b, x, 2)};
  for (int i = 0; i < 20; ++i) {
    outputs.push_back(b.matmul(x, b.input(DType::kF32, {8, 8})));
    const NodeId wide = b.input(DType::kF32, {2 + i, 8, 8});
    outputs.push_back(b.binary(Op::kAdd, wide, b.broadcast(x, Shape(b.shape(wide)))));
  }
  outputs.push_back(times(b, x, 3));
  const Plan plan = right_plan(*b.finish(std::move(outputs)));
  EXPECT_EQ(launches_of(plan, Family::kPointwise), 21U);
}

// Both what leads from a value to its many readers and what leads back from one of them: a reader
// that needs another reader besides waits for it.
TEST(Fuse, AReaderThatNeedsAnotherReaderIsNotJoinedWithTheValueOfBoth) {
  GraphBuilder b;
  const NodeId x = b.unary(Op::kExp, b.input(DType::kF32, {8, 8}));
  std::vector<NodeId> outputs = {x};
  NodeId product = x;
  for (int i = 0; i < 100; ++i) {
    product = b.matmul(x, b.input(DType::kF32, {8, 8}));
    outputs.push_back(product);
  }
  const NodeId most = b.reduce(Op::kReduceMax, product, {1}, true);
  outputs.push_back(b.binary(Op::kSub, x, b.broadcast(most, {8, 8})));
  outputs.push_back(times(b, x, 5));
  const Plan plan = right_plan(*b.finish(std::move(outputs)));
  EXPECT_EQ(launches_of(plan, Family::kMatmul), 100U);
  // The value with its multiple, the maximum with its difference.
  EXPECT_EQ(plan.launches.size(), 102U);
}

}  // namespace
}  // namespace kiln
