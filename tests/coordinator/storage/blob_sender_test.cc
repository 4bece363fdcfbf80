#include "coordinator/storage/blob_sender.h"

#include <gtest/gtest.h>

#include <future>

#include "cache/kernel_cache.h"
#include "tests/cache/far_store.h"

namespace kiln {
namespace {

class BlobSenderTest : public ::testing::Test, public EventLoop {
 protected:
  void post(Job job) override { inbox_.post(std::move(job)); }
  void step(Event) override {}
  int64_t now_ms() const override { return 0; }
  void log(const LogLine&) const override {}

  Digest put(const std::string& bytes) {
    std::promise<Status> stored;
    cache_->put_blob(bytes, [&](Status status) { stored.set_value(std::move(status)); });
    EXPECT_TRUE(stored.get_future().get());
    return Digest::of(bytes);
  }
  Path file_of(const Digest& digest) const {
    return dir_.path() / "data" / "blobs" / digest.hex().substr(0, 2) / digest.hex();
  }
  // A link to itself in the file's place cannot be opened: an error that says nothing of the blob,
  // like that of a process out of descriptors.
  void refuse(const Digest& digest) {
    std::filesystem::rename(file_of(digest), aside());
    std::filesystem::create_symlink(file_of(digest), file_of(digest));
  }
  void relent(const Digest& digest) {
    std::filesystem::remove(file_of(digest));
    std::filesystem::rename(aside(), file_of(digest));
  }
  void ask(const PeerId& peer, std::vector<Digest> digests) {
    BlobRequest request;
    request.request = 1;
    request.digests = std::move(digests);
    request.credit = 1 << 20;
    EXPECT_TRUE(sender_.add(peer, "", std::move(request), 0));
  }
  std::optional<BlobSender::Piece> next(int64_t now_ms) {
    return sender_.next(now_ms, [](const PeerId&) { return true; });
  }
  Path aside() const { return dir_.path() / "aside"; }

  const TempDir dir_ = TempDir::create("kiln-blob-desk").value();
  const std::unique_ptr<KernelCache> cache_ = KernelCache::open(dir_.path() / "data").value();
  Inbox inbox_{[] {}};
  BlobMemoryCache memory_{0};
  BlobSender sender_{*cache_, memory_, *this};
};

TEST_F(BlobSenderTest, ABlobIsSentWhole) {
  const Digest blob = put("binary");
  ask("peer", {blob});
  const auto piece = next(0);
  ASSERT_TRUE(piece);
  ASSERT_EQ(piece->reply.chunks.size(), 1u);
  EXPECT_EQ(piece->reply.chunks[0].bytes, "binary");
  EXPECT_TRUE(piece->reply.last);
  EXPECT_TRUE(sender_.idle());
}

TEST_F(BlobSenderTest, AnAbsentBlobIsLost) {
  const Digest blob = Digest::of("never put");
  ask("peer", {blob});
  const auto piece = next(0);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.missing, std::vector{blob});
  EXPECT_EQ(sender_.take_missing(), std::vector{blob});
}

TEST_F(BlobSenderTest, WhatCannotBeReadNowIsTriedAgainAndHoldsUpNobody) {
  const Digest blob = put("binary"), other = put("other");
  refuse(blob);
  ask("peer", {other, blob});
  ask("neighbour", {other});
  const auto first = next(0), second = next(0);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->reply.chunks.size(), 1u);
  EXPECT_FALSE(first->reply.last);
  EXPECT_EQ(second->peer, "neighbour");
  EXPECT_TRUE(second->reply.last);
  EXPECT_FALSE(next(0));
  EXPECT_FALSE(sender_.idle());

  relent(blob);
  const auto third = next(10);
  ASSERT_TRUE(third);
  ASSERT_EQ(third->reply.chunks.size(), 1u);
  EXPECT_EQ(third->reply.chunks[0].bytes, "binary");
  EXPECT_TRUE(third->reply.last);
  EXPECT_TRUE(sender_.take_missing().empty());
}

TEST_F(BlobSenderTest, WhatCannotBeReadForLongIsMissingToThatPeerAndNotLost) {
  const Digest blob = put("binary");
  refuse(blob);
  ask("peer", {blob});
  EXPECT_FALSE(next(1'000));
  EXPECT_FALSE(next(2'999));
  const auto piece = next(3'000);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.missing, std::vector{blob});
  EXPECT_TRUE(piece->reply.last);
  EXPECT_TRUE(sender_.take_missing().empty());
}

// ---- A store behind a network ----

class FarBlobs : public BlobSenderTest {
 protected:
  void arrive() {
    far_.arrive();
    for (const Job& job : inbox_.take()) job();
  }
  void ask_far(const PeerId& peer, std::vector<Digest> digests) {
    EXPECT_TRUE(far_sender_.add(peer, "", {1, std::move(digests), 1 << 20}, 0));
  }
  std::optional<BlobSender::Piece> next_far(int64_t now_ms = 0) {
    return far_sender_.next(now_ms, [](const PeerId&) { return true; });
  }

  FarStore far_{*cache_};
  BlobMemoryCache far_memory_{1 << 20};
  BlobSender far_sender_{far_, far_memory_, *this};
};

TEST_F(FarBlobs, ABlobUnderWayIsAskedForOnceAndKeepsTheLoopFromNothing) {
  const Digest blob = put("binary");
  for (const char* peer : {"a", "b", "gone"}) ask_far(peer, {blob});
  EXPECT_FALSE(next_far());
  EXPECT_TRUE(far_sender_.idle()) << "nobody asks the loop to look again and again";
  EXPECT_EQ(far_.asked, 1);
  far_sender_.remove("gone");
  arrive();
  EXPECT_FALSE(far_sender_.idle());
  for (const char* peer : {"a", "b"}) {
    const auto piece = next_far();
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->peer, peer);
    EXPECT_EQ(piece->reply.chunks.at(0).bytes, "binary");
    EXPECT_TRUE(piece->reply.last);
  }
  EXPECT_FALSE(next_far());
}

TEST_F(FarBlobs, ThoseAfterItAreAskedForMeanwhile) {
  std::vector<Digest> blobs;
  for (int n = 0; n < 10; ++n) blobs.push_back(put("binary " + std::to_string(n)));
  ask_far("peer", blobs);
  EXPECT_FALSE(next_far());
  EXPECT_EQ(far_.asked, 10);
  arrive();
  const auto piece = next_far();
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.chunks.size(), 10u);
  EXPECT_TRUE(piece->reply.last);
  EXPECT_EQ(far_.asked, 10);
}

TEST_F(FarBlobs, WhatAStoreThatIsAwayDoesNotBringIsMissingToThatPeerAndNotLost) {
  const Digest blob = put("binary");
  far_.is_away = true;
  ask_far("peer", {blob});
  std::optional<BlobSender::Piece> piece;
  int64_t now_ms = 0;
  for (; !piece && now_ms < 10'000; now_ms += 50) {
    piece = next_far(now_ms);
    arrive();
  }
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.missing, std::vector{blob});
  EXPECT_TRUE(far_sender_.take_missing().empty()) << "an outage must not empty the store";
  EXPECT_GE(now_ms, 2'000);
  EXPECT_LT(far_.asked, 30) << "a store that is away is not asked all the time";
  far_.is_away = false;
  ask_far("late", {blob});
  EXPECT_FALSE(next_far(now_ms));
  arrive();
  EXPECT_EQ(next_far(now_ms)->reply.chunks.at(0).bytes, "binary");
}

TEST_F(FarBlobs, AStoreThatTriedForLongIsNotAskedAgainAndEndsTheWholeProgram) {
  const std::vector<Digest> blobs = {put("first"), put("second"), put("third")};
  far_.is_away = true;
  ask_far("peer", blobs);
  EXPECT_FALSE(next_far(0));
  arrive();
  const auto piece = next_far(10'000);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.missing, blobs);
  EXPECT_TRUE(piece->reply.last);
  EXPECT_FALSE(piece->reply.why.empty());
  EXPECT_EQ(far_.asked, 3);
  EXPECT_TRUE(far_sender_.take_missing().empty());
}

TEST_F(FarBlobs, WhatTheStoreSaysIsAbsentIsLost) {
  ask_far("peer", {Digest::of("never put")});
  EXPECT_FALSE(next_far());
  arrive();
  const auto piece = next_far();
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->reply.missing.size(), 1u);
  EXPECT_EQ(piece->reply.why, "") << "it is made again";
  EXPECT_EQ(far_sender_.take_missing().size(), 1u);
}

// ---- Links ----

class LinkedBlobs : public FarBlobs {
 protected:
  void ask_links(std::vector<Digest> digests, int64_t credit = 1 << 20) {
    EXPECT_TRUE(linking_.add("peer", "", {1, std::move(digests), credit, true}, 0));
  }
  BlobReply next_linked() {
    auto piece = next_from_linking();
    for (int ways = 0; !piece && ways < 3; ++ways) {  // a link, then the bytes
      arrive();
      piece = next_from_linking();
    }
    EXPECT_TRUE(piece);
    return piece ? piece->reply : BlobReply{};
  }
  BlobSender linking_{far_, far_memory_, *this, true};

 private:
  std::optional<BlobSender::Piece> next_from_linking() {
    return linking_.next(0, [](const PeerId&) { return true; });
  }
};

TEST_F(LinkedBlobs, WhoCanReadLinksGetsThemForWhatMemoryDoesNotHave) {
  const Digest here = put("in memory"), there = put("in the store"), other = put("also there");
  far_memory_.put(here, "in memory");
  ask_links({there, here, other});
  const BlobReply reply = next_linked();
  ASSERT_EQ(reply.links.size(), 2u);
  EXPECT_EQ(reply.links[0].digest, there);
  EXPECT_EQ(reply.links[0].url, "https://far/" + there.hex());
  EXPECT_EQ(reply.links[1].digest, other);
  ASSERT_EQ(reply.chunks.size(), 1u);
  EXPECT_EQ(reply.chunks[0].bytes, "in memory");
  EXPECT_TRUE(reply.last);
  EXPECT_EQ(linking_.links(), 2);
  EXPECT_EQ(far_memory_.find(there), nullptr) << "its bytes do not come here";
}

TEST_F(LinkedBlobs, WhereThereIsNoLinkTheBytesAreSent) {
  const Digest blob = put("binary");
  far_.has_links = false;
  ask_links({blob, Digest::of("never put")});
  BlobReply reply = next_linked();
  ASSERT_EQ(reply.chunks.size(), 1u);
  EXPECT_EQ(reply.chunks[0].bytes, "binary");
  if (!reply.last) reply = next_linked();
  EXPECT_EQ(reply.missing, std::vector{Digest::of("never put")});
  EXPECT_EQ(linking_.links(), 0);
}

TEST_F(LinkedBlobs, WhoCannotReadThemAndACoordinatorThatHandsOutNoneGetBytes) {
  const Digest blob = put("binary");
  EXPECT_TRUE(linking_.add("peer", "", {1, {blob}, 1 << 20}, 0));
  EXPECT_EQ(next_linked().chunks.size(), 1u);
  EXPECT_TRUE(far_sender_.add("peer", "", {1, {put("other")}, 1 << 20, true}, 0));
  EXPECT_FALSE(next_far());
  arrive();
  EXPECT_EQ(next_far()->reply.chunks.size(), 1u);
}

TEST_F(LinkedBlobs, ABlobThatIsUnderWayGoesOnAsBytes) {
  const Digest blob = put(std::string(1'000, 'b'));
  far_memory_.put(blob, std::string(1'000, 'b'));
  ask_links({blob}, 600);
  EXPECT_EQ(next_linked().chunks.at(0).bytes.size(), 600u);
  far_memory_.remove(blob);
  linking_.add_credit("peer", {1, 1'000});
  const BlobReply rest = next_linked();
  EXPECT_TRUE(rest.links.empty());
  EXPECT_EQ(rest.chunks.at(0).offset, 600);
}

TEST_F(BlobSenderTest, WhatAllTogetherAskForIsBounded) {
  const std::vector<Digest> many(4096, Digest::of("none such"));
  const auto asks = [&](int peer) {
    return sender_.add("peer " + std::to_string(peer), "", BlobRequest{1, many}, 0);
  };
  int taken = 0;
  while (taken < 1'000 && asks(taken)) ++taken;
  EXPECT_EQ(taken, 255);  // a million digests, but for what a newcomer asks for
  sender_.remove("peer 7");
  EXPECT_TRUE(asks(1'001));
  EXPECT_FALSE(asks(1'002));
}

TEST_F(BlobSenderTest, WhatIsAnsweredMakesRoom) {
  ask("early", {put("binary")});
  const std::vector<Digest> many(4096, Digest::of("none such"));
  for (int i = 0; i < 254; ++i) ask("peer " + std::to_string(i), many);
  EXPECT_FALSE(sender_.add("late", "", BlobRequest{1, many}, 0));
  const auto piece = next(0);
  ASSERT_TRUE(piece.has_value());
  EXPECT_EQ(piece->peer, "early");
  EXPECT_TRUE(piece->reply.last);
  EXPECT_TRUE(sender_.add("late", "", BlobRequest{1, many}, 0));
}

TEST_F(BlobSenderTest, OneUserLeavesPlacesToOthersHoweverManyConnectionsItHas) {
  const std::vector<Digest> many(4096, Digest::of("none such"));
  const auto taken_by = [&](const std::string& user) {
    int taken = 0;
    for (int peer = 0; peer < 40; ++peer)
      for (uint64_t request = 0; request < 16; ++request)
        taken += sender_.add(user + std::to_string(peer), user, {request, many, 0}, 0) ? 1 : 0;
    return taken;
  };
  EXPECT_EQ(taken_by("eve"), 128);
  EXPECT_EQ(taken_by("mallory"), 64);
  EXPECT_TRUE(sender_.add("honest", "bob", BlobRequest{1, many}, 0));
}

TEST_F(BlobSenderTest, ConnectionsWithoutKeysLeavePlacesToo) {
  const std::vector<Digest> many(4096, Digest::of("none such"));
  int taken = 0;
  for (int peer = 0; peer < 256; ++peer)
    for (uint64_t request = 0; request < 16; ++request)
      taken += sender_.add("peer " + std::to_string(peer), "", {request, many, 0}, 0) ? 1 : 0;
  EXPECT_LT(taken, 256);
  EXPECT_TRUE(sender_.add("honest", "", BlobRequest{1, {many[0], many[1]}}, 0));
}

TEST_F(BlobSenderTest, WhatNobodyGivesCreditForEnds) {
  const Digest blob = put("binary");
  for (uint64_t request = 0; request < 16; ++request)
    EXPECT_TRUE(sender_.add("deaf", "", {request, {blob}, 0}, 0));
  EXPECT_FALSE(sender_.add("deaf", "", {17, {blob}, 0}, 0));
  EXPECT_TRUE(sender_.idle()) << "nobody asks the loop to look again and again";
  sender_.add_credit("deaf", {3, 1 << 20});
  ASSERT_TRUE(next(10));
  EXPECT_TRUE(sender_.take_stalled(BlobSender::kStalledMs - 1).empty());
  EXPECT_EQ(sender_.take_stalled(BlobSender::kStalledMs), std::vector<PeerId>(15, "deaf"));
  EXPECT_TRUE(sender_.add("deaf", "", {18, {blob}}, 40'000));
}

TEST_F(BlobSenderTest, CreditThatComesLateGoesOnWhereItEnded) {
  const std::string bytes(1000, 'b');
  const Digest blob = put(bytes);
  EXPECT_TRUE(sender_.add("slow", "", {1, {blob}, 400}, 0));
  const auto first = next(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->reply.chunks.at(0).bytes.size(), 400u);
  EXPECT_FALSE(next(0));
  EXPECT_TRUE(sender_.take_stalled(20'000).empty());
  sender_.add_credit("slow", {1, 600});
  const auto second = next(20'000);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->reply.chunks.at(0).offset, 400);
  EXPECT_TRUE(second->reply.last);
  EXPECT_TRUE(sender_.take_stalled(100'000).empty());
}

}  // namespace
}  // namespace kiln
