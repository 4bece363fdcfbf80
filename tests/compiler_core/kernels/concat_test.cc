// Concats in pointwise kernels: what lies in memory is read once, wherever an index lies.
#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_sizes;
using testing::check_space;
using testing::kHopper;
using testing::own_and_cuda;
using testing::random_inputs;

// The normalised and clamped Concat of parts of these sizes along `axis`, as a dense block of layers reads
// it: inputs, and every third a slice of one.
struct Joined {
  GraphBuilder b;
  Shape rest;  // the shape of the parts, but along the axis
  int axis;
  DType dtype;
  std::vector<NodeId> parts{};

  NodeId input(int64_t size) {
    Shape shape = rest;
    shape[static_cast<size_t>(axis)] = size;
    return b.input(dtype, shape);
  }
  void add(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes)
      parts.push_back(parts.size() % 3 == 2 ? b.slice(input(size + 16), axis, Dim(8), Dim(size))
                                            : input(size));
  }
  // A part that is computed: the sum of neighbours.
  void add_sum(int64_t size) {
    const NodeId wide = input(2 * size);
    const NodeId sum =
        b.binary(Op::kAdd, b.cast(b.slice(wide, axis, Dim(0), Dim(size)), DType::kF32),
                 b.cast(b.slice(wide, axis, Dim(size), Dim(size)), DType::kF32));
    parts.push_back(b.cast(sum, dtype));
  }
  Graph finish() {
    const NodeId joined = b.cast(b.concat(parts, axis), DType::kF32);
    const Shape shape = b.node(joined).shape;
    std::vector<Dim> along(shape.size(), Dim(0));
    along.back() = Dim(1);
    const NodeId scale = b.view(b.input(DType::kF32, {shape.back()}), shape, along, Dim(0));
    return *b.finish({b.cast(b.unary(Op::kTanh, b.binary(Op::kMul, joined, scale)), dtype)});
  }
};

std::string check(const Graph& graph) {
  for (const Target& target : own_and_cuda()) {
    std::mt19937 random(3);
    const std::string wrong =
        check_space({graph, Family::kPointwise, {}}, target, random_inputs(graph, random), 3);
    if (!wrong.empty()) return wrong + "\n" + print(graph);
  }
  return "";
}

TEST(Concat, AgreesAlongEveryAxisWhateverTheParts) {
  const std::vector<std::vector<int64_t>> all = {
      {64, 32, 32, 32, 32, 32}, {16, 8}, {3, 5, 8, 1, 2, 4, 7}, {4, 12, 8, 4, 4, 4}, {40}};
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const auto& sizes : all)
      for (const int axis : {0, 1, 2}) {
        Joined joined{{}, {Dim(3), Dim(5), Dim(24)}, axis, dtype};
        joined.add(sizes);
        EXPECT_EQ(check(joined.finish()), "");
      }
}

TEST(Concat, AgreesOfOneAxis) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{512, 256, 64}, {33, 100, 7, 5, 1}}) {
    Joined joined{{}, {Dim(0)}, 0, DType::kF16};
    joined.add(sizes);
    EXPECT_EQ(check(joined.finish()), "");
  }
}

TEST(Concat, PartsMayBeComputed) {
  for (const int axis : {1, 2})
    for (const int at : {0, 1, 2}) {
      Joined joined{{}, {Dim(2), Dim(9), Dim(48)}, axis, DType::kBF16};
      for (int i = 0; i < 3; ++i) {
        if (i == at) joined.add_sum(16);
        joined.add({32, 8});
      }
      EXPECT_EQ(check(joined.finish()), "");
    }
}

TEST(Concat, AgreesAtEverySizeOfItsParts) {
  GraphBuilder b;
  const Dim n = Dim::symbol(b.symbol({0, 1000}, 7)), m = Dim::symbol(b.symbol({1, 1000}, 9));
  const NodeId x = b.input(DType::kF32, {n, Dim(16)}), y = b.input(DType::kF32, {m, Dim(16)}),
               z = b.input(DType::kF32, {Dim(4), Dim(16)}),
               w = b.input(DType::kF32, {Dim(2), Dim(16)});
  const std::vector<NodeId> parts = {x, y, z, w};
  const Graph graph = *b.finish({b.unary(Op::kTanh, b.concat(parts, 0))});
  for (const Target& target : own_and_cuda()) {
    const Workload workload{graph, Family::kPointwise, {}};
    const auto space = search_space(workload, target);
    ASSERT_TRUE(space.has_value());
    for (const Schedule& schedule : *space)
      EXPECT_EQ(check_sizes(workload, schedule, target, {{0, 1}, {1, 1}, {7, 9}, {0, 33}, {64, 5}}),
                "");
  }
}

// As many vectors are read as there are: not all parts for every one.
TEST(Concat, AVectorIsReadOnce) {
  const auto count = [](const std::string& text, const std::string& what) {
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++found;
    return found;
  };
  for (const int axis : {1, 2}) {
    Joined joined{{}, {Dim(64), Dim(56), Dim(64)}, axis, DType::kBF16};
    joined.add({64, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32});
    const Workload workload{joined.finish(), Family::kPointwise, {}};
    const Schedule schedule =
        *Schedule::parse("cuda.pointwise lanes=8 threads=256 unroll=1 map=0 tile=0 stream=0");
    const auto made = lower_to_source(workload, schedule, kHopper);
    ASSERT_TRUE(made.has_value());
    const std::string kernel = made->text.substr(made->text.find("KILN_KERNEL("));
    EXPECT_EQ(count(kernel, "load<8>(") + count(kernel, "load_lanes("), 2) << kernel;
  }
}

}  // namespace
}  // namespace kiln
