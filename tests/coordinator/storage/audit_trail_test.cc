// Acts on their way to the store: there when it answers, and later where it was away.
#include "coordinator/storage/audit_trail.h"

#include <gtest/gtest.h>

#include "cache/kernel_cache.h"
#include "tests/cache/far_store.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

class AuditTrailTest : public ::testing::Test, public EventLoop {
 protected:
  void post(Job job) override { inbox_.post(std::move(job)); }
  void step(Event) override {}
  int64_t now_ms() const override { return 1; }
  void log(const LogLine& line) const override { log_ += line.logfmt() + "\n"; }

  // Until the store has nothing more to answer.
  void settle() {
    for (int i = 0; i < 5; ++i) {
      cache_->flush();
      for (const Job& job : inbox_.take()) job();
    }
  }
  void note(const std::string& request) {
    AdminAct act = trail_.begin("ops", request);
    act.done = true;
    act.outcome = "{}";
    trail_.note(std::move(act), [this] { ++answered_; });
  }
  std::vector<std::string> stored() {
    const auto acts = samples::answer_of<std::vector<AdminAct>>(
        [&](auto then) { cache_->list_acts(INT64_MAX, 100, then); });
    std::vector<std::string> requests;
    for (const AdminAct& act : acts.value()) requests.push_back(act.request);
    return requests;
  }

  const TempDir dir_ = *TempDir::create("kiln-audit-trail");
  mutable std::string log_;
  Inbox inbox_{[] {}};
  std::unique_ptr<KernelCache> cache_ = KernelCache::open(dir_.path() / "data").value();
  FarStore store_{*cache_};
  AuditTrail trail_{store_, *this, "tcp://a:7557"};
  int answered_ = 0;
};

TEST_F(AuditTrailTest, AnActIsStoredBeforeItIsAnsweredAndSaysWhoAndWhere) {
  note("drain gpu7");
  EXPECT_EQ(answered_, 0);
  settle();
  EXPECT_EQ(answered_, 1);
  const auto acts = samples::answer_of<std::vector<AdminAct>>([&](auto then) {
                      cache_->list_acts(INT64_MAX, 100, then);
                    }).value();
  ASSERT_EQ(acts.size(), 1U);
  EXPECT_EQ(acts[0].who, "ops");
  EXPECT_EQ(acts[0].coordinator, "tcp://a:7557");
  EXPECT_EQ(acts[0].request, "drain gpu7");
  EXPECT_GT(acts[0].at_ms, 0);
  EXPECT_NE(log_.find("admin"), std::string::npos) << log_;
  EXPECT_TRUE(trail_.waiting().empty());
}

TEST_F(AuditTrailTest, WhileTheStoreIsAwayActsAreAnsweredAndStoredInOrderLater) {
  store_.is_away = true;
  for (const char* request : {"drain gpu7", "cancel 12"}) note(request);
  settle();
  EXPECT_EQ(answered_, 2);
  EXPECT_EQ(trail_.waiting().size(), 2U);
  EXPECT_EQ(trail_.waiting().front().request, "cancel 12") << "the latest first";
  trail_.tick();
  settle();
  EXPECT_EQ(trail_.waiting().size(), 2U);
  EXPECT_TRUE(stored().empty());
  store_.is_away = false;
  trail_.tick();
  settle();
  EXPECT_TRUE(trail_.waiting().empty());
  EXPECT_EQ(stored(), (std::vector<std::string>{"cancel 12", "drain gpu7"}));
  EXPECT_EQ(trail_.count(), 2);
}

TEST_F(AuditTrailTest, OnlyTheLatestThousandWait) {
  store_.is_away = true;
  for (int n = 0; n < 1'002; ++n) note("drain " + std::to_string(n));
  settle();
  EXPECT_EQ(trail_.waiting().size(), 1'000U);
  EXPECT_EQ(trail_.waiting().front().request, "drain 1001");
  EXPECT_EQ(trail_.waiting().back().request, "drain 2");
}

}  // namespace
}  // namespace kiln
