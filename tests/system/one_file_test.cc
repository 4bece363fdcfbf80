// `kiln bundle`, `kiln load`, `kiln lock` and `kiln compile --locked`: what a service tuned, used
// where there is no service, and held to next month.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler_core/base/signature.h"
#include "tests/cache/samples.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

class OneFile : public ::testing::Test {
 protected:
  // Made with a service that is gone when the tests begin.
  static void SetUpTestSuite() {
    dir_ = new TempDir(*TempDir::create());
    for (const char* name : {"softmax.pt2", "layernorm.pt2"})
      fs::copy(small_graph(name), dir_->path() / name);
    ASSERT_TRUE(
        write_file(list(), "softmax.pt2   # comments are none\n\nlayernorm.pt2 cpu default\n"));
    ASSERT_TRUE(write_file(dir_->path() / "missing.txt", "softmax.pt2 cpu max-autotune\n"));
    Service service(data());
    endpoint_ = service.endpoint();
    locked_ =
        kiln({"lock", model("softmax.pt2"), model("layernorm.pt2"), "--coordinator", endpoint_});
    ASSERT_TRUE(write_file(lock(), locked_.out));
    half_locked_ =
        kiln({"lock", model("softmax.pt2"), "/nonexistent.pt2", "--coordinator", endpoint_});
    bundled_ = kiln({"bundle", list(), "-o", bundle(), "--coordinator", endpoint_, "--json"});
    from_lock_ =
        kiln({"bundle", lock(), "-o", dir_->path() / "lock.kiln", "--coordinator", endpoint_});
    missing_ = kiln({"bundle", dir_->path() / "missing.txt", "-o", dir_->path() / "missing.kiln",
                     "--coordinator", endpoint_});
    same_ = kiln({"compile", "--locked", "--lock", lock(), model("softmax.pt2"),
                  model("layernorm.pt2"), "--coordinator", endpoint_, "--json"});
    std::string changed = locked_.out;
    const size_t schedule = changed.find("rows=");
    changed.replace(schedule, 5, "rows=9");
    const size_t digest = changed.find("digest ") + 7;
    changed[digest] = changed[digest] == '0' ? '1' : '0';
    ASSERT_TRUE(write_file(dir_->path() / "changed.lock", changed));
    changed_ = kiln({"compile", "--locked", "--lock", dir_->path() / "changed.lock",
                     model("softmax.pt2"), "--coordinator", endpoint_, "--json"});
    unnamed_ = kiln({"compile", "--locked", "--lock", lock(), small_graph("matmul.pt2"),
                     "--coordinator", endpoint_});
    stopped_ = service.stop();
  }
  static void TearDownTestSuite() { delete dir_; }

  // No compiler: what is run was not made here.
  static Finished kiln(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), binary("kiln"));
    return run(arguments, {"KILN_CXX=/nonexistent/g++"});
  }
  static std::string model(const std::string& name) { return dir_->path() / name; }
  static std::string list() { return dir_->path() / "programs.txt"; }
  static std::string lock() { return dir_->path() / "kiln.lock"; }
  static std::string bundle() { return dir_->path() / "model.kiln"; }
  static Path data() { return dir_->path() / "data"; }
  static std::string signer() { return data() / "signing/ed25519.pub"; }
  // With one bit of the copy flipped, or only its first bytes.
  std::string copy(bool flipped, size_t bytes = SIZE_MAX) const {
    const std::string to = own_.path() / "copy.kiln";
    EXPECT_TRUE(write_file(to, read_file(bundle()).value().substr(0, bytes)));
    if (flipped) samples::flip_one_bit(to);
    return to;
  }
  static void expect(const Finished& finished, int exit_code, const std::string& words) {
    EXPECT_EQ(finished.exit_code, exit_code) << finished.out << finished.err;
    EXPECT_NE(finished.err.find(words), std::string::npos) << finished.err;
  }

  inline static TempDir* dir_ = nullptr;
  inline static std::string endpoint_;
  inline static Finished locked_, half_locked_, bundled_, from_lock_, missing_, same_, changed_,
      unnamed_;
  inline static int stopped_ = -1;
  const TempDir own_ = *TempDir::create();
};

TEST_F(OneFile, ABundleSaysWhatIsInIt) {
  ASSERT_EQ(bundled_.exit_code, 0) << bundled_.err;
  ASSERT_EQ(stopped_, 0);
  const auto made = bundled_.json();
  EXPECT_EQ(made["programs"].size(), 2u);
  EXPECT_EQ(made["signer"], read_file(signer()).value().substr(0, 64));
  EXPECT_EQ(made["bytes"], fs::file_size(bundle()));
  const Finished loaded = kiln({"load", bundle(), "--signer", signer(), "--json"});
  ASSERT_EQ(loaded.exit_code, 0) << loaded.err;
  EXPECT_EQ(loaded.json()["programs"], made["programs"]);
  ASSERT_EQ(from_lock_.exit_code, 0) << from_lock_.err;
  EXPECT_EQ(read_file(dir_->path() / "lock.kiln").value(), read_file(bundle()).value());
}

TEST_F(OneFile, WhatIsNotInTheCacheIsAMissAndNoBundleIsWritten) {
  expect(missing_, 4, "not in the cache for cpu:");
  EXPECT_FALSE(fs::exists(dir_->path() / "missing.kiln"));
}

TEST_F(OneFile, ItsProgramsRunStraightFromIt) {
  for (const char* name : {"softmax", "layernorm"}) {
    const Finished ran = kiln({"run", model(std::string(name) + ".pt2"), "--program", bundle(),
                               "--signer", signer(), "--runs", "3", "--json", "--expect",
                               small_graph(std::string(name) + ".safetensors")});
    ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.json()["ok"], true);
  }
  expect(kiln({"run", small_graph("matmul.pt2"), "--program", bundle(), "--signer", signer()}), 2,
         "has no program of graph");
}

// As a replica does that has the directory and no network.
TEST_F(OneFile, LoadedIntoACacheDirectoryEveryClientFindsIt) {
  const std::string tier = own_.path() / "tier";
  const Finished loaded = kiln({"load", bundle(), "--signer", signer(), "--cache-dir", tier});
  ASSERT_EQ(loaded.exit_code, 0) << loaded.err;
  for (int times = 0; times < 2; ++times) {
    const Finished ran =
        kiln({"run", model("softmax.pt2"), "--cache-dir", tier, "--no-fallback", "--runs", "3",
              "--json", "--expect", small_graph("softmax.safetensors")});
    ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.json()["cache"], "hit");
  }
  EXPECT_EQ(kiln({"cache", "verify", "--data-dir", tier, "--signer", signer()}).exit_code, 0);
  expect(kiln({"run", small_graph("matmul.pt2"), "--cache-dir", tier, "--no-fallback"}), 3, "");
}

TEST_F(OneFile, WhatIsWrongWithABundleIsSaid) {
  expect(kiln({"load", bundle()}), 2, "--signer");
  const std::string another = to_hex(SigningKey::generate().public_key());
  expect(kiln({"load", bundle(), "--signer", another}), 2, "is signed by");
  expect(kiln({"load", copy(true), "--signer", signer()}), 1, "is damaged");
  expect(kiln({"load", copy(false, 3000), "--signer", signer()}), 1, "cut short");
  expect(kiln({"load", model("softmax.pt2"), "--signer", signer()}), 2, "`kiln bundle");
  const std::string newer = own_.path() / "newer.kiln";
  ASSERT_TRUE(write_file(newer, "kiln-bundle 2\nend\n"));
  expect(kiln({"load", newer, "--signer", signer()}), 2, "newer Kiln");
  expect(kiln({"load", "/nonexistent", "--signer", signer()}), 2, "/nonexistent");
  const std::string tier = own_.path() / "tier";
  expect(kiln({"load", copy(true), "--signer", signer(), "--cache-dir", tier}), 1, "is damaged");
  EXPECT_FALSE(fs::exists(tier)) << "nothing is kept of a bad one";
}

TEST_F(OneFile, ALockedBuildGetsTheSameOrSaysWhatChanged) {
  ASSERT_EQ(locked_.exit_code, 0) << locked_.err;
  EXPECT_EQ(same_.exit_code, 0) << same_.err;
  EXPECT_NE(same_.out.find("\"locked\":true"), std::string::npos) << same_.out;
  expect(changed_, 1, "not as locked: kernel 0");
  EXPECT_EQ(changed_.json()["locked"], false);
  EXPECT_EQ(changed_.json()["changes"].size(), 1u) << changed_.out;
  expect(unnamed_, 2, "does not name it");
  EXPECT_NE(half_locked_.exit_code, 0);
  EXPECT_EQ(half_locked_.out, "") << "half a lock file would pass for a whole one";
}

// Where the service is away, or has the program no more, nothing else is taken.
TEST_F(OneFile, ALockedBuildCompilesNothingHere) {
  expect(kiln({"compile", "--locked", "--lock", lock(), model("softmax.pt2"), "--coordinator",
               endpoint_}),
         3, "");
  expect(kiln({"compile", "--locked", "--lock", lock(), model("softmax.pt2"), "--cache-dir",
               own_.path() / "empty"}),
         4, "not in the cache any more");
  EXPECT_EQ(kiln({"compile", "--locked", "--mode", "default", model("softmax.pt2")}).exit_code, 2);
}

}  // namespace
}  // namespace kiln::testing
