#include "coordinator/session_table.h"

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

TEST(SessionTable, AWorkerThatReconnectsIsTheSameWorker) {
  SessionTable table(10);
  table.open("old", Role::kWorker, 0);
  table.bind_worker("old", "w");
  table.open("new", Role::kWorker, 0);
  table.bind_worker("new", "w");
  ASSERT_NE(table.peer_of("w"), nullptr);
  EXPECT_EQ(*table.peer_of("w"), "new");
  EXPECT_EQ(table.close("old").worker, "") << "the worker is not gone with its old connection";
  EXPECT_EQ(table.close("new").worker, "w");
  EXPECT_EQ(table.peer_of("w"), nullptr);
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
