// Bits of e8m0 as bytes, and back.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

OneNode view(int from, const Doubles& values, int to) {
  const auto count = static_cast<int64_t>(values.size());
  return {"aten.view.dtype", {kX, dtype("dtype", to)}, {{from, {count}, values}}, to, {count}};
}

TEST(AtenBits, EveryByteIsAPowerOfTwo) {
  Doubles bytes, powers;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.push_back(byte);
    powers.push_back(byte == 255 ? kNan : std::ldexp(1.0, byte - 127));
  }
  const auto as_powers = view(kByte, bytes, kE8M0).run();
  ASSERT_TRUE(as_powers) << as_powers.error().message;
  const auto as_bytes = view(kE8M0, powers, kByte).run();
  ASSERT_TRUE(as_bytes) << as_bytes.error().message;
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ((*as_powers)[0].as<uint8_t>()[i], i);
    EXPECT_EQ((*as_bytes)[0].as<uint8_t>()[i], i);
  }
}

TEST(AtenBits, OtherBitsAreRefused) {
  const auto refused = [](int from, int to) {
    const auto got = view(from, {1, 2}, to).run();
    return !got && got.error().code == Code::kUnsupported;
  };
  EXPECT_FALSE(refused(kFloat, kFloat)) << "nothing changes";
  EXPECT_TRUE(refused(kFloat, kInt));
  EXPECT_TRUE(refused(kE4M3, kByte));
}

}  // namespace
}  // namespace kiln
