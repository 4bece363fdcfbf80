#include "coordinator/status/status_pages.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using Phase = ServiceStatus::Phase;
using std::chrono::seconds;

class StatusPagesTest : public ::testing::Test {
 protected:
  HttpAnswer page(std::string_view path, seconds later = seconds(0)) const {
    return status_page(status_, start_ + later, 0, path);
  }
  void serve(Stats stats = {}) {
    status_.set_phase(Phase::kServing);
    status_.turned(start_);
    StatusSnapshot snapshot;
    snapshot.stats = std::move(stats);
    status_.publish(std::move(snapshot));
  }

  const ServiceStatus::Clock::time_point start_ = ServiceStatus::Clock::now();
  ServiceStatus status_;
};

TEST_F(StatusPagesTest, StartingIsHealthyButNotReady) {
  EXPECT_EQ(page("/healthz", seconds(60)).status, 200u);
  EXPECT_EQ(page("/readyz").status, 503u);
  EXPECT_EQ(page("/readyz").body, "starting\n");
}

TEST_F(StatusPagesTest, ReadyMeansLookUpsAreServedAndSaysWhatElseIsMissing) {
  Stats stats;
  stats.workers.resize(1);
  serve(stats);
  EXPECT_EQ(page("/readyz").status, 200u);
  EXPECT_EQ(page("/readyz").body, "ready\n");
  stats.workers[0].state = "quarantined";
  stats.store_failures = 1;
  serve(stats);
  const HttpAnswer answer = page("/readyz");
  EXPECT_EQ(answer.status, 200u);
  EXPECT_NE(answer.body.find("degraded: no worker"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("degraded: the disk"), std::string::npos) << answer.body;
  EXPECT_EQ(page("/readyz", seconds(1)).status, 200u);
}

TEST_F(StatusPagesTest, AStoreThatIsAwayAndAFollowerAreReadyAndSaySo) {
  status_.set_phase(Phase::kFollowing);
  status_.turned(start_);
  EXPECT_EQ(page("/readyz").status, 200u);
  EXPECT_NE(page("/readyz").body.find("follows"), std::string::npos) << page("/readyz").body;
  StatusSnapshot away;
  away.store_away = "PostgreSQL does not answer";
  status_.publish(std::move(away));
  EXPECT_EQ(page("/readyz").status, 200u);
  EXPECT_NE(page("/readyz").body.find("degraded: PostgreSQL"), std::string::npos);
  StatusSnapshot spooled;
  spooled.stats.spooled = 12;
  status_.publish(std::move(spooled));
  EXPECT_NE(page("/readyz").body.find("degraded: 12 programs and kernels"), std::string::npos);
}

TEST_F(StatusPagesTest, ALoopThatHangsIsNotReadyAndThenNotHealthy) {
  serve();
  EXPECT_EQ(page("/readyz", seconds(3)).status, 503u);
  EXPECT_EQ(page("/healthz", seconds(3)).status, 200u);
  EXPECT_EQ(page("/healthz", seconds(11)).status, 503u);
  status_.turned(start_ + seconds(11));
  EXPECT_EQ(page("/healthz", seconds(11)).status, 200u);
}

TEST_F(StatusPagesTest, StoppingIsNotReady) {
  serve();
  status_.set_phase(Phase::kStopping);
  EXPECT_EQ(page("/readyz").status, 503u);
}

TEST_F(StatusPagesTest, OtherPathsSayWhatThereIs) {
  EXPECT_EQ(page("/").status, 404u);
  EXPECT_NE(page("/").body.find("/metrics"), std::string::npos);
  EXPECT_EQ(page("/metrics").status, 200u);
  EXPECT_NE(page("/metrics").content_type.find("version=0.0.4"), std::string::npos);
}

}  // namespace
}  // namespace kiln
