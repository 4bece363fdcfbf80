#include "worker/runner/evaluation_device.h"

#include <gtest/gtest.h>

namespace kiln::runner {
namespace {

class GuardedMemoryTest : public ::testing::Test {
 protected:
  GuardedMemory allocate(int64_t bytes) {
    return device_->allocate_guarded("output 0", bytes).value();
  }
  std::optional<int64_t> damage(const GuardedMemory& memory) {
    EXPECT_TRUE(device_->check_guards(memory));
    return memory.damage(device_->take().value()[0]);
  }
  static uint8_t* bytes(const GuardedMemory& memory) {
    return reinterpret_cast<uint8_t*>(memory.data);
  }
  std::unique_ptr<EvaluationDevice> device_ = make_cpu_evaluation_device(1);
};

TEST_F(GuardedMemoryTest, IsAlignedAndWhole) {
  for (const int64_t size : {0, 1, 4, 4000, 4096, 70'001}) {
    const GuardedMemory memory = allocate(size);
    EXPECT_EQ(memory.data % 64, 0u);
    EXPECT_TRUE(device_->device().fill(memory.data, 0xEE, size, nullptr));
    EXPECT_EQ(damage(memory), std::nullopt) << size;
  }
}

TEST_F(GuardedMemoryTest, OneByteOnEitherSideIsFound) {
  const GuardedMemory memory = allocate(1000);
  uint8_t* data = bytes(memory);
  data[-1] ^= 1;
  EXPECT_EQ(damage(memory), -1);
  ASSERT_TRUE(device_->repair_guards(memory));
  EXPECT_EQ(damage(memory), std::nullopt);
  data[1000] ^= 1;
  EXPECT_EQ(damage(memory), 1000);
  ASSERT_TRUE(device_->repair_guards(memory));
  data[1000 + 4095] ^= 1;
  EXPECT_EQ(damage(memory), 1000 + 4095);
}

TEST_F(GuardedMemoryTest, NoSingleByteValueMatchesTheGuard) {
  const GuardedMemory memory = allocate(64);
  for (int value = 0; value < 256; ++value) {
    ASSERT_TRUE(device_->repair_guards(memory));
    for (int i = 0; i < 4; ++i) bytes(memory)[64 + i] = static_cast<uint8_t>(value);
    EXPECT_TRUE(damage(memory).has_value()) << value;
  }
}

using GuardedMemoryDeathTest = GuardedMemoryTest;

TEST_F(GuardedMemoryDeathTest, AWildWriteFaults) {
  const GuardedMemory memory = allocate(64);
  volatile uint8_t* data = bytes(memory);
  EXPECT_DEATH(data[64 + 3 * 4096] = 1, "");
  EXPECT_DEATH(data[-2 * 4096 - 1] = 1, "");
  EXPECT_DEATH(data[1 << 20] = 1, "");
}

TEST_F(GuardedMemoryTest, NoMemoryIsAnErrorNotACrash) {
  for (const int64_t size : {int64_t{1} << 60, INT64_MAX})
    EXPECT_EQ(device_->allocate_guarded("output 0", size).error().code, Code::kUnavailable);
}

TEST(CpuEvaluationDevice, AnOverwrittenInputIsFoundAndDrawnAgain) {
  const auto device = make_cpu_evaluation_device(1);
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kI32, DType::kBool}) {
    const InputDraw draw{dtype, {70'001}, 7, 0, 1};
    const GuardedMemory memory =
        device->allocate_guarded("input 0", 70'001 * size_of(dtype)).value();
    const auto changed = [&] {
      EXPECT_TRUE(device->check_drawn(draw, Floats::kNormal, memory.data));
      return device->take().value()[0];
    };
    ASSERT_TRUE(device->draw(draw, Floats::kNormal, memory.data));
    EXPECT_EQ(changed().count, 0);
    reinterpret_cast<uint8_t*>(memory.data)[69'999 * size_of(dtype)] ^= 0x81;
    EXPECT_EQ(changed().count, 1);
    EXPECT_EQ(changed().first, 69'999);
    ASSERT_TRUE(device->draw(draw, Floats::kNormal, memory.data));
    EXPECT_EQ(changed().count, 0);
  }
}

TEST(CpuEvaluationDevice, AChecksumSeesEveryByteAndItsPlace) {
  const auto device = make_cpu_evaluation_device(1);
  std::vector<uint8_t> data(1003, 7);
  const auto mix = [&] {
    EXPECT_TRUE(device->checksum(device_ptr(data.data()), DType::kU8, 1003));
    return device->take().value()[0].mix;
  };
  const uint64_t before = mix();
  data[1002] ^= 1;
  EXPECT_NE(mix(), before);
  data[1002] ^= 1;
  std::fill_n(data.begin(), 8, uint8_t{9});
  const uint64_t first = mix();
  std::fill_n(data.begin(), 8, uint8_t{7});
  std::fill_n(data.begin() + 8, 8, uint8_t{9});
  EXPECT_NE(mix(), first);
}

}  // namespace
}  // namespace kiln::runner
