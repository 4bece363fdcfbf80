// kiln-coordinator on PostgreSQL, as a process: what it stored is there for the next one, whose disk is
// empty; what is away is never taken for lost.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cache/objects/places.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/postgres_server.h"

namespace kiln {
namespace {

class PostgresCoordinator : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = testing::PostgresServer::start();
    if (!server && server.error().code == Code::kUnsupported)
      GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    url_ = server_->new_database();
  }
  // On a data directory of its own, empty.
  void start() {
    ++started_;
    start_again();
  }
  // On the last one's.
  void start_again() {
    const std::string n = std::to_string(started_);
    const Path out = dir_.path() / fmt::format("out{}", ++launched_);
    coordinator_ = testing::Child::start(
        {testing::binary("kiln-coordinator"), "--data-dir", dir_.path() / ("data" + n), "--store",
         url_, "--blobs", objects_.url(), "--listen", "tcp://127.0.0.1:0", "--http", "none"},
        out, dir_.path() / "err");
    constexpr std::string_view kReady = "ready ";
    const bool is_ready = eventually([&] { return read_file(out).value_or("").ends_with("\n"); });
    ASSERT_TRUE(is_ready) << (coordinator_.running()
                                  ? "it runs, and says: "
                                  : fmt::format("it ended with {}: ", coordinator_.exit_code()))
                          << read_file(dir_.path() / "err").value_or("");
    const std::string said = read_file(out).value();
    ASSERT_TRUE(said.starts_with(kReady)) << said;
    endpoint_ = said.substr(kReady.size(), said.size() - kReady.size() - 1);
  }
  void kill() {
    coordinator_.signal(SIGKILL);
    coordinator_.wait();
  }
  CompileReply tune(int constant) {
    const FakeWorker worker(endpoint_, tally_, FakeWorkerOptions{});
    return TestClient(endpoint_).compile(test_graph(constant));
  }
  // As `--check`: starts nothing.
  CompileReply check(int constant) {
    TestClient client(endpoint_);
    CompileRequest request = client.request_for(test_graph(constant));
    request.check_only = true;
    return client.compile(test_graph(constant), std::move(request));
  }

  const TempDir dir_ = *TempDir::create("kiln-postgres-coordinator");
  FolderPlace objects_;
  std::unique_ptr<testing::PostgresServer> server_;
  std::string url_, endpoint_;
  testing::Child coordinator_ = testing::Child::none();
  Tally tally_;
  int started_ = 0;   // directories
  int launched_ = 0;  // processes
};

TEST_F(PostgresCoordinator, WhatWasTunedIsAHitForTheNextCoordinatorWhoseDiskIsEmpty) {
  start();
  const CompileReply tuned = tune(3);
  ASSERT_TRUE(tuned.outcome) << tuned.outcome.error().message;
  EXPECT_EQ(*tuned.outcome, CacheOutcome::kTuned);
  const auto compiled = tally_.compiled();
  kill();
  start();
  TestClient client(endpoint_);
  const CompileReply hit = client.compile(test_graph(3));
  ASSERT_TRUE(hit.outcome) << hit.outcome.error().message;
  EXPECT_EQ(*hit.outcome, CacheOutcome::kHit);
  EXPECT_EQ(hit.program_json, tuned.program_json);
  const Program program = program_from_json(hit.program_json).value();
  std::vector<Digest> digests;
  for (const ProgramKernel& kernel : program.kernels) digests.push_back(kernel.blob);
  const auto fetched = client.fetch(digests);
  ASSERT_EQ(fetched.blobs.size(), digests.size());
  for (size_t i = 0; i < digests.size(); ++i) EXPECT_EQ(Digest::of(fetched.blobs[i]), digests[i]);
  EXPECT_EQ(tally_.compiled(), compiled) << "nothing is compiled again";
}

TEST_F(PostgresCoordinator, WhilePostgresIsAwayMemoryAnswersAndNothingIsAMiss) {
  start();
  for (const int constant : {3, 4}) ASSERT_TRUE(tune(constant).outcome);
  kill();
  start();
  ASSERT_TRUE(check(3).outcome) << "now in memory";
  server_->kill();
  EXPECT_EQ(check(3).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
  for (const int constant : {4, 5}) {
    const CompileReply away = check(constant);
    ASSERT_FALSE(away.outcome);
    EXPECT_EQ(away.outcome.error().code, Code::kUnavailable) << away.outcome.error().message;
  }
  server_->begin();
  EXPECT_TRUE(eventually([&] { return check(4).outcome.has_value(); }));
  EXPECT_EQ(check(5).outcome.error().code, Code::kNotFound);
}

TEST_F(PostgresCoordinator, WhileTheObjectsAreAwayNoProgramIsForgotten) {
  start();
  const CompileReply tuned = tune(3);
  ASSERT_TRUE(tuned.outcome) << tuned.outcome.error().message;
  const Digest blob = program_from_json(tuned.program_json).value().kernels.at(0).blob;
  kill();
  const Path folder = objects_.url(), away = Path(folder) += ".away";
  start();
  std::filesystem::rename(folder, away);
  TestClient client(endpoint_);
  EXPECT_EQ(client.fetch({blob}).missing, std::vector{blob});
  EXPECT_EQ(check(3).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
  std::filesystem::rename(away, folder);
  EXPECT_TRUE(eventually([&] { return client.fetch({blob}).blobs.size() == 1; }));
  EXPECT_EQ(check(3).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
}

TEST_F(PostgresCoordinator,
       WhatIsTunedWhileTheObjectsAreAwayOutlivesAKillAndGoesUpWhenTheyAreBack) {
  start();
  const Path folder = objects_.url(), away = Path(folder) += ".away";
  std::filesystem::rename(folder, away);
  const CompileReply tuned = tune(3);
  ASSERT_TRUE(tuned.outcome) << tuned.outcome.error().message;
  EXPECT_TRUE(tuned.memory_only);
  const auto compiled = tally_.compiled();
  kill();
  std::filesystem::rename(away, folder);
  start_again();
  EXPECT_EQ(check(3).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
  EXPECT_TRUE(
      eventually([&] { return server_->ask(url_, "SELECT count(*) FROM kiln.programs") == "1"; }));
  kill();
  start();
  TestClient client(endpoint_);
  const CompileReply hit = client.compile(test_graph(3));
  ASSERT_TRUE(hit.outcome) << hit.outcome.error().message;
  EXPECT_EQ(*hit.outcome, CacheOutcome::kHit);
  EXPECT_EQ(hit.program_json, tuned.program_json);
  EXPECT_FALSE(hit.memory_only);
  const Digest blob = program_from_json(hit.program_json).value().kernels.at(0).blob;
  EXPECT_EQ(client.fetch({blob}).blobs.size(), 1u);
  EXPECT_EQ(tally_.compiled(), compiled) << "nothing is compiled again";
}

// Paused for longer than its term lasts, it comes back to a store that another one writes.
TEST_F(PostgresCoordinator, AStandbyTakesOverAndWhomItReplacedEnds) {
  start();
  ASSERT_TRUE(tune(3).outcome);
  testing::Child first = std::move(coordinator_);
  const Path out = dir_.path() / "standby";
  const testing::Child standby = testing::Child::start(
      {testing::binary("kiln-coordinator"), "--data-dir", dir_.path() / "standby data", "--store",
       url_, "--blobs", objects_.url(), "--listen", "tcp://127.0.0.1:0", "--http", "none",
       "--standby"},
      out, dir_.path() / "standby.err");
  ASSERT_TRUE(eventually([&] {
    return read_file(dir_.path() / "standby.err").value_or("").find("stands by: another") !=
           std::string::npos;
  }));
  EXPECT_EQ(read_file(out).value(), "");
  first.signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return read_file(out).value_or("").ends_with("\n"); }));
  const std::string said = read_file(out).value();
  endpoint_ = said.substr(6, said.size() - 7);
  EXPECT_EQ(check(3).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
  EXPECT_TRUE(tune(4).outcome);
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait(), 3);
  EXPECT_EQ(check(4).outcome.value_or(CacheOutcome::kTuned), CacheOutcome::kHit);
}

TEST_F(PostgresCoordinator, AStandbyStopsWhenItIsAsked) {
  start();
  testing::Child standby = testing::Child::start(
      {testing::binary("kiln-coordinator"), "--data-dir", dir_.path() / "standby data", "--store",
       url_, "--blobs", objects_.url(), "--listen", "tcp://127.0.0.1:0", "--http", "none",
       "--standby"},
      dir_.path() / "standby", dir_.path() / "standby.err");
  ASSERT_TRUE(eventually([&] {
    return read_file(dir_.path() / "standby.err").value_or("").find("stands by: another") !=
           std::string::npos;
  }));
  standby.signal(SIGTERM);
  EXPECT_EQ(standby.wait(), 0);
}

TEST_F(PostgresCoordinator, ASecondCoordinatorOnTheStoreSaysWhoWritesIt) {
  start();
  const testing::Finished second = testing::run(
      {testing::binary("kiln-coordinator"), "--data-dir", dir_.path() / "second", "--store", url_,
       "--blobs", objects_.url(), "--listen", "tcp://127.0.0.1:0", "--http", "none"});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_NE(second.err.find("another coordinator"), std::string::npos) << second.err;
}

}  // namespace
}  // namespace kiln
