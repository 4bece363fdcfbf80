#include "coordinator/service/service.h"

#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

TEST_F(ServiceTest, TunesAProgramAndServesItsBlobs) {
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  const CompileReply reply = client.compile(test_graph(3));
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  EXPECT_EQ(*reply.outcome, CacheOutcome::kTuned);
  EXPECT_EQ(client.uploads, 1);
  const Program program = program_of(reply);
  ASSERT_EQ(program.kernels.size(), 1u);
  EXPECT_EQ(program.graph, test_graph(3).digest);
  EXPECT_EQ(program.launches.size(), 1u);
  const auto blobs = client.fetch(blobs_of(program));
  ASSERT_EQ(blobs.blobs.size(), 1u);
  EXPECT_EQ(Digest::of(blobs.blobs[0]), program.kernels[0].blob);
  EXPECT_TRUE(blobs.blobs[0].starts_with("binary of " + program.kernels[0].key.hex() + " 1"))
      << "the second schedule is the fastest";
}

TEST_F(ServiceTest, TheSecondAskIsAHitWithoutAnUpload) {
  const FakeWorker worker(endpoint(), tally_);
  const CompileReply first = TestClient(endpoint()).compile(test_graph(3));
  TestClient client(endpoint());
  for (int i = 0; i < 3; ++i) {
    const CompileReply again = client.compile(test_graph(3));
    ASSERT_TRUE(again.outcome.has_value());
    EXPECT_EQ(*again.outcome, CacheOutcome::kHit);
    EXPECT_EQ(again.program_json, first.program_json);
  }
  EXPECT_EQ(client.uploads, 0);
  EXPECT_EQ(client.stats().hits, 3);
  EXPECT_EQ(client.stats().misses, 1);
}

TEST_F(ServiceTest, FiftyClientsOfOneNewProgramCompileEachCandidateOnce) {
  std::atomic<bool> go = false;
  FakeWorkerOptions a = worker_named("a"), b = worker_named("b");
  a.go = b.go = &go;
  const FakeWorker worker_a(endpoint(), tally_, a), worker_b(endpoint(), tally_, b);
  std::vector<CompileReply> replies(50);
  std::atomic<int> uploads = 0;
  std::vector<std::thread> clients;
  for (CompileReply& reply : replies) {
    clients.emplace_back([&] {
      TestClient client(endpoint());
      reply = client.compile(test_graph(3));
      uploads += client.uploads;
    });
  }
  TestClient observer(endpoint());
  EXPECT_TRUE(eventually([&] { return observer.stats().joined == 49; }));
  go = true;
  for (std::thread& client : clients) client.join();

  int tuned = 0, joined = 0;
  for (const CompileReply& reply : replies) {
    ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
    tuned += *reply.outcome == CacheOutcome::kTuned;
    joined += *reply.outcome == CacheOutcome::kJoined;
    EXPECT_EQ(reply.program_json, replies[0].program_json);
  }
  EXPECT_EQ(tuned, 1);
  EXPECT_EQ(joined, 49);
  EXPECT_EQ(uploads, 1);
  const auto compiled = tally_.compiled();
  for (const auto& [candidate, times] : compiled) EXPECT_EQ(times, 1) << candidate.second;
  const Stats stats = observer.stats();
  EXPECT_GT(stats.candidates_compiled, 1);
  EXPECT_EQ(stats.candidates_compiled, static_cast<int64_t>(compiled.size()));
  EXPECT_EQ(stats.candidates_measured, stats.candidates_compiled);
  EXPECT_EQ(stats.flights_open, 0);
  EXPECT_EQ(stats.workers.size(), 2u);
  EXPECT_TRUE(eventually([&] { return log().find("clients=50") != std::string::npos; })) << log();
}

TEST_F(ServiceTest, ARestartOnTheSameDirectoryHits) {
  CompileReply first;
  {
    const FakeWorker worker(endpoint(), tally_);
    first = TestClient(endpoint()).compile(test_graph(3));
  }
  service_.reset();
  start();
  TestClient client(endpoint());
  const CompileReply again = client.compile(test_graph(3));
  ASSERT_TRUE(again.outcome.has_value()) << again.outcome.error().message;
  EXPECT_EQ(*again.outcome, CacheOutcome::kHit);
  EXPECT_EQ(again.program_json, first.program_json);
  EXPECT_EQ(client.fetch(blobs_of(program_of(again))).blobs.size(), 1u);
  EXPECT_GT(client.stats().entries, 1);
  EXPECT_GT(client.stats().bytes, 0);
}

TEST_F(ServiceTest, ASecondServiceOnOneDirectoryIsRefused) {
  ServiceOptions options;
  options.data_dir = dir_.path() / "data";
  const auto second = Service::start(std::move(options));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST_F(ServiceTest, ACheckThatMissesStartsNothing) {
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  CompileRequest request = client.request_for(test_graph(3));
  request.check_only = true;
  const CompileReply reply = client.compile(test_graph(3), request);
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kNotFound);
  EXPECT_EQ(client.uploads, 0);
  EXPECT_EQ(client.stats().flights_open, 0);
  EXPECT_TRUE(tally_.compiled().empty());
}

TEST_F(ServiceTest, AGraphThatNoKernelCoversIsUnsupported) {
  const FakeWorker worker(endpoint(), tally_);
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : f8e4m3[8,16]\n%1 = input 1 : f8e4m3[16,8]\n"
      "%2 = matmul %0 %1 : f32[8,8]\nreturn %2\n");
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto form = normalise(*graph);
  ASSERT_TRUE(form.has_value()) << form.error().message;
  const CompileReply reply = TestClient(endpoint()).compile(*form);
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kUnsupported);
  EXPECT_NE(reply.outcome.error().message.find("matmul f32"), std::string::npos)
      << reply.outcome.error().message;
}

TEST_F(ServiceTest, ATargetNobodyHasFailsAtOnceAndNamesThoseThereAre) {
  service_.reset();
  ServiceOptions options;
  options.core.fleet_returns_ms = 1'000;
  start(std::move(options));
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  EXPECT_TRUE(eventually([&] { return client.stats().workers.size() == 1; }));
  EXPECT_TRUE(eventually([&] { return client.stats().uptime_s > 1.1; })) << "it is young no more";
  CompileRequest request = client.request_for(test_graph(3));
  request.target = {Backend::kCuda, "sm_90a", "", 0, {}};
  const CompileReply reply = client.compile(test_graph(3), request);
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kUnavailable);
  EXPECT_NE(reply.outcome.error().message.find("cpu:x86-64-v3"), std::string::npos)
      << reply.outcome.error().message;
}

TEST_F(ServiceTest, AWorkerThatDiesMidLeaseIsReplacedByAnother) {
  FakeWorkerOptions doomed = worker_named("doomed");
  doomed.vanish_with_a_lease = true;
  const FakeWorker first(endpoint(), tally_, doomed);
  CompileReply reply;
  std::thread client([&] { reply = TestClient(endpoint()).compile(test_graph(3)); });
  EXPECT_TRUE(eventually([&] { return first.vanished(); }));
  const FakeWorker second(endpoint(), tally_, worker_named("second"));
  client.join();
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  EXPECT_EQ(*reply.outcome, CacheOutcome::kTuned);
  for (const auto& [candidate, times] : tally_.compiled()) EXPECT_EQ(times, 1);
  TestClient observer(endpoint());
  ASSERT_EQ(observer.stats().workers.size(), 1u);
  EXPECT_EQ(observer.stats().workers[0].name, "second");
}

TEST_F(ServiceTest, AClientThatWaitsHearsOfProgress) {
  std::atomic<bool> go = false;
  FakeWorkerOptions slow = worker_named("slow");
  slow.go = &go;
  const FakeWorker worker(endpoint(), tally_, slow);
  TestClient client(endpoint());
  std::thread later([&] {
    TestClient observer(endpoint());
    EXPECT_TRUE(eventually([&] { return observer.stats().flights_open == 1; }));
    EXPECT_TRUE(eventually([&] { return client.progress > 0; }));
    go = true;
  });
  EXPECT_TRUE(client.compile(test_graph(3)).outcome.has_value());
  later.join();
}

TEST_F(ServiceTest, ATaskThatEveryClientLeftIsAbandoned) {
  std::atomic<bool> go = false;
  FakeWorkerOptions stuck = worker_named("stuck");
  stuck.go = &go;
  const FakeWorker worker(endpoint(), tally_, stuck);
  TestClient observer(endpoint());
  TestClient cancels(endpoint());
  CompileRequest request = cancels.request_for(test_graph(3));
  request.graph_text = print(test_graph(3).graph);
  {
    TestClient vanishes(endpoint());
    EXPECT_TRUE(vanishes.connection->send(request));
    EXPECT_TRUE(cancels.connection->send(request));
    EXPECT_TRUE(eventually([&] { return observer.stats().joined == 1; }));
    EXPECT_EQ(observer.stats().flights_open, 1);
  }
  EXPECT_TRUE(cancels.connection->send(Cancel{request.request}));
  EXPECT_TRUE(eventually([&] { return observer.stats().flights_open == 0; }));
  go = true;
}

// ---- The graph and its digest ----

TEST_F(ServiceTest, AMissAsksForTheGraphAndWaits) {
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  CompileRequest request = client.request_for(test_graph(3));
  ASSERT_TRUE(client.connection->send(request));
  const auto message = client.connection->receive(kPatienceMs);
  ASSERT_TRUE(message.has_value());
  ASSERT_NE(std::get_if<NeedGraph>(&*message), nullptr);
  EXPECT_EQ(std::get<NeedGraph>(*message).request, request.request);
  request.graph_text = print(test_graph(3).graph);
  EXPECT_TRUE(client.compile(test_graph(3), request).outcome.has_value());
}

TEST_F(ServiceTest, AGraphUnderAnothersDigestIsRefusedAndPoisonsNothing) {
  const FakeWorker worker(endpoint(), tally_);
  TestClient liar(endpoint());
  CompileRequest lie = liar.request_for(test_graph(3));
  lie.graph_text = print(test_graph(4).graph);
  const CompileReply refused = liar.compile(test_graph(4), lie);
  ASSERT_FALSE(refused.outcome.has_value());
  EXPECT_EQ(refused.outcome.error().code, Code::kInvalidArgument);
  const CompileReply honest = TestClient(endpoint()).compile(test_graph(3));
  ASSERT_TRUE(honest.outcome.has_value());
  EXPECT_EQ(*honest.outcome, CacheOutcome::kTuned);
}

TEST_F(ServiceTest, TextThatIsNoGraphIsInvalidArgument) {
  const FakeWorker worker(endpoint(), tally_);
  for (const char* text : {"hello", "kiln.graph 1\n%0 = mul %0 %0 : f32[2]\nreturn %0\n"}) {
    TestClient client(endpoint());
    CompileRequest request = client.request_for(test_graph(3));
    request.graph_text = text;
    const CompileReply reply = client.compile(test_graph(3), request);
    ASSERT_FALSE(reply.outcome.has_value());
    EXPECT_EQ(reply.outcome.error().code, Code::kInvalidArgument);
  }
}

TEST_F(ServiceTest, TooManyBytesOfGraphsAreOverloadedAndNotForever) {
  service_.reset();
  ServiceOptions options;
  options.graph_bytes = 10;
  start(std::move(options));
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  const CompileReply reply = client.compile(test_graph(3));
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kOverloaded);
  EXPECT_GT(reply.outcome.error().retry_after_ms, 0);
  EXPECT_EQ(client.uploads, 1);
  EXPECT_EQ(client.stats().flights_open, 0);
  service_.reset();
  start();
  const FakeWorker other(endpoint(), tally_);
  EXPECT_TRUE(TestClient(endpoint()).compile(test_graph(3)).outcome.has_value());
}

TEST_F(ServiceTest, BytesOfGraphsThatWerePlannedMakeRoomForOthers) {
  service_.reset();
  ServiceOptions options;
  options.graph_bytes = print(test_graph(3).graph).size() * 3 / 2;
  start(std::move(options));
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  for (int constant = 3; constant < 7; ++constant) {
    const CompileReply reply = client.compile(test_graph(constant));
    EXPECT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  }
}

}  // namespace
}  // namespace kiln
