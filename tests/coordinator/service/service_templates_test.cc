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
  bool is_hit(const NormalForm& graph) {
    TestClient client(endpoint());
    CompileRequest request = client.request_for(graph);
    request.check_only = true;
    const CompileReply reply = client.compile(graph, request);
    return reply.outcome.has_value() && *reply.outcome == CacheOutcome::kHit;
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

  const size_t compiles_before = compiles();
  const Program rows_now = compiled(rows, now);
  EXPECT_EQ(compiles(), compiles_before) << "its winner is as good as it was";
  EXPECT_EQ(rows_now.kernels, rows_before.kernels);
  EXPECT_EQ(rows_now.key, rows_before.key);
  EXPECT_EQ(rows_now.template_stamp, template_stamp(now));

  const Program scaled_now = compiled(scaled, now);
  EXPECT_GT(compiles(), compiles_before) << "tuned again";
  EXPECT_EQ(scaled_now.kernels.at(0).key, scaled_before.kernels.at(0).key);
  EXPECT_EQ(changes(scaled_before.kernels.at(0).templates, scaled_now.kernels.at(0).templates),
            "cpu.pointwise " + std::to_string(find_version(before, "cpu.pointwise")) + " -> " +
                std::to_string(find_version(now, "cpu.pointwise")));
  for (const NormalForm* graph : {&scaled, &rows}) {
    EXPECT_TRUE(is_hit(*graph));
    EXPECT_TRUE(is_hit(*graph)) << "from memory";
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
  EXPECT_EQ(client.uploads, 1);
  EXPECT_EQ(program_of(reply).kernels, before.kernels);
  EXPECT_TRUE(is_hit(rows_graph()));
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
  EXPECT_NE(reply.outcome.error().message.find("no worker has cpu.pointwise 1"), std::string::npos)
      << reply.outcome.error().message;
}

}  // namespace
}  // namespace kiln
