#include "coordinator/service/session_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kiln {
namespace {

TEST(SessionTable, KnowsWhoSaidHello) {
  SessionTable table(10);
  EXPECT_EQ(table.find("a"), nullptr);
  EXPECT_TRUE(table.open("a", {Role::kWorker, 5}));
  ASSERT_NE(table.find("a"), nullptr);
  EXPECT_EQ(table.find("a")->role, Role::kWorker);
  table.close("a");
  EXPECT_EQ(table.find("a"), nullptr);
}

TEST(SessionTable, IsBounded) {
  SessionTable table(2);
  EXPECT_TRUE(table.open("a", {Role::kClient, 0}));
  EXPECT_TRUE(table.open("b", {Role::kClient, 0}));
  EXPECT_FALSE(table.open("c", {Role::kClient, 0}));
  EXPECT_TRUE(table.open("b", {Role::kClient, 0})) << "saying Hello again takes no other place";
  table.close("a");
  EXPECT_TRUE(table.open("c", {Role::kClient, 0}));
}

bool nobody(const PeerId&) {
  return false;
}
bool everybody(const PeerId&) {
  return true;
}
Code code_of(const Result<PeerId>& claimed) {
  return claimed ? Code::kInternal : claimed.error().code;
}

TEST(SessionTable, AWorkerThatReconnectsIsTheSameWorker) {
  SessionTable table(10);
  table.open("old", {Role::kWorker, 0});
  EXPECT_EQ(table.claim_worker("old", "w", everybody, 1), "");
  EXPECT_EQ(table.claim_worker("old", "w", everybody, 2), "") << "each report says the name";
  table.open("new", {Role::kWorker, 0});
  EXPECT_EQ(table.claim_worker("new", "w", nobody, 3), "");
  ASSERT_NE(table.peer_of("w"), nullptr);
  EXPECT_EQ(*table.peer_of("w"), "new");
  EXPECT_EQ(table.close("old").worker, "") << "the worker is not gone with its old connection";
  EXPECT_EQ(table.close("new").worker, "w");
  EXPECT_EQ(table.peer_of("w"), nullptr);
}

TEST(SessionTable, ALiveWorkersNameTakesItsToken) {
  SessionTable table(10);
  const std::string token = table.open("old", {Role::kWorker, 0})->token;
  ASSERT_TRUE(table.claim_worker("old", "w", everybody, 1).has_value());
  EXPECT_NE(table.open("twin", {Role::kWorker, 0})->token, token);
  EXPECT_EQ(code_of(table.claim_worker("twin", "w", everybody, 2)), Code::kUnavailable);
  table.open("resumed", {Role::kWorker, 0, {}, token});
  EXPECT_EQ(table.claim_worker("resumed", "w", everybody, 3), "old");
  EXPECT_EQ(*table.peer_of("w"), "resumed");
}

TEST(SessionTable, AWorkersNameIsItsUsersForAnHour) {
  const User alice{"alice", Grant::kWorker}, eve{"eve", Grant::kWorker};
  SessionTable table(10);
  const std::string token = table.open("a", {Role::kWorker, 1, alice})->token;
  ASSERT_TRUE(table.claim_worker("a", "w", everybody, 1).has_value());
  table.open("e", {Role::kWorker, 1, eve, token});  // even with her token
  EXPECT_EQ(code_of(table.claim_worker("e", "w", everybody, 2)), Code::kPermissionDenied);
  table.close("a");
  EXPECT_EQ(code_of(table.claim_worker("e", "w", nobody, 3'000'000)), Code::kPermissionDenied);
  EXPECT_TRUE(table.claim_worker("e", "w", nobody, 4'000'000).has_value());
}

TEST(SessionTable, AConnectionSpeaksForOneWorker) {
  SessionTable table(10);
  table.open("a", {Role::kWorker, 0});
  ASSERT_TRUE(table.claim_worker("a", "w", everybody, 1).has_value());
  EXPECT_EQ(code_of(table.claim_worker("a", "v", everybody, 2)), Code::kInvalidArgument);
}

TEST(Session, AReaderHearsNothingOfOthersSourcesNorOfWhatTheyQueued) {
  CompileReply failed;
  failed.request = 7;
  failed.outcome = fail(Code::kInternal, "no candidate survived\nk.cc:3: secret = algorithm();");
  Stats stats;
  stats.detached_failed = 1;
  stats.detached = {{{}, {}, {}, Mode::kDefault, "failed", "it does not compile\nk.cc:3: secret"}};
  for (const Grant grant : {Grant::kRead, Grant::kSubmit, Grant::kAdmin}) {
    Session session;
    session.user = {"somebody", grant};
    CompileRequest request;
    request.request = 7;
    session.look_only(request);
    CompileReply reply = failed;
    session.judge(reply);
    EXPECT_EQ(reply.outcome.error().message.find("secret") == std::string::npos,
              grant == Grant::kRead);
    Stats seen = stats;
    session.judge(seen);
    EXPECT_EQ(seen.detached_failed, 1);
    EXPECT_EQ(seen.detached.empty(), grant == Grant::kRead);
  }
}

TEST(Session, WhatIsTunedForItIsOfWhomItsKeyShares) {
  Session session;
  session.user = {"ann", Grant::kSubmit};
  EXPECT_TRUE(session.audience().is_all());
  session.user.share = Share::kPrivate;
  EXPECT_EQ(session.audience(), Audience::of_user("ann"));
  session.user.share = Share::kTeam;
  session.user.team = "vision";
  EXPECT_EQ(session.audience(), Audience::of_team("vision"));
  EXPECT_TRUE(session.may_have(Audience::of_team("vision")));
  EXPECT_FALSE(session.may_have(Audience::of_user("eve")));
  EXPECT_FALSE(session.viewer().sees_all);
  session.user.grant = Grant::kAdmin;
  EXPECT_TRUE(session.may_have(Audience::of_user("eve")));
}

TEST(SessionTable, QuietPeersAreNamedInTurn) {
  SessionTable table(10);
  for (const char* peer : {"a", "b", "c", "d", "e"}) table.open(peer, {Role::kClient, 10});
  table.find("c")->heard_ms = 100;
  std::vector<PeerId> seen;
  for (int round = 0; round < 2; ++round) {
    for (const PeerId& peer : table.quiet(50, 2)) seen.push_back(peer);
  }
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<PeerId>{"a", "b", "d", "e"}));
  EXPECT_TRUE(table.quiet(10, 10).empty());
}

}  // namespace
}  // namespace kiln
