// Another project can link Kiln: install, find_package, compile every installed header alone, build
// and run a program that uses each public type.
#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace kiln::testing {
namespace {

TEST(Package, AnotherProjectLinksTheInstalledClient) {
  const TempDir dir = *TempDir::create();
  const std::string prefix = (dir.path() / "prefix").string();
  const std::string build = (dir.path() / "build").string();
  const auto must = [](const std::vector<std::string>& arguments) {
    const Finished done = run(arguments, {}, 280);
    EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
    return done.exit_code == 0;
  };
  ASSERT_TRUE(must({"/usr/bin/cmake", "--install", KILN_BINARY_DIR, "--prefix", prefix}));
  ASSERT_TRUE(must({"/usr/bin/cmake", "-S", std::string(KILN_SOURCE_DIR) + "/tests/system/consumer",
                    "-B", build, "-DCMAKE_PREFIX_PATH=" + prefix}));
  ASSERT_TRUE(must({"/usr/bin/cmake", "--build", build, "--parallel", "2"}));
  EXPECT_TRUE(must({build + "/consumer", dir.path().string()}));
  EXPECT_TRUE(std::filesystem::exists(prefix + "/bin/kiln"));
}

}  // namespace
}  // namespace kiln::testing
