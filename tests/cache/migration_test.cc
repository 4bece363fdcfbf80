// An index that an older Kiln wrote is brought up to date with what it holds. The files are dumps
// of real ones, written by the version that they name.
#include <gtest/gtest.h>

#include "cache/index.h"
#include "cache/sqlite.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class MigrationTest : public ::testing::Test {
 protected:
  void SetUp() override { load(2); }
  void load(int version) {
    const std::string file =
        fmt::format("{}/../cache/index_version_{}.sql", KILN_GRAPHS_DIR, version);
    const std::string dump = read_file(file).value();
    (void)std::filesystem::remove(dir_.path() / "index.sqlite");
    auto db = Database::open(dir_.path() / "index.sqlite", Database::Access::kReadWrite).value();
    const Status loaded = db.run(dump.c_str());
    ASSERT_TRUE(loaded) << loaded.error().message;
    auto blobs = BlobStore::open(dir_.path() / "blobs").value();
    for (int n = 1; n <= 5; ++n) ASSERT_TRUE(blobs->put(blob(n)));
  }
  std::unique_ptr<KernelCache> open(CacheOptions options = {}) {
    auto cache = KernelCache::open(dir_.path(), std::move(options));
    EXPECT_TRUE(cache) << cache.error().message;
    EXPECT_EQ((*cache)->warning(), "");
    return *std::move(cache);
  }

  TempDir dir_ = TempDir::create("kiln-migration").value();
};

TEST_F(MigrationTest, Version2KeepsEverythingAndIsCounted) {
  const auto cache = open();
  for (int n : {1, 2, 3}) EXPECT_TRUE(cache->program(key("program", n))) << n;
  for (int n : {1, 2, 3, 4}) EXPECT_TRUE(cache->kernel(key("kernel", n))) << n;
  for (int n : {1, 2, 3, 4, 5})
    EXPECT_EQ(cache->blob(Digest::of(blob(n))).value_or("lost"), blob(n));
  EXPECT_EQ(cache->records(record(0).kernel_key).value().size(), 3u);
  EXPECT_EQ(cache->nearest_winners({Digest::of("kin"), {8, 9}}).value().size(), 1u);
  const KernelCache::Totals totals = cache->totals();
  EXPECT_EQ(totals.programs, 3);
  EXPECT_EQ(totals.kernels, 4);
  EXPECT_EQ(totals.records, 3);
  EXPECT_EQ(totals.bytes, 31740 + 7983 + 15902 + 39659 + 23821);
  EXPECT_GT(totals.stored_bytes, totals.bytes);
}

// Program 3 names kernels 1 and 3: giving up program 1 leaves kernel 1, for 3 needs it.
TEST_F(MigrationTest, Version2IsGivenUpInTheRightOrder) {
  CacheOptions options;
  options.keep_used_ms = -1'000'000;  // everything may go
  const auto cache = open(options);
  ASSERT_TRUE(wait([&](auto done) { cache->pin(key("program", 3), done); }));
  const Status collected = wait([&](auto done) {
    cache->collect(0, [done](KernelCache::Collected, Status status) { done(status); });
  });
  ASSERT_FALSE(collected) << "program 3 is pinned, so that not all can go";
  EXPECT_EQ(collected.error().code, Code::kUnavailable);
  EXPECT_TRUE(cache->program(key("program", 3)));
  for (int n : {1, 3}) EXPECT_TRUE(cache->kernel(key("kernel", n))) << n;
  for (int n : {1, 2}) EXPECT_FALSE(cache->program(key("program", n))) << n;
  for (int n : {2, 4}) EXPECT_FALSE(cache->kernel(key("kernel", n))) << n;
  for (int n : {2, 4, 5}) EXPECT_FALSE(cache->blob(Digest::of(blob(n)))) << n;
  EXPECT_EQ(cache->records(record(0).kernel_key).value().size(), 3u) << "records outlive binaries";
}

TEST_F(MigrationTest, Version1Too) {
  {
    auto db = Database::open(dir_.path() / "index.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("DROP TABLE kin; PRAGMA user_version = 1"));
  }
  const auto cache = open();
  EXPECT_TRUE(cache->program(key("program", 1)));
  ASSERT_TRUE(wait([&](auto done) {
    cache->put_shape_generic_key(key("workload", 1), {Digest::of("kin"), {8, 8}}, done);
  }));
  EXPECT_EQ(cache->nearest_winners({Digest::of("kin"), {8, 9}}).value().size(), 1u);
}

// Records of before there were sentinels have none, and their seals are as they were.
TEST_F(MigrationTest, Version3KeepsItsRecordsAndTakesSentinels) {
  load(3);
  const auto cache = open();
  EXPECT_TRUE(cache->program(key("program", 1)));
  EXPECT_EQ(cache->totals().bytes, 31740 + 7983 + 15902 + 39659 + 23821);
  TuningRecord fresh = record(8);
  ASSERT_GT(fresh.sentinel_us, 0);
  ASSERT_TRUE(wait([&](auto done) { cache->put_record(fresh, done); }));
  const auto records = cache->records(fresh.kernel_key).value();
  ASSERT_EQ(records.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].sentinel_us, 0) << i;
    EXPECT_EQ(records[i].worker, record(0).worker) << i;
  }
  EXPECT_EQ(records[3].sentinel_us, fresh.sentinel_us);
}

TEST_F(MigrationTest, ARecordOfVersion2KeepsItsSealToo) {
  const auto cache = open();
  const auto before = cache->records(record(0).kernel_key).value();
  for (const TuningRecord& old : before) EXPECT_EQ(old.sentinel_us, 0);
  ASSERT_TRUE(put_record(*cache, 8));
  EXPECT_EQ(cache->records(record(0).kernel_key).value().size(), 4u);
}

// Records of before templates had versions have none, and their seals are as they were; a kernel
// names no templates, and what won is still known.
TEST_F(MigrationTest, Version4KeepsItsRecordsAndTakesTemplateVersions) {
  load(4);
  const auto cache = open();
  EXPECT_TRUE(cache->program(key("program", 1)));
  EXPECT_TRUE(cache->kernel(key("kernel", 1)).value().kernel.templates.empty());
  EXPECT_EQ(cache->earlier_winners(key("workload", 1)).value().at(0).to_string(),
            "pointwise vector=2");
  TuningRecord fresh = record(10);
  ASSERT_GT(fresh.template_version, 0);
  ASSERT_TRUE(wait([&](auto done) { cache->put_record(fresh, done); }));
  const auto records = cache->records(fresh.kernel_key).value();
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(records[i].template_version, 0) << i;
  EXPECT_GT(records[3].sentinel_us, 0) << "a seal of version 4";
  EXPECT_EQ(records[4].template_version, fresh.template_version);
}

// Records of before there were owners have none, and their seals are as they were.
TEST_F(MigrationTest, ARecordOfBeforeOwnersKeepsItsSealAndOwnersAreTaken) {
  load(4);
  const auto cache = open();
  TuningRecord fresh = record(10);
  fresh.owner = "gpu1";
  ASSERT_TRUE(wait([&](auto done) { cache->put_record(fresh, done); }));
  const auto records = cache->records(fresh.kernel_key).value();
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(records[i].owner, "") << i;
  EXPECT_EQ(records[4].owner, "gpu1");
  EXPECT_TRUE(cache->revocations().value().empty());
}

// Programs of before there were audiences are everybody's, and their seals are as they were.
TEST_F(MigrationTest, AProgramOfBeforeAudiencesIsEverybodys) {
  load(4);
  const auto cache = open();
  EXPECT_TRUE(cache->program_and_audience(key("program", 1)).value().audience.is_all());
  ASSERT_TRUE(
      wait([&](auto done) { cache->put_program(program(1), done, Audience::of_user("ann")); }));
  EXPECT_TRUE(cache->program_and_audience(key("program", 1)).value().audience.is_all());
}

// A version 8 is one of today without the table of acts.
TEST_F(MigrationTest, Version8KeepsEverythingAndTakesActs) {
  (void)open();
  {
    auto db = Database::open(dir_.path() / "index.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("DROP TABLE acts; PRAGMA user_version = 8"));
  }
  const auto cache = open();
  for (int n : {1, 2, 3}) EXPECT_TRUE(cache->program(key("program", n))) << n;
  EXPECT_EQ(cache->totals().records, 3);
  const AdminAct drain{0, 5, "tcp://a:7557", "ops", "drain gpu7", true, "{}"};
  ASSERT_TRUE(wait([&](auto done) { cache->note(drain, done); }));
  const auto acts =
      answer_of<std::vector<AdminAct>>([&](auto then) { cache->list_acts(INT64_MAX, 10, then); });
  ASSERT_EQ(acts.value().size(), 1U);
  EXPECT_EQ(acts->at(0).request, "drain gpu7");
}

TEST_F(MigrationTest, AReaderOfAnOldFileSaysWhatToDo) {
  const auto index = CacheIndex::open_for_reading(dir_.path() / "index.sqlite");
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::kUnsupported);
  EXPECT_NE(index.error().message.find("start a coordinator"), std::string::npos);
}

}  // namespace
}  // namespace kiln
