// The agent against a coordinator that each test plays by hand.
#include "worker/agent/agent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/support/loopback.h"

namespace kiln {
namespace {

const TemplateVersions kTemplates = {{"cpu.pointwise", 2}};
constexpr std::chrono::seconds kPatience{60};

Job job(uint64_t lease, int candidates) {
  Job made;
  made.lease = lease;
  made.epoch = 1;
  made.kernel_key = Digest::of("kernel");
  made.target.isa = "x86-64-v3";
  for (int i = 0; i < candidates; ++i) made.candidates.push_back({i, {}, "", ""});
  return made;
}

CandidateResult result(uint64_t lease, int index) {
  CandidateResult made;
  made.lease = lease;
  made.epoch = 1;
  made.kernel_key = Digest::of("kernel");
  made.index = index;
  return made;
}

// What the agent told the worker to do.
class FakeWork {
 public:
  static constexpr int64_t kCompiled = 17;
  Agent::Work hooks() {
    return {[this](std::vector<Job> jobs) {
              for (const Job& started : jobs) note("start " + std::to_string(started.lease));
            },
            [this](uint64_t lease) { note("drop " + std::to_string(lease)); },
            [this] { note("stop"); }, [] { return kCompiled; }};
  }
  // Waits until it was told to.
  bool was_told(const std::string& what) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kPatience,
                             [&] { return std::ranges::find(notes_, what) != notes_.end(); });
  }
  int64_t times(const std::string& what) {
    const std::lock_guard lock(mu_);
    return std::ranges::count(notes_, what);
  }

 private:
  void note(std::string what) {
    const std::lock_guard lock(mu_);
    notes_.push_back(std::move(what));
    changed_.notify_all();
  }
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() { listen(free_endpoint()); }
  ~AgentTest() override { stop(); }

  void listen(const std::string& endpoint) {
    for (int i = 0; i < 3000 && !listener_; ++i) {  // the port of the one before is freed soon
      auto bound = Listener::bind(endpoint);
      if (bound)
        listener_ = *std::move(bound);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_NE(listener_, nullptr);
    endpoint_ = listener_->endpoint();
  }

  void start(int report_period_ms = 20) {
    Agent::Options options;
    options.coordinator = endpoint_;
    options.self.worker = "w";
    options.self.target.isa = "x86-64-v3";
    options.self.slots = 2;
    options.templates = kTemplates;
    options.report_period_ms = report_period_ms;
    options.connect_timeout_ms = 500;
    options.finish_timeout_ms = finish_timeout_ms_;
    agent_ = std::make_unique<Agent>(options);
    thread_ = std::thread([this] { ended_ = agent_->run(work_.hooks()); });
  }

  void stop() {
    if (agent_) agent_->stop();
    if (thread_.joinable()) thread_.join();
  }

  // The next message of the worker, answering its hello on the way.
  std::optional<WorkerReport> next_report(const Digest& stamp = template_stamp(kTemplates)) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      auto received = listener_->receive(100);
      if (!received) continue;
      peer_ = received->peer;
      if (std::holds_alternative<Hello>(received->message))
        listener_->send(peer_, Welcome{kProtocolVersion, "test", stamp});
      if (auto* report = std::get_if<WorkerReport>(&received->message)) return std::move(*report);
    }
    return std::nullopt;
  }
  // The first report for which `holds`.
  template <class Predicate>
  std::optional<WorkerReport> report_where(Predicate holds) {
    for (int i = 0; i < 1000; ++i) {
      auto report = next_report();
      if (!report || holds(*report)) return report;
    }
    return std::nullopt;
  }
  void order(WorkerOrders orders) { ASSERT_TRUE(listener_->send(peer_, std::move(orders))); }

  int finish_timeout_ms_ = 60'000;
  std::unique_ptr<Listener> listener_;
  std::string endpoint_;
  PeerId peer_;
  FakeWork work_;
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
  Status ended_;
};

TEST_F(AgentTest, ReportsWhatItIsAndKeepsReporting) {
  start();
  const auto report = next_report();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->worker, "w");
  EXPECT_EQ(report->slots, 2);
  EXPECT_FALSE(report->draining);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(next_report().has_value());  // unasked
}

TEST_F(AgentTest, StartsWhatItIsOrderedToAndReportsTheLease) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 2)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  agent_->stepped(7);
  EXPECT_TRUE(report_where([](const WorkerReport& report) {
    return report.leases.size() == 1 && report.leases[0].lease == 7 && report.leases[0].done == 1;
  }));
}

TEST_F(AgentTest, AResultIsReportedAtOnceAndAgainUntilItIsAcknowledged) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 1)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  agent_->finished(result(7, 0));
  const auto has_it = [](const WorkerReport& report) { return !report.results.empty(); };
  for (int lost = 0; lost < 3; ++lost) ASSERT_TRUE(report_where(has_it));  // no ack comes back
  order({{}, {}, {{7, 0}}});
  EXPECT_TRUE(report_where([](const WorkerReport& report) { return report.results.empty(); }));
  EXPECT_EQ(work_.times("start 7"), 1);
}

TEST_F(AgentTest, ARevokedLeaseIsDropped) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 2), job(8, 2)}, {7, 8}, {}});
  ASSERT_TRUE(work_.was_told("start 8"));
  order({{}, {8}, {}});
  ASSERT_TRUE(work_.was_told("drop 7"));
  agent_->finished(result(7, 0));
  const auto report = report_where([](const WorkerReport& r) { return r.leases.size() == 1; });
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->results.empty());
  EXPECT_EQ(report->compiled, FakeWork::kCompiled);
  EXPECT_EQ(work_.times("drop 8"), 0);
}

TEST_F(AgentTest, WorkAndResultsOutliveTheConnection) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 2)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  listener_.reset();               // the coordinator dies
  agent_->finished(result(7, 0));  // the work does not
  listen(endpoint_);
  const auto report = report_where([](const WorkerReport& r) { return !r.results.empty(); });
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->results[0].index, 0);
  ASSERT_EQ(report->leases.size(), 1u);
  EXPECT_EQ(report->leases[0].lease, 7u);
  EXPECT_EQ(work_.times("drop 7") + work_.times("stop"), 0);
}

TEST_F(AgentTest, StoppingGivesLeasesBackAndHandsResultsOver) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 2)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  agent_->finished(result(7, 0));
  agent_->stop();
  const auto last = report_where([](const WorkerReport& report) { return report.draining; });
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->leases.empty());
  EXPECT_EQ(last->results.size(), 1u);
  order({{}, {}, {{7, 0}}});
  thread_.join();
  EXPECT_TRUE(ended_.has_value());
  EXPECT_EQ(work_.times("stop"), 1);
}

TEST_F(AgentTest, FinishingTakesNothingNewAndEndsWhenWhatItHasIsStored) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 1)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  agent_->finish();
  const auto draining = report_where([](const WorkerReport& report) { return report.draining; });
  ASSERT_TRUE(draining.has_value());
  ASSERT_EQ(draining->leases.size(), 1u) << "it goes on with what it has";
  order({{job(8, 1)}, {7, 8}, {}});
  agent_->finished(result(7, 0));
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.results.empty(); }));
  EXPECT_EQ(work_.times("stop"), 0);
  order({{}, {}, {{7, 0}}});
  thread_.join();
  EXPECT_TRUE(ended_.has_value());
  EXPECT_EQ(work_.times("start 8"), 0);
}

TEST_F(AgentTest, ToldToDrainByTheCoordinatorItDoesTheSame) {
  start();
  ASSERT_TRUE(next_report().has_value());
  WorkerOrders orders{{job(7, 1)}, {7}, {}};
  order(orders);
  ASSERT_TRUE(work_.was_told("start 7"));
  orders.drain = true;
  order(orders);
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return report.draining; }));
  agent_->finished(result(7, 0));
  ASSERT_TRUE(report_where([](const WorkerReport& report) { return !report.results.empty(); }));
  order({{}, {}, {{7, 0}}, true});
  thread_.join();
  EXPECT_TRUE(ended_.has_value());
}

TEST_F(AgentTest, FinishingHasABound) {
  finish_timeout_ms_ = 100;
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 1)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  agent_->finish();
  const auto last = report_where(
      [](const WorkerReport& report) { return report.draining && report.leases.empty(); });
  EXPECT_TRUE(last.has_value()) << "the lease is given back";
  thread_.join();
  EXPECT_TRUE(ended_.has_value());
}

TEST_F(AgentTest, ReportsHowItsDeviceIs) {
  start();
  ASSERT_TRUE(next_report().has_value());
  agent_->health(123.5, 2);
  EXPECT_TRUE(report_where([](const WorkerReport& report) {
    return report.sentinel_us == 123.5 && report.device_errors == 2;
  }));
}

TEST_F(AgentTest, ItsStatusSaysWhatItHasAndDid) {
  start();
  ASSERT_TRUE(next_report().has_value());
  order({{job(7, 2)}, {7}, {}});
  ASSERT_TRUE(work_.was_told("start 7"));
  CandidateResult compiled = result(7, 0);
  compiled.compiled = true;
  agent_->finished(compiled);
  agent_->finished(result(8, 0));  // of a lease that is not its own any more
  WorkerStatus status = agent_->status();
  EXPECT_EQ(status.self.worker, "w");
  EXPECT_EQ(status.coordinator, endpoint_);
  EXPECT_TRUE(status.connected);
  EXPECT_EQ(status.connections, 1);
  EXPECT_EQ(status.leases, 1u);
  EXPECT_EQ(status.held, 1u);
  EXPECT_EQ(status.candidates.by_verdict[0], 2);
  EXPECT_EQ(status.candidates.compiled, 1);
  EXPECT_FALSE(status.draining);
  EXPECT_NE(status.turned, WorkerStatus::Clock::time_point{});
  listener_.reset();
  for (int i = 0; i < 3000 && status.trouble.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = agent_->status();
  }
  EXPECT_FALSE(status.connected);
  EXPECT_FALSE(status.trouble.empty());
  agent_->finish();
  EXPECT_TRUE(agent_->status().draining);
}

TEST_F(AgentTest, StopsWhileTheCoordinatorIsAway) {
  listener_.reset();
  start();
  agent_->stop();
  thread_.join();
  EXPECT_TRUE(ended_.has_value());
}

// What they do not have in common is not leased to it.
TEST_F(AgentTest, SaysWhichTemplatesItHasAndWorksForACoordinatorThatHasOthers) {
  start();
  const auto hello = listener_->receive(60'000);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(std::get<Hello>(hello->message).templates, kTemplates);
  listener_->send(hello->peer, Welcome{kProtocolVersion, "test", Digest::of("another")});
  EXPECT_TRUE(next_report().has_value());
  stop();
  EXPECT_TRUE(ended_.has_value());
}

TEST_F(AgentTest, AnEndpointThatIsNoneIsRefusedForGood) {
  endpoint_ = "nonsense";
  start();
  thread_.join();
  ASSERT_FALSE(ended_.has_value());
  EXPECT_EQ(ended_.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
