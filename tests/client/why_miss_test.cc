#include "client/cli/explain/why_miss.h"

#include <gtest/gtest.h>

namespace kiln::cli {
namespace {

// `version`: of the one template.
Program entry(std::string_view graph, Mode mode, int version) {
  Program program;
  program.graph = Digest::of(graph);
  program.target = {Backend::kCpu, "x86-64-v4", "a CPU", 2, ""};
  program.mode = mode;
  const TemplateVersions templates = {{"cpu.row_reduction", version}};
  program.template_stamp = template_stamp(templates);
  program.key = program_key(program.graph, program.target, mode);
  program.kernels.emplace_back();
  program.kernels.back().workload = Digest::of("softmax");
  program.kernels.back().templates = templates;
  return program;
}

std::vector<std::string> differing(const MissReport& report) {
  std::vector<std::string> names;
  for (const KeyComponent& each : report.components)
    if (each.differs()) names.push_back(each.name);
  return names;
}

TEST(WhyMiss, NamesTheComponentsThatDiffer) {
  const Program wanted = entry("g", Mode::kMaxAutotune, 2);
  const std::vector<Program> cache = {entry("other", Mode::kMaxAutotune, 2),
                                      entry("g", Mode::kMaxAutotune, 1)};
  const MissReport report = why_miss(wanted, cache);
  EXPECT_FALSE(report.hit);
  EXPECT_TRUE(report.stale);
  EXPECT_EQ(differing(report), std::vector<std::string>{"templates"});
  EXPECT_EQ(report.kernels_known, 1u) << "the other graph has the same kernel";
}

TEST(WhyMiss, SaysWhenItIsThere) {
  const Program wanted = entry("g", Mode::kDefault, 2);
  const MissReport report = why_miss(wanted, {wanted});
  EXPECT_TRUE(report.hit);
  EXPECT_TRUE(differing(report).empty());
}

TEST(WhyMiss, AnEmptyCacheHasNoNearestEntry) {
  const MissReport report = why_miss(entry("g", Mode::kDefault, 2), {});
  EXPECT_EQ(report.entries, 0u);
  EXPECT_EQ(report.kernels_known, 0u);
  EXPECT_EQ(miss_text(report, {"softmax"}).find("!"), std::string::npos);
}

TEST(WhyMiss, SaysOfEachMissingKernelWhatTheNearestWasMadeFor) {
  Program wanted = entry("g", Mode::kMaxAutotune, 2);
  wanted.kernels.resize(3, wanted.kernels.front());
  wanted.kernels[1].workload = Digest::of("matmul");
  wanted.kernels[2].workload = Digest::of("nobody's");
  Program untuned = entry("other", Mode::kDefault, 2);
  untuned.kernels.front().workload = Digest::of("matmul");
  const MissReport report = why_miss(wanted, {entry("another", Mode::kMaxAutotune, 2), untuned});
  EXPECT_EQ(report.kernels_known, 1u);
  ASSERT_EQ(report.missing.size(), 2u);
  EXPECT_EQ(report.missing[0].kernel, 1u);
  EXPECT_TRUE(report.missing[1].components.empty()) << "no program has that workload";
  const std::string text = miss_text(report, {"softmax", "matmul at model.py:3", "scan"});
  EXPECT_EQ(text.find("  softmax\n"), std::string::npos) << "it is not missing: " << text;
  EXPECT_NE(text.find("  matmul at model.py:3\n      here for another key: mode default, not "
                      "max-autotune\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  scan\n      no program here has it\n"), std::string::npos) << text;
}

TEST(WhyMiss, SaysWhichTemplateMadeAWinnerStale) {
  Program wanted = entry("g", Mode::kMaxAutotune, 2);
  wanted.kernels.resize(2, wanted.kernels.front());
  wanted.kernels[1].workload = Digest::of("relu");
  wanted.kernels[1].templates = {{"cpu.pointwise", 1}};
  Program stored = wanted;
  stored.template_stamp = Digest::of("before");
  stored.kernels[0].templates = {{"cpu.row_reduction", 1}};
  const MissReport report = why_miss(wanted, {stored});
  EXPECT_TRUE(report.stale);
  EXPECT_EQ(report.kernels_known, 1u) << "the other one's templates are as they were";
  ASSERT_EQ(report.missing.size(), 1u);
  const std::string text = miss_text(report, {"softmax", "relu"});
  EXPECT_NE(
      text.find("  softmax\n      stale: cpu.row_reduction 2 now, cpu.row_reduction 1 when it "
                "won\n"),
      std::string::npos)
      << text;
}

TEST(WhyMiss, SaysWhatADifferenceMeans) {
  const Program wanted = entry("g", Mode::kMaxAutotune, 2);
  const std::string text =
      miss_text(why_miss(wanted, {entry("g", Mode::kDefault, 2)}), {"softmax"});
  EXPECT_NE(text.find("compile once with --mode max-autotune"), std::string::npos) << text;
  EXPECT_EQ(text.find("kiln diff"), std::string::npos) << "the graph is the same: " << text;
}

}  // namespace
}  // namespace kiln::cli
