#include "coordinator/core/tuning/failures.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

// The table of failures and is_terminal(), which what is stored goes by, are of one mind.
TEST(FailureClass, AgreesWithWhatRecordsAreReadBy) {
  for (int i = 1; i <= 7; ++i) {
    const auto verdict = static_cast<Verdict>(i);
    EXPECT_EQ(failure_class(verdict) != FailureClass::kTransient, is_terminal(verdict))
        << to_string(verdict);
  }
  EXPECT_EQ(failure_class(Verdict::kOk), FailureClass::kNone);
}

TEST(FailureClass, OfErrorsIsWhetherTryingAgainGivesTheSame) {
  EXPECT_EQ(failure_class(Code::kUnsupported), FailureClass::kTerminal);
  EXPECT_EQ(failure_class(Code::kUnavailable), FailureClass::kTransient);
  EXPECT_EQ(failure_class(Code::kOverloaded), FailureClass::kTransient);
  EXPECT_EQ(failure_class(Code::kNotFound), FailureClass::kNone);
}

Error error_of(const char* message) {
  return Error{Code::kInternal, message, 0};
}

TEST(FailureMemory, ForgetsAfterABoundedTime) {
  CoreOptions options;
  options.failure_memory_ms = 100;
  FailureMemory memory(options);
  memory.remember(1'000, Digest::of("k"), error_of("first"));
  memory.remember(1'050, Digest::of("k"), error_of("again"));  // does not prolong it
  ASSERT_TRUE(memory.find(1'099, Digest::of("k")).has_value());
  EXPECT_EQ(memory.find(1'099, Digest::of("k"))->message, "first");
  EXPECT_FALSE(memory.find(1'100, Digest::of("k")).has_value());
}

TEST(FailureMemory, KeepsABoundedNumberTheNewest) {
  CoreOptions options;
  options.max_failures_remembered = 2;
  FailureMemory memory(options);
  for (const char* key : {"a", "b", "c"}) memory.remember(1, Digest::of(key), error_of(key));
  EXPECT_EQ(memory.size(), 2u);
  EXPECT_FALSE(memory.find(1, Digest::of("a")).has_value());
  EXPECT_TRUE(memory.find(1, Digest::of("c")).has_value());
}

TEST(FailureMemory, TransientFailuresSayTheirAgeAndGoSoon) {
  CoreOptions options;
  options.transient_memory_ms = 5'000;
  FailureMemory memory(options);
  memory.remember(1'000, Digest::of("k"), Error{Code::kUnavailable, "every runner died", 0});
  const auto known = memory.find(3'000, Digest::of("k"));
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->code, Code::kUnavailable);
  EXPECT_EQ(known->retry_after_ms, 3'000);
  EXPECT_NE(known->message.find("every runner died (that was 2.0 s ago"), std::string::npos)
      << known->message;
  EXPECT_FALSE(memory.find(6'000, Digest::of("k")).has_value());
}

TEST(FailureMemory, TransientOnesMakeRoomFirst) {
  CoreOptions options;
  options.max_failures_remembered = 2;
  FailureMemory memory(options);
  memory.remember(1, Digest::of("terminal"), error_of("a"));
  memory.remember(2, Digest::of("transient"), Error{Code::kUnavailable, "b", 0});
  memory.remember(3, Digest::of("another"), error_of("c"));
  EXPECT_TRUE(memory.find(3, Digest::of("terminal")).has_value());
  EXPECT_FALSE(memory.find(3, Digest::of("transient")).has_value());
}

TEST(FailureMemory, WhatIsNoFailureIsNotRemembered) {
  FailureMemory memory(CoreOptions{});
  memory.remember(1, Digest::of("k"), Error{Code::kNotFound, "a miss", 0});
  EXPECT_EQ(memory.size(), 0u);
}

}  // namespace
}  // namespace kiln
