// What operators ask of a service while it serves.
#include "cache/index.h"
#include "cache/pending_task_store.h"
#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

class ServiceAdmin : public ServiceTest {
 protected:
  Result<std::string> ask(TestClient& client, AdminRequest request) {
    request.request = 77;
    EXPECT_TRUE(client.connection->send(request));
    for (;;) {
      auto message = client.connection->receive(kPatienceMs);
      if (!message) return fail(message.error());
      if (auto* reply = std::get_if<AdminReply>(&*message)) return std::move(reply->outcome);
    }
  }
};

TEST_F(ServiceAdmin, WhatFailedIsForgottenForGood) {
  service_.reset();
  {
    const PendingTask task{Digest::of("g"), {Backend::kCpu, "x86-64-v3", "", 1, ""}};
    auto tasks = PendingTaskStore::open(dir_.path() / "data" / "flights.sqlite").value();
    tasks->put(task, "graph", nullptr);
    tasks->fail_for_good(task, {Code::kInternal, "no candidate survived", 0}, nullptr);
  }
  start();
  {
    TestClient client(endpoint());
    EXPECT_EQ(client.stats().detached_failed, 1);
    AdminRequest request;
    request.kind = AdminRequest::Kind::kForgetFailed;
    EXPECT_EQ(ask(client, request).value_or(""), "{\"forgotten\":1}");
    EXPECT_EQ(client.stats().detached_failed, 0);
  }
  EXPECT_EQ(log().find("flight key="), std::string::npos) << "nothing was tuned: " << log();
  service_.reset();
  start();
  EXPECT_EQ(TestClient(endpoint()).stats().detached_failed, 0);
}

TEST_F(ServiceAdmin, ActsAreInTheStoreWithWhatCameOfThemAndOutliveTheService) {
  AdminRequest pin;
  pin.kind = AdminRequest::Kind::kPin;
  pin.key = Digest::of("nothing");
  AdminRequest forget;
  forget.kind = AdminRequest::Kind::kForgetFailed;
  {
    TestClient client(endpoint());
    EXPECT_FALSE(ask(client, pin));
    EXPECT_TRUE(ask(client, forget));
  }
  service_.reset();
  auto index = CacheIndex::open_for_reading(dir_.path() / "data" / "index.sqlite").value();
  const auto acts = index.acts(INT64_MAX, 10).value();
  ASSERT_EQ(acts.size(), 2U);
  EXPECT_EQ(acts[0].request, "forget failed");
  EXPECT_TRUE(acts[0].done);
  EXPECT_EQ(acts[1].request, "pin " + pin.key->short_hex());
  EXPECT_FALSE(acts[1].done);
  EXPECT_NE(acts[1].outcome.find("no program"), std::string::npos) << acts[1].outcome;
}

}  // namespace
}  // namespace kiln
