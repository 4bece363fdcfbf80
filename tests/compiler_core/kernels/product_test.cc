// Products along rows and columns on both targets, in every dtype that is reduced.
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::hopper;
using testing::targets;

// Near 1 with either sign, so that what is left out shows; odd integers.
Tensor factors(const Node& node, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor tensor(node.dtype, constant_sizes(node.shape));
  std::uniform_real_distribution<double> size(0.9, 1.1);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const bool negative = random() % 2 == 0;
    if (is_float(node.dtype))
      tensor.set(i, negative ? -size(random) : size(random));
    else
      tensor.set_int(i, negative && node.dtype != DType::kU8 ? -3 : 5);
  }
  return tensor;
}

std::string check_products(DType dtype, const Shape& shape, int axis, int limit) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, shape);
  // The product, and what is left of each element: the product is read inside its kernel too.
  const NodeId product = b.reduce(Op::kReduceProd, x, {axis});
  const std::vector<int> kept = {1 - axis};
  const NodeId rest = b.binary(Op::kMul, x, b.broadcast_in(product, shape, kept));
  const auto graph = b.finish({product, rest});
  const auto made = make_workload(*graph);
  if (!made) return made.error().message;
  std::vector<Tensor> inputs;
  for (NodeId id : made->workload.graph.inputs())
    inputs.push_back(factors(made->workload.graph.node(id), 7));
  std::vector<Target> all = targets();
  all.resize(1);
  all.push_back(hopper());
  for (const Target& target : all) {
    const std::string wrong = check_space(made->workload, target, inputs, limit);
    if (!wrong.empty()) return wrong + "\n" + print(made->workload.graph);
  }
  return "";
}

TEST(Product, OfRows) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kI64, DType::kI32, DType::kI8, DType::kU8})
    EXPECT_EQ(check_products(dtype, {5, 131}, 1, 2), "") << to_string(dtype);
  EXPECT_EQ(check_products(DType::kF32, {3, 40}, 1, 6), "");
}

TEST(Product, OfColumns) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI64, DType::kI16})
    EXPECT_EQ(check_products(dtype, {130, 19}, 0, 2), "") << to_string(dtype);
  EXPECT_EQ(check_products(DType::kF32, {61, 70}, 0, 6), "");
}

}  // namespace
}  // namespace kiln
