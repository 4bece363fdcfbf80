#include "compiler_core/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <iterator>

namespace kiln {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() : old_mask_(::umask(0)) {}  // whoever's: it opens nothing
  ~SecretFile() override { ::umask(old_mask_); }
  const TempDir dir_ = *TempDir::create();
  const Path file_ = dir_.path() / "key";

 private:
  const mode_t old_mask_;
};

TEST_F(SecretFile, IsItsOwnersAlone) {
  ASSERT_TRUE(publish_secret(file_, "sesame"));
  struct stat facts {};
  ASSERT_EQ(::stat(file_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(facts.st_nlink, 1u) << "under one name";
  EXPECT_EQ(read_file(file_).value(), "sesame");
}

TEST_F(SecretFile, ThatIsThereStays) {
  ASSERT_TRUE(publish_secret(file_, "first"));
  ASSERT_TRUE(publish_secret(file_, "second"));
  EXPECT_EQ(read_file(file_).value(), "first");
  const std::filesystem::directory_iterator all(dir_.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 1) << "nothing else is left";
}

TEST_F(SecretFile, WithoutItsFolderIsAnError) {
  EXPECT_FALSE(publish_secret(dir_.path() / "no" / "key", "sesame"));
}

}  // namespace
}  // namespace kiln
