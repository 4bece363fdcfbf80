#include "worker/build/object_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace kiln {
namespace {

class ObjectCacheTest : public ::testing::Test {
 protected:
  ObjectCache open(int64_t max_bytes = 1 << 20) {
    return ObjectCache::open(dir_.path() / "objects", max_bytes).value();
  }
  Path file_of(const Digest& key) { return dir_.path() / "objects" / (key.hex() + ".object"); }
  TempDir dir_ = TempDir::create().value();
  const Digest key_ = Digest::of("key");
};

TEST_F(ObjectCacheTest, KeepsObjectsAcrossRestarts) {
  const std::string object("\0binary\n", 8);
  EXPECT_EQ(open().find(key_), std::nullopt);
  open().insert(key_, object);
  EXPECT_EQ(open().find(key_), object);
}

TEST_F(ObjectCacheTest, ADamagedEntryIsAMissAndGoes) {
  auto cache = open();
  cache.insert(key_, "object");
  std::string bytes = read_file(file_of(key_)).value();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 4;
    ASSERT_TRUE(write_file(file_of(key_), damaged));
    EXPECT_EQ(cache.find(key_), std::nullopt) << i;
    EXPECT_FALSE(std::filesystem::exists(file_of(key_)));
  }
  ASSERT_TRUE(write_file(file_of(key_), bytes.substr(0, bytes.size() - 1)));
  EXPECT_EQ(cache.find(key_), std::nullopt);
}

TEST_F(ObjectCacheTest, StaysBelowItsBoundAndForgetsTheLeastRecentlyUsed) {
  auto cache = open(10'000);
  std::vector<Digest> keys;
  for (int i = 0; i < 30; ++i) {
    keys.push_back(Digest::of("key " + std::to_string(i)));
    cache.insert(keys.back(), std::string(900, 'x'));
    EXPECT_TRUE(cache.find(keys[0]).has_value()) << i;          // used all the time
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // file times have a grain
  }
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path() / "objects"))
    bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_LE(bytes, 10'000);
  EXPECT_FALSE(cache.find(keys[1]).has_value());
  EXPECT_TRUE(cache.find(keys[29]).has_value());
}

TEST_F(ObjectCacheTest, WhatAKilledWorkerLeftHalfWrittenGoes) {
  (void)open(10'000);
  const pid_t killed = ::fork();
  if (killed == 0) ::_exit(0);
  ::waitpid(killed, nullptr, 0);
  const Path half = file_of(key_).string() + ".tmp." + std::to_string(killed) + ".0";
  ASSERT_TRUE(write_file(half, "half"));
  (void)open(10'000);
  EXPECT_FALSE(std::filesystem::exists(half));
}

// What lies there is loaded, and a winner is signed for everybody.
TEST_F(ObjectCacheTest, ADirectoryThatOthersMayWriteInIsRefused) {
  using std::filesystem::perms;
  const Path above = dir_.path() / "above", objects = above / "objects";
  const auto refusal = [&] {
    const auto cache = ObjectCache::open(objects, 1000);
    return cache ? std::string() : cache.error().message;
  };
  EXPECT_EQ(refusal(), "");
  for (const perms others : {perms::others_write, perms::group_write}) {
    std::filesystem::permissions(objects, perms::owner_all | others);
    EXPECT_NE(refusal().find("chmod go-w"), std::string::npos);
  }
  std::filesystem::permissions(objects, perms::owner_all);
  std::filesystem::permissions(above, perms::all);  // somebody puts another `objects` there
  EXPECT_NE(refusal().find("chmod go-w"), std::string::npos);
  std::filesystem::permissions(above, perms::all | perms::sticky_bit);
  EXPECT_EQ(refusal(), "");
  if (::geteuid() != 0) return;  // only root can give a folder away
  ASSERT_EQ(::chown(objects.c_str(), 65'534, 65'534), 0);
  EXPECT_NE(refusal().find("another user's"), std::string::npos);
}

TEST_F(ObjectCacheTest, ANewDirectoryIsOursAlone) {
  const mode_t before = ::umask(0);
  EXPECT_TRUE(ObjectCache::open(dir_.path() / "open", 1000).has_value());
  ::umask(before);
}

TEST_F(ObjectCacheTest, ADirectoryThatCannotBeMadeIsAnError) {
  ASSERT_TRUE(write_file(dir_.path() / "file", ""));
  EXPECT_FALSE(ObjectCache::open(dir_.path() / "file" / "objects", 1000).has_value());
}

}  // namespace
}  // namespace kiln
