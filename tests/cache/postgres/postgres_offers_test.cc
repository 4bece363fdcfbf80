// Offered kernels in PostgreSQL, as the coordinators of one store see them.
#include "cache/postgres/postgres_offers.h"

#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

class PostgresOffersTest : public PostgresTest {
 protected:
  static Status put(PostgresStore& store, const std::string& key, const std::string& owner,
                    int64_t made_ms, const std::string& text) {
    return samples::wait([&](auto done) {
      store.offers().put_offer({key, owner, made_ms}, text, done);
    });
  }
  static Status remove(PostgresStore& store, const std::string& owner, int64_t until_ms) {
    return samples::wait([&](auto done) { store.offers().remove_offers(owner, until_ms, done); });
  }
  static Result<std::string> text_of(PostgresStore& store, const std::string& key) {
    std::promise<Result<std::string>> got;
    store.offers().look_up_offer(key, [&got](auto text) { got.set_value(std::move(text)); });
    return got.get_future().get();
  }
  // "key owner", oldest first.
  static std::vector<std::string> listed(PostgresStore& store) {
    std::vector<std::string> lines;
    const auto offers = store.offers().list_offers();
    for (const ListedOffer& each : offers.value()) lines.push_back(each.key + " " + each.owner);
    return lines;
  }
  using Lines = std::vector<std::string>;
};

TEST_F(PostgresOffersTest, WhatOneCoordinatorWasGivenTheNextOneHas) {
  const std::string bytes("text\0\xff", 6);
  auto first = open();
  ASSERT_TRUE(put(*first, "w/t/two", "bob", 20, "two"));
  ASSERT_TRUE(put(*first, "w/t/one", "ann", 10, bytes));
  EXPECT_EQ(text_of(*first, "w/t/one").value(), bytes);
  first.reset();
  auto second = open();
  EXPECT_EQ(listed(*second), (Lines{"w/t/one ann", "w/t/two bob"}));
  EXPECT_EQ(second->offers().list_offers()->front().bytes, 6);
  EXPECT_EQ(text_of(*second, "w/t/one").value(), bytes);
  EXPECT_EQ(text_of(*second, "w/t/none").error().code, Code::kNotFound);
  ASSERT_TRUE(put(*second, "w/t/one", "bob", 30, bytes));
  EXPECT_EQ(listed(*second), (Lines{"w/t/two bob", "w/t/one bob"})) << "whose it is by now";
}

TEST_F(PostgresOffersTest, WhatAnOwnerOfferedUntilThenIsRemoved) {
  auto store = open();
  ASSERT_TRUE(put(*store, "w/t/one", "ann", 10, "one"));
  ASSERT_TRUE(put(*store, "w/t/two", "bob", 10, "two"));
  ASSERT_TRUE(put(*store, "w/t/three", "ann", 20, "three"));
  ASSERT_TRUE(remove(*store, "ann", 20));
  EXPECT_EQ(listed(*store), (Lines{"w/t/two bob", "w/t/three ann"}));
}

TEST_F(PostgresOffersTest, TheOldestOfAWorkloadAndTargetGo) {
  auto store = open();
  ASSERT_TRUE(put(*store, "other/t/x", "", 0, "x"));
  for (int i = 0; i < 66; ++i) ASSERT_TRUE(put(*store, fmt::format("w/t/{}", i), "", i, "text"));
  const Lines left = listed(*store);
  ASSERT_EQ(left.size(), 65u);
  EXPECT_EQ(left[0], "other/t/x ");
  EXPECT_EQ(left[1], "w/t/2 ");
}

// Rows of many bytes without the bytes: the column that counts them is written by hand.
TEST_F(PostgresOffersTest, BeyondTheBoundTheOldestOfWhoHasTheMostGo) {
  auto store = open();
  (void)place_->ask("ALTER TABLE kiln.offers ALTER COLUMN bytes DROP EXPRESSION");
  ASSERT_TRUE(put(*store, "a/t/few", "ann", 1, "few"));
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(put(*store, fmt::format("b{}/t/much", i), "bob", 10 + i, "much"));
  (void)place_->ask(
      fmt::format("UPDATE kiln.offers SET bytes = CASE owner WHEN 'bob' THEN {} ELSE 9 END",
                  PostgresOffers::kMostBytes / 3 + 1));
  ASSERT_TRUE(put(*store, "a/t/new", "ann", 30, "new"));
  EXPECT_EQ(listed(*store),
            (Lines{"a/t/few ann", "b1/t/much bob", "b2/t/much bob", "a/t/new ann"}));
}

TEST_F(PostgresOffersTest, WithoutTheTermNothingIsOfferedAndWithoutPostgresNothingIsSaid) {
  auto store = open();
  ASSERT_TRUE(put(*store, "w/t/one", "ann", 10, "one"));
  (void)place_->ask("UPDATE kiln.terms SET epoch = epoch + 1");
  EXPECT_EQ(put(*store, "w/t/two", "ann", 20, "two").error().code, Code::kUnavailable);
  EXPECT_EQ(remove(*store, "ann", 30).error().code, Code::kUnavailable);
  EXPECT_EQ(place_->ask("SELECT key FROM kiln.offers"), "w/t/one");
  server_->kill();
  EXPECT_EQ(store->offers().list_offers().error().code, Code::kUnavailable);
  EXPECT_EQ(text_of(*store, "w/t/one").error().code, Code::kUnavailable);
  server_->begin();
}

}  // namespace
}  // namespace kiln
