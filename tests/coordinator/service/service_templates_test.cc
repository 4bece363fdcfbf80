// Kernel templates change between two builds: what a coordinator with the cache of the build before
// tunes again, what it reuses, and how it works with workers of another build.
#include "compiler_core/kernels/registry.h"
#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

TemplateVersions raised(std::string_view name) {
  TemplateVersions versions = template_versions();
  for (TemplateVersion& each : versions)
    if (each.name == name) ++each.version;
  return versions;
}

// The greatest of each row; covered by another template than test_graph().
NormalForm rows_graph() {
  const auto graph = parse_graph(
      "kiln.graph 1\n%0 = input 0 : f32[64,16]\n%1 = reduce_max %0 axes=[1] : f32[64]\n"
      "return %1\n");
  return normalise(*graph).value();
}

class ServiceTemplatesTest : public ServiceTest {
 protected:
  // The coordinator of another build on the same cache.
  void restart(const TemplateVersions& templates) {
    service_.reset();
    ServiceOptions options;
    options.core.templates = templates;
    start(std::move(options));
  }
  Program compiled(const NormalForm& graph, const TemplateVersions& templates) {
    FakeWorkerOptions options;
    options.templates = templates;
    const FakeWorker worker(endpoint(), tally_, options);
    TestClient client(endpoint());
    reply_ = client.compile(graph);
    EXPECT_TRUE(reply_.outcome.has_value()) << reply_.outcome.error().message;
    return program_of(reply_);
  }
  size_t compiles() const {
    size_t count = 0;
    for (const auto& [candidate, times] : tally_.compiled()) count += static_cast<size_t>(times);
    return count;
  }
  // Without a worker and without the graph.
  CompileReply look_up(const NormalForm& graph, bool strict) {
    TestClient client(endpoint());
    CompileRequest request = client.request_for(graph);
    request.check_only = true;
    request.strict = strict;
    return client.compile(graph, request);
  }
  bool is_hit(const NormalForm& graph) {
    const CompileReply reply = look_up(graph, true);
    EXPECT_FALSE(reply.stale);
    return reply.outcome.has_value() && *reply.outcome == CacheOutcome::kHit;
  }
  bool is_stale(const NormalForm& graph) {
    const CompileReply reply = look_up(graph, false);
    return reply.outcome.has_value() && reply.stale;
  }
  // Waits for the successor of a stale program.
  Program compiled_strictly(const NormalForm& graph, const TemplateVersions& templates) {
    FakeWorkerOptions options;
    options.templates = templates;
    const FakeWorker worker(endpoint(), tally_, options);
    TestClient client(endpoint());
    CompileRequest request = client.request_for(graph);
    request.strict = true;
    reply_ = client.compile(graph, request);
    EXPECT_TRUE(reply_.outcome.has_value()) << reply_.outcome.error().message;
    EXPECT_FALSE(reply_.stale);
    return program_of(reply_);
  }

  CompileReply reply_;
};

TEST_F(ServiceTemplatesTest, AChangedTemplateMakesTheWinnersItCoversStaleAndNoOthers) {
  const TemplateVersions before = template_versions(), now = raised("cpu.pointwise");
  const NormalForm scaled = test_graph(3), rows = rows_graph();
  const Program scaled_before = compiled(scaled, before), rows_before = compiled(rows, before);
  restart(now);
  EXPECT_FALSE(is_hit(scaled));
  EXPECT_FALSE(is_hit(rows)) << "planned with other templates: planned again";
  EXPECT_TRUE(is_stale(scaled));
  EXPECT_TRUE(is_stale(rows));

  const size_t compiles_before = compiles();
  const Program rows_now = compiled_strictly(rows, now);
  EXPECT_EQ(compiles(), compiles_before) << "its winner is as good as it was";
  EXPECT_EQ(rows_now.kernels, rows_before.kernels);
  EXPECT_EQ(rows_now.key, rows_before.key);
  EXPECT_EQ(rows_now.template_stamp, template_stamp(now));

  const Program scaled_now = compiled_strictly(scaled, now);
  EXPECT_GT(compiles(), compiles_before) << "tuned again";
  EXPECT_EQ(scaled_now.kernels.at(0).key, scaled_before.kernels.at(0).key);
  EXPECT_EQ(changes(scaled_before.kernels.at(0).templates, scaled_now.kernels.at(0).templates),
            "cpu.pointwise " + std::to_string(find_version(before, "cpu.pointwise")) + " -> " +
                std::to_string(find_version(now, "cpu.pointwise")));
  for (const NormalForm* graph : {&scaled, &rows}) {
    EXPECT_TRUE(is_hit(*graph));
    EXPECT_TRUE(is_hit(*graph)) << "from memory";
    EXPECT_FALSE(is_stale(*graph));
  }
}

TEST_F(ServiceTemplatesTest, TheSameTemplatesMakeNothingStale) {
  compiled(test_graph(3), template_versions());
  restart(template_versions());
  EXPECT_TRUE(is_hit(test_graph(3)));
}

// No worker is there: what is good needs none.
TEST_F(ServiceTemplatesTest, AStaleProgramOfGoodWinnersIsPlannedAgainWithoutAWorker) {
  const Program before = compiled(rows_graph(), template_versions());
  restart(raised("cpu.sort"));
  TestClient client(endpoint());
  const CompileReply reply = client.compile(rows_graph());
  ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
  EXPECT_TRUE(reply.stale);
  EXPECT_EQ(client.uploads, 1);
  EXPECT_EQ(program_of(reply).kernels, before.kernels);
  while (!is_hit(rows_graph())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Nobody waits: the old program is served, and the new one is there soon.
TEST_F(ServiceTemplatesTest, AStaleProgramIsServedUntilItsSuccessorTakesItsPlace) {
  const NormalForm graph = test_graph(3);
  const Program before = compiled(graph, template_versions());
  const TemplateVersions now = raised("cpu.pointwise");
  restart(now);
  TestClient client(endpoint());
  reply_ = client.compile(graph);
  ASSERT_TRUE(reply_.outcome.has_value()) << reply_.outcome.error().message;
  EXPECT_EQ(*reply_.outcome, CacheOutcome::kHit);
  EXPECT_TRUE(reply_.stale);
  EXPECT_EQ(program_of(reply_).kernels, before.kernels);
  while (client.stats().programs_stale != 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));

  FakeWorkerOptions options;
  options.templates = now;
  const FakeWorker worker(endpoint(), tally_, options);
  do {
    reply_ = client.compile(graph);
    ASSERT_TRUE(reply_.outcome.has_value()) << reply_.outcome.error().message;
  } while (reply_.stale);
  EXPECT_EQ(program_of(reply_).template_stamp, template_stamp(now));
  while (client.stats().programs_stale != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

TEST_F(ServiceTemplatesTest, AWorkerOfAnotherBuildDoesWhatItCan) {
  const TemplateVersions theirs = raised("cpu.row_reduction");
  const Program program = compiled(test_graph(3), theirs);
  EXPECT_EQ(program.kernels.at(0).templates,
            (TemplateVersions{{"cpu.pointwise", find_version(theirs, "cpu.pointwise")}}));
  EXPECT_FALSE(reply_.memory_only);
  EXPECT_NE(log().find("templates=\"cpu.row_reduction 2 -> 1\""), std::string::npos) << log();
}

TEST_F(ServiceTemplatesTest, WhatNoWorkerCanMakeFailsByName) {
  service_.reset();
  ServiceOptions options;
  options.core.worker_grace_ms = 300;
  start(std::move(options));
  FakeWorkerOptions other;
  other.templates = raised("cpu.pointwise");
  const FakeWorker worker(endpoint(), tally_, other);
  TestClient client(endpoint());
  const CompileReply reply = client.compile(test_graph(3));
  ASSERT_FALSE(reply.outcome.has_value());
  EXPECT_EQ(reply.outcome.error().code, Code::kUnavailable);
  const std::string wanted = "no worker has cpu.pointwise " +
                             std::to_string(find_version(template_versions(), "cpu.pointwise"));
  EXPECT_NE(reply.outcome.error().message.find(wanted), std::string::npos)
      << reply.outcome.error().message;
}

}  // namespace
}  // namespace kiln
