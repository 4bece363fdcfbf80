#include "cache/artifact_store.h"

#include <gtest/gtest.h>

#include <future>

namespace kiln {
namespace {

constexpr int64_t kRow = 512;  // of an entry, beside its key and value

class ArtifactStoreTest : public ::testing::Test {
 protected:
  ArtifactStoreTest() : dir_(*TempDir::create("kiln-artifacts")) { open(1 << 20); }

  void open(int64_t max_bytes) {
    store_.reset();
    auto opened = ArtifactStore::open(file(), key_, {max_bytes, [this] { return now_ms_.load(); }});
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = *std::move(opened);
  }
  Path file() const { return dir_.path() / kArtifactsFile; }

  Status put(const std::string& key, std::string value, const Audience& audience = {},
             const std::string& owner = "ann", const std::string& kind = "inductor.gemm") {
    std::promise<Status> done;
    store_->put({kind, key}, std::move(value), audience, owner,
                [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  Result<KeptArtifact> get(const std::string& key, const Viewer& viewer = {},
                           const std::string& kind = "inductor.gemm") {
    std::promise<Result<KeptArtifact>> got;
    store_->get({kind, key}, viewer,
                [&](Result<KeptArtifact> found) { got.set_value(std::move(found)); });
    return got.get_future().get();
  }
  std::string value_of(const std::string& key, const Viewer& viewer = {}) {
    const auto found = get(key, viewer);
    return found ? found->value : "";
  }
  ArtifactTotals totals() { return store_->totals()["inductor.gemm"]; }

  const TempDir dir_;
  const SigningKey key_ = SigningKey::generate();
  std::atomic<int64_t> now_ms_{1'000'000};
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(ArtifactStoreTest, GivesWhatWasPutSignedAlsoWhenOpenedAgain) {
  EXPECT_EQ(get("k").error().code, Code::kNotFound);
  ASSERT_TRUE(put("k", "first"));
  ASSERT_TRUE(put("k", std::string("se\0cond", 7)));
  for (int i = 0; i < 2; ++i, open(1 << 20)) {
    const auto found = get("k");
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->value, std::string("se\0cond", 7));
    EXPECT_TRUE(verify_signature(signed_artifact("inductor.gemm", "k", found->value),
                                 {key_.public_key(), found->signature}, key_.public_key(), "it"));
    EXPECT_EQ(get("k", {}, "inductor.autotune").error().code, Code::kNotFound);
    EXPECT_EQ(totals().entries, 1);
    EXPECT_EQ(totals().bytes, kRow + 1 + 7);
  }
}

TEST_F(ArtifactStoreTest, WhatWasNotUsedForTheLongestMakesRoom) {
  const int64_t each = kRow + 1 + 1000;
  open(3 * each);
  for (const char* key : {"a", "b", "c"}) {
    now_ms_ += 100'000;
    ASSERT_TRUE(put(key, std::string(1000, 'v')));
  }
  now_ms_ += 100'000;
  EXPECT_NE(value_of("a"), "");
  now_ms_ += 100'000;
  ASSERT_TRUE(put("d", std::string(1000, 'v')));
  EXPECT_EQ(value_of("b"), "") << "the least recently used";
  for (const char* key : {"a", "c", "d"}) EXPECT_NE(value_of(key), "") << key;
  EXPECT_EQ(totals().evicted, 1);
  EXPECT_EQ(totals().bytes, 3 * each);
  EXPECT_EQ(put("large", std::string(static_cast<size_t>(3 * each), 'v')).error().code,
            Code::kInvalidArgument);
  open(each);
  EXPECT_EQ(totals().entries, 1) << "a smaller bound holds from the start";
}

// The flood of one user makes room at that user's cost, also after a restart.
TEST_F(ArtifactStoreTest, WhoHasTheMostMakesRoom) {
  const int64_t each = kRow + 2 + 1000;
  open(6 * each);
  const auto fill = [&](const std::string& key, const std::string& owner) {
    now_ms_ += 100'000;
    ASSERT_TRUE(put(key, std::string(1000, 'v'), {}, owner));
  };
  for (const char* key : {"a1", "a2", "a3"}) fill(key, "ann");
  for (int i = 0; i < 9; ++i) fill("e" + std::to_string(i), "eve");
  for (const char* key : {"a1", "a2", "a3"}) EXPECT_NE(value_of(key), "") << key;
  for (const char* key : {"e6", "e7", "e8"}) EXPECT_NE(value_of(key), "") << key;
  EXPECT_EQ(value_of("e5"), "");
  open(6 * each);
  fill("a4", "ann");
  EXPECT_EQ(value_of("a1"), "") << "who has the most, with what is put, is the one who puts";
  EXPECT_EQ(value_of("e6").size(), 1000u);
  fill("b1", "bob");
  EXPECT_NE(value_of("b1"), "") << "who has the least makes no room";
  EXPECT_EQ(totals().entries, 6);
  EXPECT_EQ(totals().bytes, 6 * each);
}

TEST_F(ArtifactStoreTest, AChangedValueIsAMissAndIsRemoved) {
  ASSERT_TRUE(put("k", "good"));
  ASSERT_TRUE(put("other", "good"));
  store_.reset();
  {
    auto db = Database::open(file(), Database::Access::kReadWrite).value();
    ASSERT_TRUE(
        db.run("UPDATE contents SET value = CAST('evil' AS BLOB) WHERE id ="
               " (SELECT id FROM artifacts WHERE key = 'k')"));
  }
  open(1 << 20);
  EXPECT_EQ(get("k").error().code, Code::kNotFound);
  EXPECT_EQ(totals().damaged, 1);
  EXPECT_EQ(totals().entries, 1);
  EXPECT_EQ(value_of("other"), "good");
}

TEST_F(ArtifactStoreTest, WhatAnotherKeySignedIsAMiss) {
  ASSERT_TRUE(put("k", "good"));
  store_.reset();
  auto other = ArtifactStore::open(file(), SigningKey::generate(), {1 << 20, {}});
  ASSERT_TRUE(other);
  store_ = *std::move(other);
  EXPECT_EQ(get("k").error().code, Code::kNotFound);
}

TEST_F(ArtifactStoreTest, AnArtifactIsOfItsAudience) {
  const Viewer ann{"ann", "vision"}, bob{"bob", "text"}, boss{"boss", "", true};
  ASSERT_TRUE(put("k", "ann's", Audience::of_user("ann")));
  EXPECT_EQ(value_of("k", ann), "ann's");
  EXPECT_EQ(value_of("k", bob), "");
  EXPECT_EQ(value_of("k", boss), "ann's");
  now_ms_ += 1;
  ASSERT_TRUE(put("k", "everybody's"));
  EXPECT_EQ(value_of("k", bob), "everybody's");
  EXPECT_EQ(totals().entries, 2);
}

TEST_F(ArtifactStoreTest, WhatAnOwnerPutIsTakenBack) {
  ASSERT_TRUE(put("a", "v", {}, "ann"));
  ASSERT_TRUE(put("b", "v", {}, "bob"));
  now_ms_ += 1000;
  ASSERT_TRUE(put("later", "v", {}, "ann"));
  std::promise<Result<int64_t>> removed;
  store_->take_back("ann", now_ms_, [&](Result<int64_t> n) { removed.set_value(std::move(n)); });
  EXPECT_EQ(removed.get_future().get().value(), 1);
  EXPECT_EQ(value_of("a"), "");
  EXPECT_EQ(value_of("b"), "v");
  EXPECT_EQ(value_of("later"), "v");
  EXPECT_EQ(totals().entries, 2);
}

TEST_F(ArtifactStoreTest, ADamagedFileIsSetAside) {
  ASSERT_TRUE(put("k", "good"));
  store_.reset();
  ASSERT_TRUE(write_file(file(), "no database " + std::string(4096, 'x')));
  open(1 << 20);
  EXPECT_NE(store_->warning().find("damaged"), std::string::npos);
  ASSERT_TRUE(put("k", "again"));
  EXPECT_EQ(value_of("k"), "again");
}

TEST_F(ArtifactStoreTest, AFileOfANewerKilnIsLeftAlone) {
  store_.reset();
  ASSERT_TRUE(
      Database::open(file(), Database::Access::kReadWrite).value().run("PRAGMA user_version = 2"));
  EXPECT_EQ(ArtifactStore::open(file(), key_, {}).error().code, Code::kUnsupported);
}

TEST_F(ArtifactStoreTest, IsListedByKindLatestUseFirst) {
  ASSERT_TRUE(put("old", "v"));
  now_ms_ += 1000;
  ASSERT_TRUE(put("new", "value", Audience::of_team("vision"), "bob", "inductor.fx_graph"));
  const auto all = ArtifactStore::list(file(), "inductor", 0).value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].id.key, "new");
  EXPECT_EQ(all[0].owner, "bob");
  EXPECT_FALSE(all[0].audience.is_all());
  EXPECT_EQ(all[1].used_ms, 1'000'000);
  EXPECT_EQ(ArtifactStore::list(file(), "inductor.gemm", 0)->size(), 1u);
  EXPECT_EQ(ArtifactStore::list(file(), "inductor", 1)->size(), 1u);
  EXPECT_EQ(ArtifactStore::list(dir_.path() / "none", "", 0).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
