// Targets that name no device: what they mean is settled once, before anything is looked up.
#include <algorithm>

#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

const Target kH200{Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
const Target kH100{Backend::kCuda, "sm_90a", "NVIDIA H100", 114, "cuda-13"};

class ServiceTargets : public ServiceTest {
 protected:
  ServiceTargets() {
    service_.reset();
    ServiceOptions options;
    options.status = status_;
    start(std::move(options));
  }
  FakeWorkerOptions gpu_worker(const std::string& name, const Target& target) const {
    FakeWorkerOptions options = worker_named(name);
    options.target = target;
    return options;
  }
  // From a machine without a GPU.
  static CompileRequest named(TestClient& client) {
    CompileRequest request = client.request_for(test_graph(3));
    request.target = {Backend::kCuda, "sm_90a", "", 0, ""};
    return request;
  }
  // Flights of the log that ended so, as far as `parts` says.
  int lines_with(const std::vector<std::string>& parts) {
    std::istringstream lines(log());
    int count = 0;
    for (std::string line; std::getline(lines, line);)
      count += std::ranges::all_of(
          parts, [&](const std::string& part) { return line.find(part) != std::string::npos; });
    return count;
  }
  static std::string key_for(const Target& target) {
    return "key=" + program_key(test_graph(3).digest, target, Mode::kMaxAutotune).short_hex();
  }

  const std::shared_ptr<ServiceStatus> status_ = std::make_shared<ServiceStatus>();
};

TEST_F(ServiceTargets, ATaskOfATargetWithoutADeviceIsLoggedUnderItsProgramsKey) {
  const FakeWorker worker(endpoint(), tally_, gpu_worker("w", kH200));
  TestClient client(endpoint());
  const CompileReply reply = client.compile(test_graph(3), named(client));
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  const std::string key = key_for(kH200);
  EXPECT_TRUE(eventually([&] { return lines_with({"flight ", key, "kernels=1"}) == 1; })) << log();
}

TEST_F(ServiceTargets, AQueuedTaskOfATargetWithoutADeviceHasItsEndInTheLog) {
  const FakeWorker worker(endpoint(), tally_, gpu_worker("w", kH200));
  TestClient client(endpoint());
  CompileRequest request = named(client);
  request.detach = true;
  const CompileReply reply = client.compile(test_graph(3), request);
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  EXPECT_EQ(*reply.outcome, CacheOutcome::kQueued);
  EXPECT_TRUE(eventually([&] {
    return lines_with({"outcome=tuned", "requests=1", "clients=1", "kernels=1"}) == 1;
  })) << log();
}

TEST_F(ServiceTargets, ATargetWithoutADeviceIsAnsweredFromMemory) {
  const FakeWorker worker(endpoint(), tally_, gpu_worker("w", kH200));
  TestClient client(endpoint());
  ASSERT_TRUE(client.compile(test_graph(3), named(client)).outcome.has_value());
  constexpr int kHits = 3;  // the first is found in the index
  for (int i = 0; i < kHits; ++i)
    EXPECT_EQ(client.compile(test_graph(3), named(client)).outcome, CacheOutcome::kHit);
  EXPECT_TRUE(eventually([&] { return status_->latest()->loop.from_memory.count() == kHits - 1; }))
      << status_->latest()->loop.from_memory.count();
}

TEST_F(ServiceTargets, WhatSuchATargetMeansIsNotRememberedWhenTheWorkersChange) {
  const FakeWorker h200(endpoint(), tally_, gpu_worker("w", kH200));
  TestClient client(endpoint());
  ASSERT_TRUE(client.compile(test_graph(3), named(client)).outcome.has_value());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(program_of(client.compile(test_graph(3), named(client))).target, kH200);
  const FakeWorker h100(endpoint(), tally_, gpu_worker("a", kH100));  // the first by name decides
  EXPECT_EQ(program_of(client.compile(test_graph(3), named(client))).target, kH100);
}

}  // namespace
}  // namespace kiln
