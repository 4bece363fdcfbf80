// What a cache does by itself: sweeping what a crash left, and noticing a damaged large index.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <chrono>
#include <thread>

#include "cache/blob_store.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

void make_old(const Path& path) {
  const utimbuf long_ago{1'600'000'000, 1'600'000'000};
  ASSERT_EQ(::utime(path.c_str(), &long_ago), 0);
}

TEST(BackgroundMaintenance, OldOrphansAndLeftoversGoAndTheRestStays) {
  const TempDir dir = TempDir::create("kiln-sweep").value();
  ASSERT_TRUE(put_all(*KernelCache::open(dir.path()).value(), 1));
  {
    auto blobs = BlobStore::open(dir.path() / "blobs").value();
    ASSERT_TRUE(blobs->put(blob(2)));  // as a kill between the file and its row leaves it
    ASSERT_TRUE(blobs->put(blob(3)));
  }
  const Path leftover = Path(blob_path(dir.path(), 1)) += ".tmp.1.0";
  ASSERT_TRUE(write_file(leftover, "half"));
  for (int n : {1, 2}) make_old(blob_path(dir.path(), n));
  const auto cache = KernelCache::open(dir.path()).value();
  cache->wait_for_first_round();
  cache->flush();
  EXPECT_FALSE(std::filesystem::exists(leftover));
  EXPECT_FALSE(std::filesystem::exists(blob_path(dir.path(), 2)));
  EXPECT_TRUE(std::filesystem::exists(blob_path(dir.path(), 3))) << "young: its row may yet come";
  EXPECT_TRUE(cache->program(key("program", 1)));
}

// Grown past what is checked before it serves.
void fill_past_the_check(const Path& directory) {
  {
    auto cache = KernelCache::open(directory).value();
    ASSERT_TRUE(put_all(*cache, 1));
    for (int n = 0; n < 40; ++n) {
      TuningRecord large = record(n);
      large.log = std::string(1 << 20, 'x');
      cache->put_record(std::move(large), nullptr);
    }
    cache->flush();
  }
  ASSERT_GT(std::filesystem::file_size(directory / "index.sqlite"), 33u << 20);
}

// A stop waits for no reading of gigabytes, and what was broken off is no damage.
TEST(BackgroundMaintenance, StoppedWhileItReadsALargeIndexItSaysNothing) {
  const TempDir dir = TempDir::create("kiln-stopped").value();
  fill_past_the_check(dir.path());
  for (int pause_ms : {0, 5, 40, 520, 530, 540}) {  // the reading comes behind a sweep of 0.5 s
    CacheOptions options;
    options.log = [](const std::string& line) { ADD_FAILURE() << line; };
    const auto cache = KernelCache::open(dir.path(), options).value();
    EXPECT_EQ(cache->warning(), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
  EXPECT_EQ(KernelCache::open(dir.path()).value()->warning(), "");
}

// Damaged where no look-up goes.
TEST(BackgroundMaintenance, ALargeDamagedIndexServesWhatItCanAndIsSetAsideAtTheNextStart) {
  const TempDir dir = TempDir::create("kiln-large").value();
  const Path file = dir.path() / "index.sqlite";
  fill_past_the_check(dir.path());
  std::string bytes = read_file(file).value();
  // Log text on overflow pages is not looked at; what is around it is.
  for (size_t at = bytes.size() - (size_t{2} << 20); at < bytes.size(); ++at)
    bytes[at] = static_cast<char>(at * 37);
  ASSERT_TRUE(write_file(file, bytes));
  std::vector<std::string> said;
  {
    CacheOptions options;
    options.log = [&](std::string line) { said.push_back(std::move(line)); };
    options.touch_every_ms = 1;
    auto cache = KernelCache::open(dir.path(), options);
    ASSERT_TRUE(cache) << cache.error().message;
    EXPECT_EQ((*cache)->warning(), "");
    EXPECT_TRUE((*cache)->program(key("program", 1)));
    (*cache)->wait_for_first_round();
  }
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("state=damaged"), std::string::npos);
  const auto cache = KernelCache::open(dir.path()).value();
  EXPECT_NE(cache->warning().find("damaged"), std::string::npos);
  EXPECT_EQ(cache->program(key("program", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(KernelCache::open(dir.path()).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
