#include "compiler_core/base/own_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {
namespace {

using std::filesystem::perms;

class OwnDirectory : public ::testing::Test {
 protected:
  std::string refusal(const Path& directory) const {
    const Status ours = check_ours(directory);
    if (ours) return "";
    EXPECT_EQ(ours.error().code, Code::kPermissionDenied);
    return ours.error().message;
  }
  TempDir dir_ = *TempDir::create();
};

TEST_F(OwnDirectory, OneThatOthersMayWriteInIsRefusedByName) {
  const Path inner = dir_.path() / "inner";
  ASSERT_TRUE(make_directories(inner));
  EXPECT_EQ(refusal(inner), "");
  for (const perms others : {perms::others_write, perms::group_write}) {
    std::filesystem::permissions(inner, perms::owner_all | others);
    EXPECT_NE(refusal(inner).find(inner.string()), std::string::npos);
  }
  std::filesystem::permissions(inner, perms::owner_all);
  std::filesystem::permissions(dir_.path(), perms::all);  // another `inner` can be put there
  EXPECT_NE(refusal(inner).find("chmod go-w"), std::string::npos);
  std::filesystem::permissions(dir_.path(), perms::all | perms::sticky_bit);
  EXPECT_EQ(refusal(inner), "");
}

TEST_F(OwnDirectory, AnotherUsersIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const Path inner = dir_.path() / "inner";
  ASSERT_TRUE(make_directories(inner));
  ASSERT_EQ(::chown(inner.c_str(), 65'534, 65'534), 0);
  EXPECT_NE(refusal(inner).find("another user's"), std::string::npos);
  EXPECT_FALSE(make_private_directory(inner));
}

TEST_F(OwnDirectory, ALinkThatAnotherCouldPointElsewhereIsRefused) {
  const Path ours = dir_.path() / "ours", shared = dir_.path() / "shared";
  ASSERT_TRUE(make_directories(ours / "cache"));
  ASSERT_TRUE(make_directories(shared));
  const Path link = shared / "link";
  std::filesystem::create_directory_symlink(ours, link);
  std::filesystem::create_directory_symlink("link/cache", shared / "chain");
  EXPECT_EQ(refusal(link), "");
  std::filesystem::permissions(shared, perms::all);  // whoever may write here can put another link
  for (const char* name : {"link", "link/cache", "chain", "link/../ours"})
    EXPECT_NE(refusal(shared / name).find(shared.string()), std::string::npos) << name;
  std::filesystem::permissions(shared, perms::all | perms::sticky_bit);
  EXPECT_EQ(refusal(shared / "chain"), "") << "the links are ours";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link away";
  ASSERT_EQ(::lchown(link.c_str(), 65'534, 65'534), 0);
  for (const char* name : {"link", "link/cache", "chain"})
    EXPECT_NE(refusal(shared / name).find("another user's link"), std::string::npos) << name;
}

TEST_F(OwnDirectory, APrivateOneIsMadeForOneUserAloneAndNoLinkIsFollowed) {
  const mode_t before = ::umask(0);
  const Path made = dir_.path() / "made";
  EXPECT_TRUE(make_private_directory(made));
  EXPECT_TRUE(make_private_directory(made)) << "it is there";
  EXPECT_TRUE(make_directories(dir_.path() / "two" / "levels"));
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(made).permissions(), perms::owner_all);
  for (const char* name : {"two", "two/levels"})
    EXPECT_EQ(refusal(dir_.path() / name), "") << "at any umask";
  std::filesystem::create_directory_symlink(made, dir_.path() / "link");
  const Status linked = make_private_directory(dir_.path() / "link");
  ASSERT_FALSE(linked);
  EXPECT_NE(linked.error().message.find("link"), std::string::npos);
}

TEST_F(OwnDirectory, ALockNamesItsHolderAndFollowsNoLink) {
  const Path path = dir_.path() / "lock";
  EXPECT_EQ(lock_holders(path), "");
  auto held = FileLock::try_acquire(path, FileLock::Mode::kExclusive);
  ASSERT_TRUE(held.has_value());
  const std::string holders = lock_holders(path);
  EXPECT_NE(holders.find("pid " + std::to_string(::getpid()) + " ("), std::string::npos) << holders;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
  ASSERT_TRUE(write_file(dir_.path() / "target", ""));
  std::filesystem::create_symlink(dir_.path() / "target", dir_.path() / "link");
  EXPECT_FALSE(FileLock::try_acquire(dir_.path() / "link", FileLock::Mode::kExclusive));
}

}  // namespace
}  // namespace kiln
