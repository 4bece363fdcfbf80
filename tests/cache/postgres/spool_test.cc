#include "cache/postgres/spool.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

// What others could write there would be signed and served.
TEST(SpoolTest, AFolderThatOthersCanWriteIsRefused) {
  const TempDir dir = *TempDir::create("kiln-spool-test");
  const Path spool = dir.path() / "spool";
  const auto open = [&] { return Spool::open(spool, 1 << 20, [](const std::string&) {}); };
  ASSERT_TRUE(open());
  for (const Path& each : {spool, spool / "blobs", spool / "kernels", spool / "programs"}) {
    std::filesystem::permissions(each, std::filesystem::perms::others_write,
                                 std::filesystem::perm_options::add);
    const auto opened = open();
    ASSERT_FALSE(opened) << each;
    EXPECT_NE(opened.error().message.find(each.string()), std::string::npos)
        << opened.error().message;
    std::filesystem::permissions(each, std::filesystem::perms::others_write,
                                 std::filesystem::perm_options::remove);
  }
  EXPECT_TRUE(open());
}

}  // namespace
}  // namespace kiln
