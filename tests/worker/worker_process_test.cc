// kiln-worker as a process, against a coordinator that the test plays: what becomes of it and of
// its children when it is told to stop, killed, and started again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "compiler_core/base/signature.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "schema/zmq/transport.h"
#include "tests/support/http_get.h"
#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;
using namespace std::chrono_literals;

struct ProcessInfo {
  pid_t parent = 0;
  std::string name, cwd;
};

std::map<pid_t, ProcessInfo> processes() {
  std::map<pid_t, ProcessInfo> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    if (pid <= 0 || !std::getline(stat, line)) continue;
    const size_t open = line.find('('), close = line.rfind(')');
    std::error_code unreadable;
    const Path cwd = std::filesystem::read_symlink(entry.path() / "cwd", unreadable);
    if (line[close + 2] == 'Z') continue;
    all[pid] = {std::atoi(line.c_str() + close + 4), line.substr(open + 1, close - open - 1),
                unreadable ? "" : cwd.string()};
  }
  return all;
}

template <class Predicate>
bool eventually(Predicate holds) {
  for (int i = 0; i < 6'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

constexpr auto kHasResult = [](const WorkerReport& report) { return !report.results.empty(); };

class WorkerProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bound = Listener::bind("tcp://127.0.0.1:0");
    ASSERT_TRUE(bound.has_value());
    listener_ = *std::move(bound);
  }
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> words{(Path(KILN_BINARY_DIR) / "bin" / "kiln-worker").string(),
                                   "--coordinator",
                                   listener_->endpoint(),
                                   "--cache-dir",
                                   (dir_.path() / "cache").string(),
                                   "--device-lock",
                                   (dir_.path() / "lock").string(),
                                   "--threads",
                                   "2",
                                   "--log-level",
                                   "warn"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::setenv("TMPDIR", dir_.path().c_str(), 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }

  // The first report for which `holds`; every report is answered with `orders_`.
  template <class Predicate>
  std::optional<WorkerReport> report_where(Predicate holds) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < until) {
      auto received = listener_->receive(100);
      if (!received) continue;
      if (std::holds_alternative<Hello>(received->message))
        listener_->send(received->peer,
                        Welcome{kProtocolVersion, "test", template_stamp(template_versions()), "",
                                key_.public_key()});
      auto* report = std::get_if<WorkerReport>(&received->message);
      if (report == nullptr) continue;
      listener_->send(received->peer, orders_);
      if (holds(*report)) return std::move(*report);
    }
    return std::nullopt;
  }

  Job screen_job(uint64_t lease) {
    Job job = add_job();
    job.lease = lease;
    const auto schedules =
        search_space({parse_graph(kAddGraph).value(), Family::kPointwise, {}}, job.target);
    job.candidates.push_back({0, schedules.value()[0], "", ""});
    return job;
  }

  // A job whose kernel never returns.
  Job endless_job(uint64_t lease) {
    const Artifact endless = compile_kernel("for (volatile int i = 0;; ) i = i + 1;");
    Job job = add_job(Job::Kind::kFinal);
    job.lease = lease;
    job.policy.launch_timeout_ms = 600'000;
    job.candidates.push_back({0, {}, recipe_to_json(endless.recipe), endless.binary});
    CandidateJob& candidate = job.candidates.back();
    const Digest message = signed_candidate(job.kernel_key, candidate.schedule.to_string(),
                                            candidate.recipe_json, candidate.binary);
    candidate.signature = key_.sign(message).bytes;
    return job;
  }

  // With a job whose compile takes longer than any test.
  void start_with_a_slow_compiler() {
    const Path slow = dir_.path() / "slow-compiler";
    ASSERT_TRUE(write_file(
        slow, "#!/bin/sh\ncase \"$*\" in *version*) echo slow 1.0;; *) sleep 1000; echo;; esac\n"));
    std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
    orders_ = {{screen_job(1)}, {1}, {}};
    start({"--compiler", slow.string()});
    // A worker that has not taken the job yet ends at once when it is told to.
    ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.leases.empty(); }));
    ASSERT_TRUE(eventually([this] { return compilers() > 0; }));
  }
  bool has_scratch() const {
    return std::ranges::any_of(std::filesystem::directory_iterator(dir_.path()),
                               [](const auto& entry) {
                                 return entry.path().filename().string().starts_with("kiln-worker");
                               });
  }

  std::vector<pid_t> children() const {
    std::vector<pid_t> result;
    for (const auto& [pid, info] : processes())
      if (info.parent == pid_) result.push_back(pid);
    return result;
  }
  bool has_child(const std::string& name) const {
    const auto all = processes();
    return std::ranges::any_of(children(), [&](pid_t pid) {
      const auto found = all.find(pid);
      return found != all.end() && found->second.name == name;
    });
  }
  // Processes that work below this test's directory: compilers.
  int64_t compilers() const {
    const auto all = processes();
    return std::ranges::count_if(all, [&](const auto& process) {
      return process.second.cwd.starts_with(dir_.path().string() + "/");
    });
  }
  // A worker reports a result before what it compiled is on the disk. False: not within a minute.
  bool wait_for_cached_object() const {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < until) {
      std::error_code missing;
      for (const auto& entry : std::filesystem::directory_iterator(dir_.path() / "cache", missing))
        if (entry.path().extension() == ".object") return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  int wait_for_exit() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }

  TempDir dir_ = TempDir::create().value();
  const SigningKey key_ = SigningKey::generate();
  std::unique_ptr<Listener> listener_;
  WorkerOrders orders_;
  pid_t pid_ = 0;
};

TEST_F(WorkerProcess, TunesAndARestartedOneCompilesNothingAgain) {
  orders_ = {{screen_job(1)}, {1}, {}};
  start();
  auto report = report_where(kHasResult);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results[0].verdict, Verdict::kOk) << report->results[0].log;
  EXPECT_TRUE(report->results[0].compiled);
  ASSERT_TRUE(wait_for_cached_object());
  ::kill(pid_, SIGKILL);
  wait_for_exit();
  start();
  report = report_where(kHasResult);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results[0].verdict, Verdict::kOk) << report->results[0].log;
  EXPECT_FALSE(report->results[0].compiled);
}

// The kernel would never return: that there is a result shows that it was not started.
TEST_F(WorkerProcess, AFinalistThatTheCoordinatorHasNotSignedIsNotRun) {
  Job job = endless_job(1);
  job.candidates[0].binary.back() ^= 1;
  orders_ = {{job}, {1}, {}};
  start();
  const auto report = report_where(kHasResult);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results[0].verdict, Verdict::kDeviceLost);
  EXPECT_NE(report->results[0].log.find("was not loaded"), std::string::npos)
      << report->results[0].log;
}

TEST_F(WorkerProcess, EndsWithZeroWhenToldToAndGivesItsLeaseBack) {
  orders_ = {{endless_job(1)}, {1}, {}};
  start();
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.leases.empty(); }));
  ASSERT_TRUE(eventually([this] { return has_child("kiln-runner"); }));
  ::kill(pid_, SIGINT);
  const auto last = report_where([](const WorkerReport& report) { return report.draining; });
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->leases.empty());
  const int status = wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(WorkerProcess, KilledItTakesItsRunnerAlong) {
  orders_ = {{endless_job(1)}, {1}, {}};
  start();
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.leases.empty(); }));
  ASSERT_TRUE(eventually([this] { return has_child("kiln-runner"); }));
  const std::vector<pid_t> family = children();
  ::kill(pid_, SIGKILL);
  wait_for_exit();
  EXPECT_TRUE(eventually([&] {
    const auto all = processes();
    return std::ranges::none_of(family, [&](pid_t pid) { return all.contains(pid); });
  }));
}

TEST_F(WorkerProcess, KilledItTakesItsCompilersAndTheirFilesAlong) {
  start_with_a_slow_compiler();
  ::kill(pid_, SIGKILL);
  wait_for_exit();
  EXPECT_TRUE(eventually([this] { return compilers() == 0 && !has_scratch(); }));
}

TEST_F(WorkerProcess, ToldToStopItDoesNotWaitForItsCompilers) {
  start_with_a_slow_compiler();
  ::kill(pid_, SIGTERM);
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return report.draining; }));
  ::kill(pid_, SIGTERM);  // a second one does not let it finish
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return report.draining; }));
  const int status = wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(eventually([this] { return compilers() == 0 && !has_scratch(); }));
}

TEST_F(WorkerProcess, AKilledRunnerIsReplaced) {
  orders_ = {{endless_job(1)}, {1}, {}};
  start();
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.leases.empty(); }));
  ASSERT_TRUE(eventually([this] { return has_child("kiln-runner"); }));
  // One that has no kernel yet is replaced without a word.
  auto report = report_where([this](const WorkerReport& latest) {
    if (kHasResult(latest)) return true;
    for (const auto& [pid, info] : processes())
      if (info.parent == pid_ && info.name == "kiln-runner") ::kill(pid, SIGKILL);
    return false;
  });
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results[0].verdict, Verdict::kRunnerDied);
  orders_ = {{screen_job(2)}, {2}, {{1, 0}}};
  report = report_where(
      [](const WorkerReport& r) { return !r.results.empty() && r.results.back().lease == 2; });
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results.back().verdict, Verdict::kOk) << report->results.back().log;
}

TEST_F(WorkerProcess, ItsHttpPortSaysWhatItDid) {
  const int port = free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  orders_ = {{screen_job(1)}, {1}, {}};
  start({"--http", address});
  ASSERT_TRUE(report_where(kHasResult));
  EXPECT_TRUE(http_get(address, "/healthz").starts_with("HTTP/1.1 200"));
  // Where this process was stalled the worker connects again, by the next report.
  EXPECT_TRUE(eventually([&] {
    if (http_get(address, "/readyz").starts_with("HTTP/1.1 200")) return true;
    report_where([](const WorkerReport&) { return true; });
    return false;
  }));
  const std::string metrics = http_get(address, "/metrics");
  EXPECT_NE(metrics.find("\nkiln_worker_candidates_total{verdict=\"ok\"} 1\n"), std::string::npos)
      << metrics;
  listener_.reset();  // its coordinator is gone
  EXPECT_TRUE(eventually(
      [&] { return http_get(address, "/readyz").find("not connected") != std::string::npos; }));
  EXPECT_TRUE(http_get(address, "/healthz").starts_with("HTTP/1.1 200"));
}

TEST_F(WorkerProcess, AnAddressThatIsNoneForHttpIsSaidAtOnce) {
  start({"--http", "9558"});
  const int status = wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(WorkerProcess, AMissingRunnerIsSaidAtOnce) {
  start({"--runner", "/nonexistent"});
  const int status = wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

}  // namespace
}  // namespace kiln
