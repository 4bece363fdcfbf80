// kiln-runner as a process: how it starts, ends, and meets nonsense.
#include "worker/runner/runner_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "tests/worker/kernels.h"
#include "worker/jobs/evaluation.h"

namespace kiln {
namespace {

using namespace test;

constexpr int64_t kPatienceMs = 60'000;

// A runner started by hand, our end of its socket in `socket`; `parent` is who it takes us for.
struct RawRunner {
  explicit RawRunner(pid_t parent = ::getpid()) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    socket = ends[0];
    const std::string theirs = std::to_string(ends[1]), asked = std::to_string(parent);
    const std::string path = runner_path().string();
    pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      ::execl(path.c_str(), path.c_str(), "--socket", theirs.c_str(), "--parent", asked.c_str(),
              "--threads", "1", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
  }
  ~RawRunner() {
    if (socket >= 0) ::close(socket);
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  // Its exit status; -1 when a signal ended it.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int socket = -1;
  pid_t pid = 0;
};

TEST(Runner, EndsWithItsWorkersSocket) {
  RawRunner runner;
  ::close(std::exchange(runner.socket, -1));
  EXPECT_EQ(runner.wait(), 0);
}

TEST(Runner, RefusesAParentThatIsGone) {
  RawRunner runner(1);
  EXPECT_EQ(runner.wait(), 1);
}

TEST(Runner, NonsenseOnTheSocketEndsIt) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 10; ++round) {
    RawRunner runner;
    std::string garbage(8 + random() % 200, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    const uint32_t size = static_cast<uint32_t>(garbage.size() - sizeof size);
    if (round % 2 == 0) std::memcpy(garbage.data(), &size, sizeof size);  // a frame, at least
    ASSERT_TRUE(runner::send_frame(runner.socket, garbage, 1000));
    ::shutdown(runner.socket, SHUT_WR);
    EXPECT_GE(runner.wait(), 0);  // on its own, not by a signal
  }
}

TEST(Runner, KnowsOfItsWorkersEnvironmentWhatItNeeds) {
  ::setenv("KILN_KEY", "/somewhere/worker.key", 1);
  ::setenv("CLOUD_SECRET", "sesame", 1);
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  RunnerProcess process({runner_path(), 1, {}});
  const auto opened = process.call(runner::OpenWorkload{1, kAddGraph}, kPatienceMs);
  ::unsetenv("KILN_KEY");
  ::unsetenv("CLOUD_SECRET");
  ::unsetenv("CUDA_MODULE_LOADING");
  ASSERT_TRUE(opened.has_value());
  const auto known = read_file("/proc/" + std::to_string(process.pid()) + "/environ");
  ASSERT_TRUE(known.has_value());
  EXPECT_NE(known->find("PATH="), std::string::npos);
  EXPECT_NE(known->find("CUDA_MODULE_LOADING=LAZY"), std::string::npos);
  EXPECT_EQ(known->find("worker.key"), std::string::npos);
  EXPECT_EQ(known->find("sesame"), std::string::npos);
}

TEST(Runner, RequestsOutOfOrderAreRefusedNotObeyed) {
  RunnerProcess process({runner_path(), 1, {}});
  const auto failed = [](const Result<runner::Reply>& reply) {
    return reply.has_value() && std::holds_alternative<runner::Failed>(*reply);
  };
  EXPECT_TRUE(failed(process.call(runner::VerifyKernel{}, kPatienceMs)));
  EXPECT_TRUE(failed(process.call(runner::RaceKernel{}, kPatienceMs)));
  EXPECT_TRUE(failed(process.call(runner::TimeFinalists{{1, 2}, {}}, kPatienceMs)));
  EXPECT_TRUE(failed(process.call(runner::OpenWorkload{1, "no graph"}, kPatienceMs)));
  const auto opened = process.call(runner::OpenWorkload{1, kAddGraph}, kPatienceMs);
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(std::holds_alternative<runner::Opened>(*opened));
}

TEST(RunnerProcess, ASlowKernelIsSeenToGetOn) {
  int progress = 0;
  RunnerProcess process({runner_path(), 1, [&progress] { ++progress; }});
  Job job = add_job(Job::Kind::kCompile);
  const Artifact slow = compile_kernel(std::string("if (begin == 0) usleep(600000);\n") + kRight,
                                       "extern \"C\" int usleep(unsigned);");
  const Evaluation evaluation = evaluate_candidate(process, job, slow, 0);
  EXPECT_EQ(evaluation.verdict, Verdict::kOk) << evaluation.log;
  EXPECT_GE(progress, 1);
}

TEST(RunnerProcess, IsAsNiceAsItIsAskedToBeAndItsWorkerIsNot) {
  const int own = ::getpriority(PRIO_PROCESS, 0);
  const std::string session = read_file("/proc/self/autogroup").value_or("");
  RunnerProcess::Options options{runner_path(), 1, {}};
  options.niceness = std::min(own + 7, 19);
  RunnerProcess process(options);
  ASSERT_TRUE(process.call(runner::OpenWorkload{1, kAddGraph}, kPatienceMs).has_value());
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(process.pid())), options.niceness);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own);
  EXPECT_EQ(read_file("/proc/self/autogroup").value_or(""), session);
}

TEST(RunnerProcess, ClosedItStartsNoOther) {
  RunnerProcess process({runner_path(), 1, {}});
  EXPECT_TRUE(process.call(runner::OpenWorkload{1, kAddGraph}, kPatienceMs).has_value());
  process.close();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(process.call(runner::OpenWorkload{1, kAddGraph}, kPatienceMs).error().code,
              Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
