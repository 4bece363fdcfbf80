// A service that the tests of a suite share.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace kiln::testing {

template <class Base = ::testing::Test>
class OneService : public Base {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir(*TempDir::create());
    service_ = new Service(dir_->path() / "data");
    ASSERT_FALSE(service_->endpoint().empty()) << service_->log();
  }
  static void TearDownTestSuite() {
    delete service_;
    delete dir_;
  }

  static inline TempDir* dir_ = nullptr;
  static inline Service* service_ = nullptr;
};

}  // namespace kiln::testing
