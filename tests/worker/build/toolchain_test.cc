// NVRTC in processes of its own, and what the pool does with compiles that nobody needs any more.
// The tests with NVRTC need a toolkit, no GPU; they are skipped without.
#include "worker/build/toolchain.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/worker/kernels.h"
#include "worker/build/compile_pool.h"
#include "worker/runner/compile_session.h"

namespace kiln {
namespace {

using namespace test;
using namespace std::chrono_literals;

const Source kDouble{
    "extern \"C\" __global__ void twice(float* in, float* out) { "
    "out[threadIdx.x] = 2 * in[threadIdx.x]; }",
    {}};

class NvrtcToolchain : public ::testing::Test {
 protected:
  void SetUp() override {
    static const Result<Nvrtc> found = Nvrtc::find();
    if (!found) GTEST_SKIP() << found.error().message;
    nvrtc_ = &*found;
  }
  Toolchain toolchain() const { return nvrtc_toolchain(*nvrtc_, runner_path(), "", hopper_); }
  const Nvrtc* nvrtc_ = nullptr;
  const Target hopper_ = *Target::parse("cuda:sm_90a");
};

TEST_F(NvrtcToolchain, AProcessMakesTheBytesThatNvrtcMakesHere) {
  const auto tool = toolchain().make_tool();
  tool->warm_up();
  const auto object = tool->compile(kDouble, hopper_, 60'000);
  ASSERT_TRUE(object.has_value()) << object.error().message;
  EXPECT_EQ(object->binary, nvrtc_->compile(kDouble, hopper_)->artifact.binary);
  EXPECT_GT(object->resources.registers, 0);
}

TEST_F(NvrtcToolchain, WhatItRefusesIsTheCandidatesFault) {
  const auto tool = toolchain().make_tool();
  const auto object = tool->compile({"no such thing;", {}}, hopper_, 60'000);
  ASSERT_FALSE(object.has_value());
  EXPECT_EQ(object.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(tool->compile(kDouble, hopper_, 60'000).has_value());
}

TEST_F(NvrtcToolchain, AProcessThatHangsIsReplaced) {
  const auto tool = toolchain().make_tool();
  const auto late = tool->compile(kDouble, hopper_, 0);  // it is not even started in that time
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(tool->compile(kDouble, hopper_, 60'000).has_value());
}

TEST_F(NvrtcToolchain, APoolKeepsResourcesWithTheObjects) {
  const TempDir dir = TempDir::create().value();
  KernelResources compiled;
  for (const bool again : {false, true}) {
    CompilePool pool(toolchain(), 1, ObjectCache::open(dir.path(), 1 << 20).value());
    const Compiled object = pool.compile(kDouble, hopper_).get();
    ASSERT_TRUE(object.artifact.has_value());
    EXPECT_EQ(object.ran, !again);
    EXPECT_EQ(object.resources, again ? compiled : object.resources);
    compiled = object.resources;
  }
  EXPECT_GT(compiled.registers, 0);
}

TEST_F(NvrtcToolchain, AMissingLibraryIsNotTheCandidatesFault) {
  const auto tool =
      nvrtc_toolchain(*nvrtc_, runner_path(), "/nowhere/libnvrtc.so", hopper_).make_tool();
  const auto object = tool->compile(kDouble, hopper_, 60'000);
  ASSERT_FALSE(object.has_value());
  EXPECT_EQ(object.error().code, Code::kUnavailable);
  EXPECT_NE(object.error().message.find("/nowhere"), std::string::npos) << object.error().message;
}

TEST_F(NvrtcToolchain, AnythingThatArrivesEndsTheCompileInASession) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  runner::CompileSession session("", ends[0]);
  const runner::CompileSource request{"cuda:sm_90a", kDouble.text};
  EXPECT_TRUE(std::holds_alternative<runner::CompiledObject>(session.handle(request)));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  const runner::Reply reply = session.handle(request);
  ASSERT_TRUE(std::holds_alternative<runner::Failed>(reply));
  EXPECT_EQ(std::get<runner::Failed>(reply).error.code, Code::kDeadlineExceeded);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(CompileSession, ServesNothingElse) {
  runner::CompileSession session("", -1);
  EXPECT_TRUE(std::holds_alternative<runner::Failed>(session.handle(runner::OpenWorkload{})));
}

// Compiles until it is interrupted, but for sources that say "quick".
class WaitingTool final : public CompileTool {
 public:
  Result<Object> compile(const Source& source, const Target&, int64_t) override {
    if (source.text == "quick") return Object{"object", {}};
    std::unique_lock lock(mu_);
    started_.set_value();
    changed_.wait(lock, [this] { return interrupted_; });
    interrupted_ = false;
    return fail(Code::kDeadlineExceeded, "interrupted");
  }
  void interrupt() override {
    const std::lock_guard lock(mu_);
    interrupted_ = true;
    changed_.notify_all();
  }
  void close() override { interrupt(); }
  static std::promise<void> started_;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool interrupted_ = false;
};
std::promise<void> WaitingTool::started_;

Toolchain waiting_toolchain() {
  WaitingTool::started_ = {};
  return {"waiting", [](const Source& source, const Target&) { return Digest::of(source.text); },
          [] { return std::make_unique<WaitingTool>(); }};
}

TEST(CompilePoolCancel, EndsWhatNobodyElseWaitsFor) {
  CompilePool pool(waiting_toolchain(), 1, std::nullopt);
  auto slow = pool.compile({"slow", {}}, {}, 1);
  auto queued = pool.compile({"quick but behind it", {}}, {}, 1);
  auto other = pool.compile({"quick", {}}, {}, 2);
  WaitingTool::started_.get_future().wait();
  EXPECT_EQ(other.wait_for(20ms), std::future_status::timeout);
  pool.cancel(1);
  EXPECT_EQ(slow.get().artifact.error().code, Code::kUnavailable);
  EXPECT_EQ(queued.get().artifact.error().code, Code::kUnavailable);
  EXPECT_TRUE(other.get().artifact.has_value());
}

TEST(CompilePoolCancel, LeavesWhatAnotherLeaseWaitsFor) {
  CompilePool pool(waiting_toolchain(), 1, std::nullopt);
  auto first = pool.compile({"slow", {}}, {}, 1);
  auto second = pool.compile({"slow", {}}, {}, 2);
  WaitingTool::started_.get_future().wait();
  pool.cancel(1);
  EXPECT_EQ(first.get().artifact.error().code, Code::kUnavailable);
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  pool.cancel(2);
  EXPECT_EQ(second.get().artifact.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
