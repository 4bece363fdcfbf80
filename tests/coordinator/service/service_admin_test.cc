// What operators ask of a service while it serves.
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
      auto message = client.connection->receive(5'000);
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

}  // namespace
}  // namespace kiln
