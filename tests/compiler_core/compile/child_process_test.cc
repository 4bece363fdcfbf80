#include "compiler_core/compile/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

namespace kiln {
namespace {

class ChildProcess : public ::testing::Test {
 protected:
  Result<ChildOutcome> sh(const std::string& script, int64_t timeout_ms = 60'000) {
    return run_child({"sh", "-c", script}, dir_.path(), timeout_ms);
  }
  TempDir dir_ = *TempDir::create();
};

TEST_F(ChildProcess, ReportsStatusAndBothStreams) {
  const auto outcome = sh("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->exit_status, 3);
  EXPECT_EQ(outcome->output, "out\nerr\n");
}

TEST_F(ChildProcess, RunsInItsDirectoryWithACleanEnvironment) {
  ::setenv("CPATH", "elsewhere", 1);
  const auto outcome = sh("pwd; echo \"$CPATH|$LC_ALL|$TMPDIR\"; cat");
  ::unsetenv("CPATH");
  ASSERT_TRUE(outcome);
  const std::string here = std::filesystem::canonical(dir_.path()).string();
  EXPECT_EQ(outcome->output, here + "\n|C|" + dir_.path().string() + "\n");
}

TEST_F(ChildProcess, BoundsTheOutput) {
  const auto outcome = sh("head -c 1000000 /dev/zero");
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_status, 0);
  EXPECT_EQ(outcome->output.size(), kMaxChildOutput);
}

TEST_F(ChildProcess, ADeadlineKillsTheWholeGroup) {
  // The grandchild holds the pipe and would live long after its parent.
  int grandchild = 0;
  for (int64_t timeout_ms = 1000; grandchild <= 1 && timeout_ms < 100'000; timeout_ms *= 4) {
    const auto outcome = sh("sleep 300 & echo $! > pid; wait", timeout_ms);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, Code::kDeadlineExceeded);
    const auto pid = read_file(dir_.path() / "pid");  // a busy machine may not have come so far
    if (pid) grandchild = std::atoi(pid->c_str());
  }
  ASSERT_GT(grandchild, 1);
  // Killed, it may wait a moment for init to reap it; a zombie has no command line.
  std::string command = "still there";
  for (int i = 0; i < 12'000 && !command.empty(); ++i) {
    const auto cmdline = read_file("/proc/" + std::to_string(grandchild) + "/cmdline");
    command = cmdline ? *cmdline : std::string();
    if (!command.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(command, "");
}

TEST_F(ChildProcess, SaysWhichSignalEndedIt) {
  const auto outcome = sh("kill -SEGV $$");
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_status, 128 + SIGSEGV);
}

TEST_F(ChildProcess, NamesAProgramThatDoesNotExist) {
  const auto outcome = run_child({"no-such-program-here"}, dir_.path(), 1000);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kNotFound);
}

// Also one whose owner has started no child yet, or has ended its child.
TEST(ChildDirectory, WhoEndsTheProcessRemovesItAndThereIsNoOther) {
  const auto end = [] {
    const auto directory = ChildDirectory::create("kiln-child-test");
    const bool was_there = directory && std::filesystem::exists(directory->path());
    end_children();
    const bool is_there = std::filesystem::exists(directory->path());
    const auto late = ChildDirectory::create("kiln-child-test");
    _exit(was_there && !is_there && !late ? 0 : 1);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

TEST(ChildDirectory, GoesWithItsOwner) {
  Path path;
  {
    const ChildDirectory directory = ChildDirectory::create("kiln-child-test").value();
    path = directory.path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace kiln
