// What a damaged or foreign database does to a cache: it is never served and never fatal.
#include <gtest/gtest.h>

#include "cache/sqlite.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class IndexDamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cache = KernelCache::open(dir_.path()).value();
    ASSERT_TRUE(put_all(*cache, 1));
    ASSERT_TRUE(put_record(*cache, 1));
    ASSERT_TRUE(put_record(*cache, 2));
  }
  // As an administrator with the sqlite3 tool might, while nobody serves the directory.
  void edit(const char* sql) {
    auto db = Database::open(file(), Database::Access::kReadWrite).value();
    const Status edited = db.run(sql);
    ASSERT_TRUE(edited) << edited.error().message;
  }
  Path file() const { return dir_.path() / "index.sqlite"; }

  TempDir dir_ = TempDir::create("kiln-damage").value();
};

void expect_starts_empty_and_works(const Path& directory) {
  auto cache = KernelCache::open(directory);
  ASSERT_TRUE(cache) << cache.error().message;
  EXPECT_NE((*cache)->warning().find("index.sqlite.damaged."), std::string::npos);
  EXPECT_EQ((*cache)->program(key("program", 1)).error().code, Code::kNotFound);
  EXPECT_EQ((*cache)->totals().records, 0);
  ASSERT_TRUE(put_all(**cache, 1));
  EXPECT_TRUE((*cache)->program(key("program", 1)));
}

TEST_F(IndexDamageTest, ACleanCloseLeavesOneFile) {
  EXPECT_TRUE(std::filesystem::exists(file()));
  EXPECT_FALSE(std::filesystem::exists(Path(file()) += "-wal"));
}

TEST_F(IndexDamageTest, AFileThatIsNoDatabaseIsSetAside) {
  ASSERT_TRUE(write_file(file(), std::string(5000, 'x')));
  expect_starts_empty_and_works(dir_.path());
  EXPECT_EQ(read_file(Path(file()) += ".damaged.1").value(), std::string(5000, 'x'));
}

TEST_F(IndexDamageTest, GarbageInTheMiddleIsNoticedAtTheStart) {
  std::string bytes = read_file(file()).value();
  ASSERT_GT(bytes.size(), 3u * 4096);
  for (size_t i = 4096; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37);
  ASSERT_TRUE(write_file(file(), bytes));
  expect_starts_empty_and_works(dir_.path());
}

TEST_F(IndexDamageTest, ATruncatedFileIsNoticedAtTheStart) {
  const std::string bytes = read_file(file()).value();
  ASSERT_TRUE(write_file(file(), std::string_view(bytes).substr(0, 4096 + 100)));
  expect_starts_empty_and_works(dir_.path());
}

TEST_F(IndexDamageTest, WhoWantsNoDamagedIndexChangesNothing) {
  ASSERT_TRUE(write_file(file(), std::string(5000, 'x')));
  CacheOptions options;
  options.refuse_damaged = true;
  options.orphans_after_ms = 0;
  const auto refused = KernelCache::open(dir_.path(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorruption);
  EXPECT_EQ(read_file(file()).value(), std::string(5000, 'x'));
  EXPECT_TRUE(std::filesystem::exists(blob_path(dir_.path(), 1)));
}

TEST_F(IndexDamageTest, CollectingRemovesWhatWasSetAsideLongAgo) {
  ASSERT_TRUE(write_file(file(), std::string(5000, 'x')));
  CacheOptions options;
  for (const int64_t keep_ms : {int64_t{3'600'000}, int64_t{-1000}}) {
    options.keep_damaged_ms = keep_ms;
    auto cache = KernelCache::open(dir_.path(), options).value();
    if (keep_ms > 0) {
      ASSERT_TRUE(put_all(*cache, 1));
      flip_one_bit(blob_path(dir_.path(), 1));
      EXPECT_EQ(cache->blob(Digest::of(blob(1))).error().code, Code::kCorruption);
    }
    KernelCache::Collected collected;
    ASSERT_TRUE(wait([&](auto done) {
      cache->collect(INT64_MAX, [&collected, done](KernelCache::Collected got, Status status) {
        collected = got;
        done(std::move(status));
      });
    }));
    EXPECT_EQ(collected.damaged_files, keep_ms > 0 ? 0 : 2);
    EXPECT_EQ(collected.programs, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(Path(file()) += ".damaged.1"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path() / "blobs" / "quarantine"));
}

TEST_F(IndexDamageTest, EveryDamagedFileKeepsItsOwnName) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(write_file(file(), std::string(5000, 'x')));
    expect_starts_empty_and_works(dir_.path());
  }
  EXPECT_TRUE(std::filesystem::exists(Path(file()) += ".damaged.1"));
  EXPECT_TRUE(std::filesystem::exists(Path(file()) += ".damaged.2"));
}

// The maintenance's note that it is damaged, and a start that was killed while it set it aside.
TEST_F(IndexDamageTest, ASetAsideThatWasKilledIsFinishedByTheNextStart) {
  const Path note = Path(file()) += "-damaged";
  ASSERT_TRUE(write_file(note, "a page is damaged"));
  std::filesystem::rename(file(), Path(file()) += ".damaged.1");
  expect_starts_empty_and_works(dir_.path());
  EXPECT_FALSE(std::filesystem::exists(note));
  const auto cache = KernelCache::open(dir_.path()).value();
  EXPECT_EQ(cache->warning(), "");
  EXPECT_TRUE(cache->program(key("program", 1)));
}

TEST_F(IndexDamageTest, ANewerVersionIsRefusedAndLeftAlone) {
  edit("PRAGMA user_version = 10");
  const auto cache = KernelCache::open(dir_.path());
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, Code::kUnsupported);
  edit("PRAGMA user_version = 9");
  EXPECT_TRUE(KernelCache::open(dir_.path()).value()->program(key("program", 1)));
}

// SQLite has no checksums: only the seal notices a byte that changed inside a row.
TEST_F(IndexDamageTest, AChangedProgramRowIsCorruptThenAMissThenStoredAgain) {
  edit("UPDATE programs SET manifest = replace(manifest, '256', '257')");
  auto cache = KernelCache::open(dir_.path()).value();
  EXPECT_EQ(cache->program(key("program", 1)).error().code, Code::kCorruption);
  cache->flush();
  EXPECT_EQ(cache->program(key("program", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_program(*cache, 1));
  EXPECT_TRUE(cache->program(key("program", 1)));
}

TEST_F(IndexDamageTest, AChangedKernelRowIsCorruptThenAMissThenStoredAgain) {
  for (const char* damage :
       {"UPDATE kernels SET kernel = replace(kernel, '256', '257')",
        "UPDATE kernels SET target = replace(target, 'v3', 'v4')",
        "UPDATE kernels SET seal = x'00'", "UPDATE kernels SET key = seal, seal = key"}) {
    edit(damage);
    auto cache = KernelCache::open(dir_.path()).value();
    const Result<StoredKernel> read = cache->kernel(key("kernel", 1));
    EXPECT_FALSE(read) << damage;
    cache->flush();
    EXPECT_EQ(cache->kernel(key("kernel", 1)).error().code, Code::kNotFound);
    ASSERT_TRUE(put_kernel(*cache, 1));
    EXPECT_TRUE(cache->kernel(key("kernel", 1)));
  }
}

TEST_F(IndexDamageTest, ADamagedRowThatWasReplacedMeanwhileIsKept) {
  edit("UPDATE kernels SET target = 'x'");
  auto cache = KernelCache::open(dir_.path()).value();
  cache->put_kernel(kernel(1), nullptr);  // in the queue, or done, when the damage is noticed
  (void)cache->kernel(key("kernel", 1));
  cache->flush();
  EXPECT_TRUE(cache->kernel(key("kernel", 1)));
}

TEST_F(IndexDamageTest, ADamagedRecordIsLeftOut) {
  for (const char* damage :
       {"UPDATE records SET samples = zeroblob(24) WHERE id = 1",
        "UPDATE records SET verdict = 99 WHERE id = 1", "UPDATE records SET seed = 0 WHERE id = 1",
        "UPDATE records SET workload = x'0102' WHERE id = 1",
        "UPDATE records SET sentinel_us = 7 WHERE id = 1"}) {
    edit(damage);
    const auto records = KernelCache::open(dir_.path()).value()->records(key("kernel", 0)).value();
    ASSERT_EQ(records.size(), 1u) << damage;
    EXPECT_EQ(records[0].schedule, record(2).schedule);
  }
}

TEST_F(IndexDamageTest, AWinnerWhoseScheduleIsNoneIsLeftOut) {
  edit("UPDATE winners SET schedule = 'origami fold'");
  EXPECT_TRUE(
      KernelCache::open(dir_.path()).value()->earlier_winners(key("workload", 1)).value().empty());
}

}  // namespace
}  // namespace kiln
