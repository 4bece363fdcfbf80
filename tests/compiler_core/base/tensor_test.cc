#include "compiler_core/base/tensor.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(Tensor, ElementsOfEveryDtypeConvert) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI16,
                      DType::kI32, DType::kI64, DType::kU8}) {
    Tensor tensor(dtype, {2, 3});
    tensor.set(4, 5);
    EXPECT_EQ(tensor.get(4), 5) << to_string(dtype);
    EXPECT_EQ(tensor.get(3), 0) << to_string(dtype);
    EXPECT_EQ(tensor.get_int(4), 5) << to_string(dtype);
  }
  Tensor truth(DType::kBool, {1});
  truth.set(0, 0.5);
  EXPECT_EQ(truth.get_int(0), 1);
}

TEST(Tensor, SizesThatOverflowAreRefused) {
  const std::vector<int64_t> huge = {int64_t{1} << 31, int64_t{1} << 31, 4};
  EXPECT_FALSE(checked_bytes(DType::kF32, huge));
  const std::vector<int64_t> negative = {-1};
  EXPECT_FALSE(checked_bytes(DType::kF32, negative));
  const std::vector<int64_t> empty = {0, 7};
  EXPECT_EQ(*checked_bytes(DType::kF32, empty), 0);
}

TEST(Tensor, MemoryIsAlignedForVectors) {
  for (int64_t n : {1, 7, 64})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor(DType::kI8, {n}).data()) % 64, 0u);
}

}  // namespace
}  // namespace kiln
