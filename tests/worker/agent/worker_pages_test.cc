#include "worker/agent/worker_status.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

#include "compiler_core/base/file.h"
#include "tests/support/metric_types.h"

namespace kiln {
namespace {

using Clock = WorkerStatus::Clock;
using std::chrono::seconds;

const Clock::time_point kNow = Clock::time_point(seconds(1000));

CandidateResult result(Verdict verdict, bool compiled) {
  CandidateResult made;
  made.verdict = verdict;
  made.compiled = compiled;
  made.compile_ms = 2000;
  made.measure_ms = verdict == Verdict::kOk ? 40 : 0;
  return made;
}

WorkerStatus busy() {
  WorkerStatus status;
  status.self.worker = "box:7";
  status.self.target = {Backend::kCpu, "x86-64-v3", "a \"model\"", 2, {}};
  status.self.toolkit = "g++ 12.2";
  status.self.slots = 3;
  status.self.sentinel_us = 5;
  status.self.device_errors = 4;
  status.coordinator = "tcp://127.0.0.1:7557";
  status.connected = true;
  status.connections = 6;
  status.turned = kNow;
  status.leases = 2;
  status.held = 9;
  status.candidates.count(result(Verdict::kOk, true));
  status.candidates.count(result(Verdict::kOk, false));
  status.candidates.count(result(Verdict::kDeviceLost, true));
  return status;
}

TEST(WorkerPages, MetricsSayWhatTheStatusSays) {
  const HttpAnswer page = worker_page(busy(), kNow, "/metrics");
  EXPECT_EQ(page.status, 200u);
  for (const char* line :
       {"kiln_worker_connected 1", "kiln_worker_connections_total 6", "kiln_worker_draining 0",
        "kiln_worker_slots 3", "kiln_worker_leases 2", "kiln_worker_results_held 9",
        "kiln_worker_candidates_total{verdict=\"ok\"} 2",
        "kiln_worker_candidates_total{verdict=\"device_lost\"} 1",
        "kiln_worker_candidates_total{verdict=\"wrong_result\"} 0",
        "kiln_worker_candidates_compiled_total 2",
        "kiln_worker_stage_duration_seconds_count{stage=\"compile\"} 2",
        "kiln_worker_stage_duration_seconds_sum{stage=\"compile\"} 4",
        "kiln_worker_stage_duration_seconds_count{stage=\"measure\"} 2",
        "kiln_worker_stage_duration_seconds_count{stage=\"verify\"} 0",
        "kiln_worker_sentinel_seconds 5e-06", "kiln_worker_device_errors_total 4"})
    EXPECT_NE(page.body.find(std::string("\n") + line + "\n"), std::string::npos) << line << "\n"
                                                                                  << page.body;
  EXPECT_NE(page.body.find("device=\"a \\\"model\\\"\""), std::string::npos) << page.body;
}

// docs/operations.md lists them below "## Metrics of a worker", but for those of every process.
TEST(WorkerPages, MetricsAreTheOnesInTheManual) {
  const std::string manual = read_file(Path(KILN_SOURCE_DIR) / "docs/operations.md").value();
  const size_t from = manual.find("\n## Metrics of a worker\n");
  ASSERT_NE(from, std::string::npos);
  const std::string section = manual.substr(from, manual.find("\n## ", from + 1) - from);
  std::map<std::string, std::string> documented;
  static const std::regex kRow(R"(\| `([a-z0-9_]+)(\{[a-z]+\})?` \| (counter|gauge|histogram) \|)");
  for (auto at = std::sregex_iterator(section.begin(), section.end(), kRow);
       at != std::sregex_iterator(); ++at)
    documented[(*at)[1]] = (*at)[3];
  auto served = testing::types_in(worker_page(busy(), kNow, "/metrics").body);
  std::erase_if(served, [](const auto& family) { return family.first.starts_with("process_"); });
  EXPECT_EQ(documented, served);
}

TEST(WorkerPages, ReadyWhileItTakesWork) {
  WorkerStatus status = busy();
  EXPECT_EQ(worker_page(status, kNow, "/readyz").status, 200u);
  status.draining = true;
  HttpAnswer page = worker_page(status, kNow, "/readyz");
  EXPECT_EQ(page.status, 503u);
  EXPECT_EQ(page.body, "draining\n");
  status.draining = status.connected = false;
  status.trouble = "nobody listens";
  page = worker_page(status, kNow, "/readyz");
  EXPECT_EQ(page.status, 503u);
  EXPECT_EQ(page.body, "not connected to tcp://127.0.0.1:7557: nobody listens\n");
  EXPECT_EQ(worker_page(status, kNow, "/healthz").status, 200u) << "a restart would not help";
}

TEST(WorkerPages, HealthyWhileTheAgentGoesRound) {
  WorkerStatus status = busy();
  EXPECT_EQ(worker_page(status, kNow + seconds(29), "/healthz").status, 200u);
  EXPECT_EQ(worker_page(status, kNow + seconds(31), "/healthz").status, 503u);
  status.turned = {};
  EXPECT_EQ(worker_page(status, kNow, "/healthz").body, "starting\n");
}

TEST(WorkerPages, AnythingElseIsTold) {
  const HttpAnswer page = worker_page(busy(), kNow, "/");
  EXPECT_EQ(page.status, 404u);
  EXPECT_NE(page.body.find("/metrics"), std::string::npos);
}

}  // namespace
}  // namespace kiln
