// Views of Views in pointwise kernels: what the windows of pooling give back to the elements they are of.
#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::kHopper;
using testing::own_and_cuda;
using testing::random_inputs;

// A value for each window of `stride`, for every element of images [n, height, width, channels] that lie
// so: read where the element is, and a window before.
Graph repeated(int64_t n, int64_t height, int64_t width, int64_t channels, int64_t stride) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {n, height, width, channels});
  const Shape wide = {n, height, stride, width, stride, channels};
  const Shape shape = {n, height * stride, width * stride, channels};
  const int axes[] = {0, 1, 3, 5};
  const NodeId each = b.reshape(b.broadcast_in(x, wide, axes), shape);
  const NodeId padded =
      b.pad(each, {0, stride, stride, 0}, {0, 0, 0, 0}, constant_bits(DType::kBF16, 0));
  NodeId sum = b.cast(each, DType::kF32);
  for (const int axis : {1, 2}) {
    NodeId before = b.slice(padded, axis, Dim(0), shape[static_cast<size_t>(axis)]);
    before = b.slice(before, 3 - axis, Dim(stride), shape[static_cast<size_t>(3 - axis)]);
    sum = b.binary(Op::kAdd, sum, b.cast(before, DType::kF32));
  }
  return *b.finish({b.cast(b.unary(Op::kTanh, sum), DType::kBF16)});
}

TEST(RepeatedWindows, AgreeWhateverTheirSizes) {
  for (const Graph& graph : {repeated(2, 4, 4, 16, 2), repeated(1, 3, 5, 8, 3),
                             repeated(2, 2, 3, 5, 2), repeated(1, 1, 7, 24, 4)})
    for (const Target& target : own_and_cuda()) {
      std::mt19937 random(5);
      EXPECT_EQ(
          check_space({graph, Family::kPointwise, {}}, target, random_inputs(graph, random), 3), "")
          << print(graph);
    }
}

// Only the place in the image is divided by the stride: lanes are channels.
TEST(RepeatedWindows, AreReadInVectors) {
  const Workload workload{repeated(4, 28, 28, 64, 2), Family::kPointwise, {}};
  const auto space = search_space(workload, kHopper);
  ASSERT_TRUE(space.has_value());
  const auto lowered = lower(workload, space->front(), kHopper);
  ASSERT_TRUE(lowered.has_value());
  const std::string& text = std::get<Source>(*lowered).text;
  const std::string kernel = text.substr(text.find("// ---- The kernel."));
  EXPECT_NE(kernel.find("/ 2"), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find("vindex"), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find("load_lanes"), std::string::npos) << kernel;
}

}  // namespace
}  // namespace kiln
