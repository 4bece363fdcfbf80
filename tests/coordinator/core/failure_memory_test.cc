#include "coordinator/core/failure_memory.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Error error_of(const char* message) {
  return Error{Code::kInternal, message, 0};
}

TEST(FailureMemory, ForgetsAfterABoundedTime) {
  CoreOptions options;
  options.failure_memory_ms = 100;
  FailureMemory memory(options);
  memory.remember(1'000, Digest::of("k"), error_of("first"));
  memory.remember(1'050, Digest::of("k"), error_of("again"));  // does not prolong it
  ASSERT_NE(memory.find(1'099, Digest::of("k")), nullptr);
  EXPECT_EQ(memory.find(1'099, Digest::of("k"))->message, "first");
  EXPECT_EQ(memory.find(1'100, Digest::of("k")), nullptr);
}

TEST(FailureMemory, KeepsABoundedNumberTheNewest) {
  CoreOptions options;
  options.max_failures_remembered = 2;
  FailureMemory memory(options);
  for (const char* key : {"a", "b", "c"}) memory.remember(1, Digest::of(key), error_of(key));
  EXPECT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory.find(1, Digest::of("a")), nullptr);
  EXPECT_NE(memory.find(1, Digest::of("c")), nullptr);
}

}  // namespace
}  // namespace kiln
