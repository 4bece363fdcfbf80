// What another user of this machine can do to a client through its cache directory.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client.h"
#include "client/local_tier.h"
#include "compiler_core/base/signature.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using std::filesystem::perms;

class LocalNeighbours : public ::testing::Test {
 protected:
  Path tier() const { return dir_.path() / "tier"; }
  static ProgramFiles compiled_here() {
    ProgramFiles files{samples::program(1), {}, {}, {}};
    files.artifacts.push_back(
        {files.program.kernels[0].recipe, samples::blob(1), Digest::of(samples::blob(1))});
    return files;
  }
  TempDir dir_ = *TempDir::create();
  const SigningKey coordinator_ = SigningKey::generate();
};

TEST_F(LocalNeighbours, ACacheDirectoryThatOthersMayWriteInIsRefusedByName) {
  for (const char* part : {"", "programs", "blobs"}) {
    ASSERT_TRUE(LocalTier::open(tier()));
    const Path folder = part == std::string_view() ? tier() : tier() / part;
    std::filesystem::permissions(folder, perms::all);
    ClientOptions options;
    options.cache_dir = tier();
    const auto client = Client::create(std::move(options));
    ASSERT_FALSE(client.has_value()) << part;
    EXPECT_EQ(client.error().code, Code::kPermissionDenied);
    EXPECT_NE(client.error().message.find(folder.string()), std::string::npos)
        << client.error().message;
    std::filesystem::permissions(folder, perms::owner_all);
  }
}

TEST_F(LocalNeighbours, ACacheDirectoryOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_TRUE(LocalTier::open(tier()));
  ASSERT_EQ(::chown(tier().c_str(), 65'534, 65'534), 0);
  const auto opened = LocalTier::open(tier());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kPermissionDenied);
}

TEST_F(LocalNeighbours, ItsFilesAreNobodyElsesToWriteAtAnyUmask) {
  const mode_t before = ::umask(0);
  {
    const auto opened = LocalTier::open(tier());
    ASSERT_TRUE(opened.has_value());
    EXPECT_TRUE((*opened)->put(samples::key("program", 1), compiled_here()));
  }
  ::umask(before);
  int seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
    const perms writable = perms::group_write | perms::others_write;
    EXPECT_EQ(entry.status().permissions() & writable, perms::none) << entry.path();
    ++seen;
  }
  EXPECT_GT(seen, 6);
}

// The tier's own key proves only that somebody on this machine put the program there.
TEST_F(LocalNeighbours, APinnedSignerTakesNothingThatCarriesNoSignatureOfIts) {
  const auto opened = LocalTier::open(tier());
  ASSERT_TRUE(opened.has_value());
  const Digest key = samples::key("program", 1);
  ASSERT_TRUE((*opened)->put(key, compiled_here()));
  EXPECT_TRUE((*opened)->get(key, ""));
  const auto pinned = (*opened)->get(key, coordinator_.public_key());
  ASSERT_FALSE(pinned.has_value());
  EXPECT_EQ(pinned.error().code, Code::kPermissionDenied);
  EXPECT_NE(pinned.error().message.find("compiled on this machine"), std::string::npos)
      << pinned.error().message;
}

}  // namespace
}  // namespace kiln
