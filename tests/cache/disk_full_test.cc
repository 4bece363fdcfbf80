// A disk that takes no more: puts say so, reads go on, and it all works again when there is room.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

// No file of this process may grow beyond `bytes` while the object lives: the kernel then refuses
// writes just as a full disk would, without any rights.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_ = {};
  void (*old_handler_)(int) = nullptr;
};

TuningRecord large_record(int n) {
  TuningRecord large = record(n);
  large.log = std::string(4096, 'x');
  return large;
}

// Puts records until one is refused; how many were stored. -1: none was refused.
int fill(KernelCache& cache, int limit) {
  for (int n = 0; n < limit; ++n) {
    const Status put = wait([&](auto done) { cache.put_record(large_record(n), done); });
    if (put) continue;
    EXPECT_EQ(put.error().code, Code::kUnavailable) << put.error().message;
    return n;
  }
  return -1;
}

TEST(DiskFull, ALargeBlobIsRefusedAndSmallOnesAndReadsGoOn) {
  const TempDir dir = TempDir::create("kiln-full").value();
  auto cache = KernelCache::open(dir.path()).value();
  ASSERT_TRUE(put_all(*cache, 1));
  {
    const FileSizeLimit limit(512 << 10);
    Status small, large, small_too;
    cache->put_blob(blob(2), [&](Status status) { small = std::move(status); });
    cache->put_blob(std::string(1 << 20, 'x'), [&](Status status) { large = std::move(status); });
    cache->put_blob(blob(3), [&](Status status) { small_too = std::move(status); });
    cache->flush();
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().code, Code::kUnavailable);
    EXPECT_TRUE(small);
    EXPECT_TRUE(small_too);
    EXPECT_TRUE(cache->program(key("program", 1)));
    EXPECT_EQ(cache->blob(Digest::of(std::string(1 << 20, 'x'))).error().code, Code::kNotFound);
  }
  EXPECT_TRUE(wait([&](auto done) { cache->put_blob(std::string(1 << 20, 'x'), done); }));
}

TEST(DiskFull, AnIndexThatCannotGrowRefusesRowsAndServesTheRest) {
  const TempDir dir = TempDir::create("kiln-full").value();
  auto cache = KernelCache::open(dir.path()).value();
  ASSERT_TRUE(put_all(*cache, 1));
  int stored = 0;
  {
    const FileSizeLimit limit(512 << 10);
    stored = fill(*cache, 1000);
    ASSERT_GE(stored, 0) << "the index grew beyond the limit";
    EXPECT_TRUE(cache->program(key("program", 1)));
    EXPECT_EQ(cache->records(key("kernel", 0)).value().size(), static_cast<size_t>(stored));
  }
  EXPECT_TRUE(wait([&](auto done) { cache->put_record(large_record(stored), done); }));
  cache.reset();
  cache = KernelCache::open(dir.path()).value();
  EXPECT_EQ(cache->warning(), "");
  EXPECT_EQ(cache->records(key("kernel", 0)).value().size(), static_cast<size_t>(stored) + 1);
  EXPECT_TRUE(cache->program(key("program", 1)));
}

// The real thing, where the rights to mount are there.
class TinyDisk {
 public:
  explicit TinyDisk(const Path& path) : path_(path) {
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~TinyDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  const Path path_;
  bool mounted_ = false;
};

TEST(DiskFull, ATinyFileSystemFillsUpAndStillServes) {
  const TempDir dir = TempDir::create("kiln-full").value();
  const TinyDisk disk(dir.path());
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount; the limits above cover the rest";
  auto cache = KernelCache::open(dir.path() / "data").value();
  ASSERT_TRUE(put_all(*cache, 1));
  const Status large = wait([&](auto done) { cache->put_blob(std::string(2 << 20, 'x'), done); });
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kUnavailable);
  EXPECT_NE(large.error().message.find("space"), std::string::npos) << large.error().message;
  const int stored = fill(*cache, 1000);
  ASSERT_GE(stored, 0);
  EXPECT_TRUE(cache->program(key("program", 1)));
  EXPECT_EQ(cache->blob(Digest::of(blob(1))).value_or(""), blob(1));
  EXPECT_EQ(cache->records(key("kernel", 0)).value().size(), static_cast<size_t>(stored));
}

}  // namespace
}  // namespace kiln
