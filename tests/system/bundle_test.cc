// The bundle runs where nothing is installed: unpacked, with an empty environment, in a root that
// has glibc and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/support/process.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"kiln", "kiln-coordinator", "kiln-worker", "kiln-runner"};
// What a program may take from the machine it runs on.
constexpr const char* kGlibc[] = {"libc.so.6",  "libm.so.6",  "libpthread.so.0",
                                  "libdl.so.2", "librt.so.1", "libresolv.so.2"};
constexpr uintmax_t kMostBytes = 40 << 20;

class Bundle : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir(*TempDir::create());
    const fs::path out = dir_->path() / "out", root = dir_->path() / "root";
    made_ = run({std::string(KILN_SOURCE_DIR) + "/ops/bundle", "--build-dir", KILN_BINARY_DIR,
                 "--output", out.string()},
                {}, 280);
    if (made_.exit_code != 0) return;
    fs::create_directories(root);
    for (const auto& file : fs::directory_iterator(out)) bundle_ = file.path();
    run({"/usr/bin/tar", "-C", root.string(), "-xf", bundle_.string()});
    for (const auto& folder : fs::directory_iterator(root)) fs::rename(folder, root / "kiln");
  }
  static void TearDownTestSuite() { delete dir_; }
  void SetUp() override { ASSERT_EQ(made_.exit_code, 0) << made_.out << made_.err; }

  static fs::path root() { return dir_->path() / "root"; }

  inline static TempDir* dir_ = nullptr;
  inline static Finished made_;
  inline static fs::path bundle_;
};

TEST_F(Bundle, IsSmallAndHasWhatAGpuNodeNeeds) {
  EXPECT_LE(fs::file_size(bundle_), kMostBytes);
  for (const char* file : {"README", "LICENSE", "ops/gpu-check", "share/kiln/gpu/bench.py",
                           "share/kiln/gpu/graphs/colsum.pt2", "share/kiln/python/kiln/__init__.py",
                           "lib/libkiln.so.0"})
    EXPECT_TRUE(fs::exists(root() / "kiln" / file)) << file;
  for (const auto& library : fs::directory_iterator(root() / "kiln/lib")) {
    const std::string name = library.path().filename();
    EXPECT_FALSE(name.starts_with("libc.so") || name.starts_with("ld-linux") ||
                 name.starts_with("libcuda") || name.starts_with("libnvrtc"))
        << name << " belongs to the machine";
  }
}

// The benchmarks beside PyTorch run by the package inside, as ops/gpu-check sets it up. The script
// prints the libraries that the package adds to the interpreter's own and to those of ctypes.
TEST_F(Bundle, HasThePythonPackageWithItsLibraries) {
  if (!fs::exists("/usr/bin/python3")) GTEST_SKIP() << "this machine has no Python";
  const fs::path kiln = root() / "kiln";
  const Finished opened = run(
      {"/usr/bin/env", "-i", "KILN_LIBRARY=" + (kiln / "lib/libkiln.so.0").string(),
       "PYTHONPATH=" + (kiln / "share/kiln/python").string(), "/usr/bin/python3", "-B", "-c",
       "import ctypes, kiln\n"
       "mapped = lambda: {line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}\n"
       "before = mapped()\n"
       "try: kiln.Client().open_exported('/nowhere', signer='unsigned')\n"
       "except kiln.NotFound: print(*(mapped() - before), sep='\\n')"});
  ASSERT_EQ(opened.exit_code, 0) << opened.err;
  std::istringstream lines(opened.out);
  int own = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = fs::path(line).filename();
    if (std::find(std::begin(kGlibc), std::end(kGlibc), name) != std::end(kGlibc)) continue;
    EXPECT_TRUE(line.starts_with((kiln / "lib").string())) << line;
    ++own;
  }
  EXPECT_GT(own, 10);
}

// The loader's own account of where each library comes from.
TEST_F(Bundle, TakesEveryLibraryButGlibcFromItself) {
  for (const char* program : kPrograms) {
    const Finished traced =
        run({"/usr/bin/env", "-i", "LD_TRACE_LOADED_OBJECTS=1", root() / "kiln/bin" / program});
    ASSERT_EQ(traced.exit_code, 0) << program << traced.err;
    std::istringstream lines(traced.out);
    int own = 0;
    for (std::string line; std::getline(lines, line);) {
      const size_t arrow = line.find(" => ");
      if (arrow == std::string::npos) continue;  // the kernel's own, and the loader
      const std::string name = line.substr(1, arrow - 1);
      if (std::find(std::begin(kGlibc), std::end(kGlibc), name) != std::end(kGlibc)) continue;
      EXPECT_NE(line.find("/kiln/bin/../lib/" + name), std::string::npos) << program << line;
      ++own;
    }
    EXPECT_GT(own, 3) << program;
  }
}

TEST_F(Bundle, RunsInARootThatHasNothingButGlibc) {
  const fs::path system = "/lib/x86_64-linux-gnu";
  fs::create_directories(root() / "lib64");
  fs::create_directories(root() / "lib/x86_64-linux-gnu");
  fs::create_directories(root() / "tmp");
  fs::copy_file("/lib64/ld-linux-x86-64.so.2", root() / "lib64/ld-linux-x86-64.so.2");
  for (const char* name : kGlibc)
    fs::copy_file(system / name, root() / "lib/x86_64-linux-gnu" / name);
  fs::create_directories(root() / "proc");  // where the loader reads what $ORIGIN is
  const auto inside = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {
        "/usr/bin/env",
        "-i",
        "/usr/bin/unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "/bin/sh",
        "-c",
        R"(/bin/mount --rbind /proc "$0/proc" && exec /usr/sbin/chroot "$0" "$@")",
        root().string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all);
  };
  const Finished allowed = run({"/usr/bin/unshare", "--user", "--map-root-user", "--mount",
                                "/usr/sbin/chroot", "/", "/bin/true"});
  if (allowed.exit_code != 0) GTEST_SKIP() << "this machine lets nobody change its root";
  for (const char* program : kPrograms) {
    const Finished helped = inside({std::string("/kiln/bin/") + program, "--help"});
    EXPECT_EQ(helped.exit_code, 0) << program << ": " << helped.err;
    EXPECT_NE(helped.out.find("--"), std::string::npos) << program << ": " << helped.out;
  }
  // Reading an archive and naming its program takes simdjson, libzip and libsodium.
  const Finished digested =
      inside({"/kiln/bin/kiln", "digest", "/kiln/share/kiln/gpu/graphs/colsum.pt2"});
  EXPECT_EQ(digested.exit_code, 0) << digested.err;
}

}  // namespace
}  // namespace kiln::testing
