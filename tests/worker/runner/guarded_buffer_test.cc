#include "worker/runner/cpu/guarded_buffer.h"

#include <gtest/gtest.h>

namespace kiln::runner {
namespace {

TEST(GuardedBuffer, IsAlignedAndWhole) {
  for (const int64_t bytes : {0, 1, 4, 4000, 4096, 70'001}) {
    const auto buffer = GuardedBuffer::allocate(bytes, 448);
    ASSERT_TRUE(buffer.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    buffer->fill(0xEE);
    EXPECT_EQ(buffer->damage(), std::nullopt) << bytes;
  }
}

TEST(GuardedBuffer, OneByteOnEitherSideIsFound) {
  const auto buffer = GuardedBuffer::allocate(1000, 0);
  ASSERT_TRUE(buffer.has_value());
  uint8_t* data = static_cast<uint8_t*>(buffer->data());
  data[-1] ^= 1;
  EXPECT_EQ(buffer->damage(), -1);
  buffer->repair();
  EXPECT_EQ(buffer->damage(), std::nullopt);
  data[1000] ^= 1;
  EXPECT_EQ(buffer->damage(), 1000);
  buffer->repair();
  data[1000 + 4095] ^= 1;
  EXPECT_EQ(buffer->damage(), 1000 + 4095);
}

TEST(GuardedBuffer, NoSingleByteValueMatchesTheGuard) {
  const auto buffer = GuardedBuffer::allocate(64, 0);
  ASSERT_TRUE(buffer.has_value());
  uint8_t* data = static_cast<uint8_t*>(buffer->data());
  for (int value = 0; value < 256; ++value) {
    buffer->repair();
    for (int i = 0; i < 4; ++i) data[64 + i] = static_cast<uint8_t>(value);
    EXPECT_TRUE(buffer->damage().has_value()) << value;
  }
}

TEST(GuardedBufferDeathTest, AWildWriteFaults) {
  const auto buffer = GuardedBuffer::allocate(64, 0);
  ASSERT_TRUE(buffer.has_value());
  auto* data = static_cast<volatile uint8_t*>(buffer->data());
  EXPECT_DEATH(data[64 + 2 * 4096] = 1, "");
  EXPECT_DEATH(data[-4096 - 1] = 1, "");
  EXPECT_DEATH(data[1 << 20] = 1, "");
}

TEST(GuardedBuffer, NoMemoryIsAnErrorNotACrash) {
  EXPECT_EQ(GuardedBuffer::allocate(int64_t{1} << 60, 0).error().code, Code::kUnavailable);
  EXPECT_EQ(GuardedBuffer::allocate(INT64_MAX, 0).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln::runner
