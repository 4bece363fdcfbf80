// A worker that builds other bytes than the source gives, among honest ones of the same key: a sample
// finds it, and what it made before is gone from service.
#include <algorithm>

#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

constexpr int kSampleOneIn = 10;
constexpr int kGoneWithinSeconds = 60;

class ServiceSampling : public ServiceTest {
 protected:
  static std::string builder_of(const CompileReply& reply) {
    return program_of(reply).kernels.at(0).provenance.built.worker;
  }
  bool is_cached(TestClient& client, int constant) {
    CompileRequest request = client.request_for(test_graph(constant), Mode::kDefault);
    request.check_only = true;
    return client.compile(test_graph(constant), request).outcome.has_value();
  }
};

TEST_F(ServiceSampling, WhatALiarMadeIsGoneOnceASampleShowsIt) {
  service_.reset();
  ServiceOptions options;
  options.core.sample_one_in = kSampleOneIn;
  start(std::move(options));
  FakeWorkerOptions evil = worker_named("a-liar");  // the first that gets work
  evil.binary_of = "malware for ";
  FakeWorker liar(endpoint(), tally_, evil), honest(endpoint(), tally_, worker_named("b")),
      other(endpoint(), tally_, worker_named("c"));
  TestClient client(endpoint());
  std::vector<int> made;
  for (int constant = 2; constant <= 20 * kSampleOneIn; ++constant) {  // times 1 is no kernel
    const NormalForm graph = test_graph(constant);
    const CompileReply reply = client.compile_with_retries(graph, Mode::kDefault);
    if (log().find("state=distrusted") != std::string::npos) break;
    ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
    if (builder_of(reply) == "a-liar") made.push_back(constant);
  }
  EXPECT_NE(log().find("worker name=a-liar"), std::string::npos);
  ASSERT_NE(log().find("state=distrusted"), std::string::npos) << log();
  EXPECT_FALSE(made.empty()) << "it was believed before";
  EXPECT_LE(made.size(), static_cast<size_t>(kSampleOneIn));
  const auto none_is_left = [&] {
    return std::ranges::none_of(made, [&](int each) { return is_cached(client, each); });
  };
  EXPECT_TRUE(eventually(none_is_left, kGoneWithinSeconds));
  for (const int each : made) {
    const CompileReply again = client.compile_with_retries(test_graph(each), Mode::kDefault);
    ASSERT_TRUE(again.outcome.has_value()) << again.outcome.error().message;
    EXPECT_NE(builder_of(again), "a-liar");
  }
}

}  // namespace
}  // namespace kiln
