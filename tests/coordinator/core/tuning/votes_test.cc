#include "coordinator/core/tuning/votes.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using State = Votes::State;
const Digest kBytes = Digest::of("bytes"), kOthers = Digest::of("others");

TEST(Votes, OneIsNotEnoughAndASecondOwnerConfirms) {
  Votes votes;
  votes.good({"w", "a"}, kBytes);
  EXPECT_EQ(votes.state(Among::kOwners), State::kOpen);
  votes.good({"v", "a"}, kBytes);
  EXPECT_EQ(votes.state(Among::kOwners), State::kOpen) << "one key has one vote";
  EXPECT_EQ(votes.state(Among::kWorkers), State::kConfirmed);
  votes.good({"x", "b"}, kBytes);
  EXPECT_EQ(votes.state(Among::kOwners), State::kConfirmed);
  EXPECT_EQ(votes.confirmed_bytes(Among::kOwners), kBytes);
  EXPECT_TRUE(votes.minority(Among::kOwners).empty());
}

TEST(Votes, OtherBytesConfirmNothing) {
  Votes votes;
  votes.good({"w", "a"}, kBytes);
  votes.good({"v", "b"}, kOthers);
  EXPECT_EQ(votes.state(Among::kOwners), State::kDisputed);
  EXPECT_TRUE(votes.differs_in_bytes_alone());
  votes.good({"x", "c"}, kOthers);
  EXPECT_EQ(votes.confirmed_bytes(Among::kOwners), kOthers);
  EXPECT_EQ(votes.minority(Among::kOwners), (std::vector<Reporter>{{"w", "a"}}))
      << "all that are asked have one compiler";
}

TEST(Votes, TwoDecideAndTheThirdIsNamed) {
  Votes votes;
  votes.good({"w", "a"}, kBytes);
  votes.bad({"evil", "b"});
  EXPECT_EQ(votes.state(Among::kOwners), State::kDisputed);
  EXPECT_FALSE(votes.differs_in_bytes_alone());
  Votes wrong = votes;
  votes.good({"x", "c"}, kBytes);
  EXPECT_EQ(votes.state(Among::kOwners), State::kConfirmed);
  EXPECT_EQ(votes.minority(Among::kOwners), (std::vector<Reporter>{{"evil", "b"}}));
  wrong.bad({"x", "c"});
  EXPECT_EQ(wrong.state(Among::kOwners), State::kRefuted);
  EXPECT_EQ(wrong.minority(Among::kOwners), (std::vector<Reporter>{{"w", "a"}}));
}

TEST(Votes, NobodyIsAskedTwice) {
  Votes votes;
  votes.good({"w", "a"}, kBytes);
  EXPECT_FALSE(votes.may_ask({"w", "a"}, Among::kWorkers));
  EXPECT_FALSE(votes.may_ask({"v", "a"}, Among::kOwners));
  EXPECT_TRUE(votes.may_ask({"v", "a"}, Among::kWorkers));
  EXPECT_TRUE(votes.may_ask({"v", "b"}, Among::kOwners));
  EXPECT_FALSE(votes.may_ask({"v", ""}, Among::kOwners)) << "an owner has a key";
  votes.excuse("v");
  EXPECT_FALSE(votes.may_ask({"v", "b"}, Among::kOwners));
}

}  // namespace
}  // namespace kiln
