#include "coordinator/core/tuning/failure_class.h"

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

}  // namespace
}  // namespace kiln
