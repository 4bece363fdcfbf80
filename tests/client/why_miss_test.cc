#include "client/cli/explain/why_miss.h"

#include <gtest/gtest.h>

namespace kiln::cli {
namespace {

Program entry(std::string_view graph, Mode mode, std::string_view generator) {
  Program program;
  program.graph = Digest::of(graph);
  program.target = {Backend::kCpu, "x86-64-v4", "a CPU", 2, ""};
  program.mode = mode;
  program.codegen = Digest::of(generator);
  program.key = program_key(program.graph, program.target, mode, program.codegen);
  program.kernels.emplace_back();
  program.kernels.back().workload = Digest::of("softmax");
  return program;
}

std::vector<std::string> differing(const MissReport& report) {
  std::vector<std::string> names;
  for (const KeyComponent& each : report.components)
    if (each.differs()) names.push_back(each.name);
  return names;
}

TEST(WhyMiss, NamesTheComponentsThatDiffer) {
  const Program wanted = entry("g", Mode::kMaxAutotune, "new");
  const std::vector<Program> cache = {entry("other", Mode::kMaxAutotune, "new"),
                                      entry("g", Mode::kMaxAutotune, "old")};
  const MissReport report = why_miss(wanted, cache);
  EXPECT_FALSE(report.hit);
  EXPECT_EQ(differing(report), std::vector<std::string>{"code generator"});
  EXPECT_EQ(report.kernels_known, 1u) << "the other graph has the same kernel";
}

TEST(WhyMiss, SaysWhenItIsThere) {
  const Program wanted = entry("g", Mode::kDefault, "new");
  const MissReport report = why_miss(wanted, {wanted});
  EXPECT_TRUE(report.hit);
  EXPECT_TRUE(differing(report).empty());
}

TEST(WhyMiss, AnEmptyCacheHasNoNearestEntry) {
  const MissReport report = why_miss(entry("g", Mode::kDefault, "new"), {});
  EXPECT_EQ(report.entries, 0u);
  EXPECT_EQ(report.kernels_known, 0u);
  EXPECT_EQ(miss_text(report, {"softmax"}).find("!"), std::string::npos);
}

TEST(WhyMiss, SaysOfEachMissingKernelWhatTheNearestWasMadeFor) {
  Program wanted = entry("g", Mode::kMaxAutotune, "new");
  wanted.kernels.resize(3, wanted.kernels.front());
  wanted.kernels[1].workload = Digest::of("matmul");
  wanted.kernels[2].workload = Digest::of("nobody's");
  Program untuned = entry("other", Mode::kDefault, "new");
  untuned.kernels.front().workload = Digest::of("matmul");
  const MissReport report =
      why_miss(wanted, {entry("another", Mode::kMaxAutotune, "new"), untuned});
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

TEST(WhyMiss, SaysWhatADifferenceMeans) {
  const Program wanted = entry("g", Mode::kMaxAutotune, "new");
  const std::string text =
      miss_text(why_miss(wanted, {entry("g", Mode::kDefault, "new")}), {"softmax"});
  EXPECT_NE(text.find("compile once with --mode max-autotune"), std::string::npos) << text;
  EXPECT_EQ(text.find("kiln diff"), std::string::npos) << "the graph is the same: " << text;
}

}  // namespace
}  // namespace kiln::cli
