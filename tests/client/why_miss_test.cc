#include "client/cli/why_miss.h"

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
  EXPECT_EQ(miss_text(report).find("!"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cli
