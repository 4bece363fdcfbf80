#include "compiler_core/program/audience.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Viewer kAnn{"ann", "vision", false}, kBob{"bob", "vision", false}, kEve{"eve", "", false},
    kOperator{"root", "", true}, kNobody{};

TEST(Audience, AProgramIsOfThoseItNames) {
  const Audience all, ann = Audience::of_user("ann"), vision = Audience::of_team("vision");
  for (const Viewer& viewer : {kAnn, kBob, kEve, kOperator, kNobody})
    EXPECT_TRUE(all.admits(viewer)) << viewer.user;
  EXPECT_TRUE(ann.admits(kAnn));
  EXPECT_TRUE(vision.admits(kBob));
  EXPECT_TRUE(ann.admits(kOperator));
  EXPECT_FALSE(ann.admits(kBob));
  EXPECT_FALSE(vision.admits(kEve));
  EXPECT_FALSE(ann.admits(kNobody));
  EXPECT_FALSE(Audience::of_user("vision").admits(kBob)) << "a team is no user";
}

TEST(Audience, ItOnlyGrows) {
  Audience audience = Audience::of_user("ann");
  audience.add(Audience::of_team("vision"));
  EXPECT_TRUE(audience.admits(kAnn));
  EXPECT_TRUE(audience.admits(kBob));
  EXPECT_TRUE(audience.covers(Audience::of_user("ann")));
  EXPECT_FALSE(audience.covers(Audience::of_user("eve")));
  EXPECT_FALSE(audience.covers(Audience()));
  audience.add(Audience());
  EXPECT_TRUE(audience.is_all());
  audience.add(Audience::of_user("ann"));
  EXPECT_TRUE(audience.is_all()) << "what was everybody's stays so";
  EXPECT_TRUE(audience.covers(Audience::of_user("eve")));
}

TEST(Audience, ItsTextIsReadAgainAndDamagedTextAdmitsNobody) {
  Audience audience = Audience::of_user("ann");
  audience.add(Audience::of_team("vision"));
  EXPECT_EQ(audience.to_text(), "team vision\nuser ann");
  EXPECT_EQ(Audience::parse(audience.to_text()), audience);
  EXPECT_EQ(Audience::parse(""), Audience());
  for (const char* damaged : {"usr ann", "ann", "user", "\n"})
    EXPECT_FALSE(Audience::parse(damaged).admits(kAnn)) << damaged;
}

}  // namespace
}  // namespace kiln
