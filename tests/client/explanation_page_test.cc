// `kiln explain --html`: one page with everything that the explanation has, hostile names or not.
#include <gtest/gtest.h>

#include "client/cli/explain/explanation.h"
#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/page/html.h"

namespace kiln::cli {
namespace {

const Target kPageTarget = {Backend::kCpu, "x86-64-v4", "", 2, ""};
const DevicePeak kPagePeak = {10, 100, 100, 100, "a made-up machine"};

ExportedProgram read(const std::string& name) {
  auto program = read_graph_file(Path(KILN_GRAPHS_DIR) / "small" / (name + ".pt2"));
  EXPECT_TRUE(program.has_value()) << program.error().message;
  return *std::move(program);
}

Explanation explained_page(const ExportedProgram& program, std::span<const Program> tuned = {}) {
  auto explanation = explain(program, kPageTarget, Mode::kMaxAutotune, tuned, kPagePeak);
  EXPECT_TRUE(explanation.has_value()) << explanation.error().message;
  return *std::move(explanation);
}

bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

TEST(ExplanationPage, HasKernelsSourcesBuffersCutsAndCandidates) {
  const Explanation all = explained_page(read("linear_ln_gelu"));
  const std::string page = explanation_page("models/linear.pt2", all);
  for (const char* text :
       {"<h1>linear.pt2</h1>", "models/linear.pt2", "layer_norm, gelu", "model.py:96 in forward",
        "a reduction reads the matmul&#39;s result", "l.weight f32[96,32]", "Roofline bound",
        "Ways to divide the graph", "Generated source", "a made-up machine", "temporary"})
    EXPECT_TRUE(has(page, text)) << text;
  EXPECT_TRUE(has(page, all.graph.hex()));
  for (const ExplainedKernel& kernel : all.kernels) {
    EXPECT_TRUE(has(page, kernel.workload.digest.hex()));
    const auto space = *search_space(kernel.workload, kPageTarget, Libraries::kTake);
    for (const Schedule& schedule : space) EXPECT_TRUE(has(page, schedule.to_string()));
  }
  EXPECT_TRUE(has(page, "<span class=\"k\">extern</span>")) << "the source's words are told apart";
}

TEST(ExplanationPage, LinksLeadToPartsOfIt) {
  const std::string page = explanation_page("f.pt2", explained_page(read("linear_ln_gelu")));
  size_t links = 0;
  for (size_t at = page.find("href=\""); at != std::string::npos; at = page.find("href=\"", at)) {
    at += 6;
    const std::string to = page.substr(at, page.find('"', at) - at);
    ASSERT_TRUE(to.starts_with("#")) << to;
    EXPECT_TRUE(has(page, "id=\"" + to.substr(1) + "\"")) << to;
    ++links;
  }
  EXPECT_GE(links, 4u);
}

TEST(ExplanationPage, ATunedProgramsMeasurementsAreShown) {
  const ExportedProgram softmax = read("softmax");
  const Explanation first = explained_page(softmax);
  Program tuned;
  tuned.graph = first.graph;
  ProgramKernel& kernel = tuned.kernels.emplace_back();
  kernel.workload = first.kernels[0].workload.digest;
  kernel.schedule = first.kernels[0].schedule;
  kernel.report = {
      .candidates = 31, .measured = 17, .rejected = 3, .best_us = 12.5, .first_us = 25.25};
  const std::string page = explanation_page("f.pt2", explained_page(softmax, {&tuned, 1}));
  EXPECT_TRUE(has(page, "12.5 us"));
  EXPECT_TRUE(has(page, "31 candidates, 17 measured, 3 rejected; the first guess took 25.2 us"));
  EXPECT_FALSE(has(explanation_page("f.pt2", first), "rejected;"));
  const double floor_us = first.launches[0].floor_us;
  tuned.kernels[0].report.best_us = 4 * floor_us;
  EXPECT_TRUE(has(explanation_page("f.pt2", explained_page(softmax, {&tuned, 1})), "25 %"));
  tuned.kernels[0].report.best_us = floor_us / 2;
  const std::string cached = explanation_page("f.pt2", explained_page(softmax, {&tuned, 1}));
  EXPECT_TRUE(has(cached, "in caches")) << "nothing is faster than a bound";
  EXPECT_FALSE(has(cached, "100 %"));
}

TEST(ExplanationPage, NamesFromOutsideAreText) {
  const std::string hostile = "</style><script>alert(1)</script>\u202e\"'\x01";
  Explanation all = explained_page(read("linear_ln_gelu"));
  all.cache = all.peak.source = all.alternative_reason = all.target.device_model = hostile;
  for (auto& each : all.alternatives) each.name = hostile;
  for (auto& each : all.buffers) each.value = hostile;
  for (ExplainedLaunch& launch : all.launches) {
    launch.fused_ops = launch.sources = launch.modules = launch.inputs = launch.outputs = {hostile};
    launch.stored = {{hostile, {0}, hostile}};
  }
  for (ExplainedKernel& kernel : all.kernels) kernel.schedule = hostile;
  const std::string page = explanation_page(hostile, all);
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "\u202e"));
  EXPECT_EQ(page.find("</style>"), page.rfind("</style>"));
  EXPECT_TRUE(has(page, page::escape(hostile)));
}

TEST(Explanation, BuffersSayWhoWritesAndReadsThem) {
  const Explanation all = explained_page(read("linear_ln_gelu"));
  int temporaries = 0, outputs = 0;
  for (const ExplainedBuffer& buffer : all.buffers) {
    EXPECT_GT(buffer.bytes, 0);
    if (buffer.kind == Buffer::Kind::kInput) {
      EXPECT_TRUE(buffer.writers.empty()) << buffer.value;
    }
    if (buffer.kind == Buffer::Kind::kOutput) {
      EXPECT_EQ(buffer.writers, std::vector<int>{1});
      ++outputs;
    }
    if (buffer.kind != Buffer::Kind::kTemporary) continue;
    ++temporaries;
    EXPECT_EQ(buffer.value, "f32[24,96]");
    EXPECT_EQ(buffer.writers, std::vector<int>{0});
    EXPECT_EQ(buffer.readers, std::vector<int>{1});
  }
  EXPECT_EQ(temporaries, 1);
  EXPECT_EQ(outputs, 1);
}

}  // namespace
}  // namespace kiln::cli
