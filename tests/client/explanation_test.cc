#include "client/cli/explain/explanation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/alternatives.h"

namespace kiln::cli {
namespace {

const Target kTarget = {Backend::kCpu, "x86-64-v4", "", 2, ""};
const DevicePeak kPeak = {10, 100, 100, 100, "a made-up machine"};

Explanation explained(const std::string& name, std::span<const Program> tuned = {}) {
  const auto program = read_graph_file(Path(KILN_GRAPHS_DIR) / "small" / (name + ".pt2"));
  EXPECT_TRUE(program.has_value()) << program.error().message;
  auto explanation = explain(*program, kTarget, Mode::kMaxAutotune, tuned, kPeak);
  EXPECT_TRUE(explanation.has_value()) << explanation.error().message;
  return explanation ? *std::move(explanation) : Explanation();
}

TEST(Explanation, NamesOperatorsModulesAndSources) {
  const Explanation all = explained("linear_ln_gelu");
  ASSERT_EQ(all.launches.size(), 2u);
  EXPECT_EQ(all.launches[0].fused_ops, std::vector<std::string>{"aten.linear.default"});
  EXPECT_EQ(all.launches[0].modules, std::vector<std::string>{"l"});
  EXPECT_EQ(all.launches[1].fused_ops,
            (std::vector<std::string>{"aten.layer_norm.default", "aten.gelu.default"}));
  EXPECT_EQ(all.launches[1].modules, (std::vector<std::string>{"n", "g"}));
  for (const ExplainedLaunch& launch : all.launches)
    EXPECT_EQ(launch.sources, std::vector<std::string>{"model.py:96 in forward"});
}

TEST(Explanation, SaysWhatIsReadAndWhatStoppedFusion) {
  const Explanation all = explained("linear_ln_gelu");
  const auto& reads = all.launches[0].inputs;
  EXPECT_NE(std::find(reads.begin(), reads.end(), "l.weight f32[96,32]"), reads.end());
  ASSERT_EQ(all.launches[0].stored.size(), 1u);
  EXPECT_EQ(all.launches[0].stored[0].readers, std::vector<int>{1});
  EXPECT_EQ(all.launches[0].stored[0].reason, "a reduction reads the matmul's result");
  EXPECT_TRUE(all.launches[1].stored.empty());
}

TEST(Explanation, CountsBytesAndFlops) {
  const ExplainedLaunch linear = explained("linear_ln_gelu").launches[0];
  EXPECT_EQ(linear.cost.bytes, 4 * (24 * 32 + 96 * 32 + 96 + 24 * 96));
  EXPECT_EQ(linear.cost.contraction_flops, 2 * 24 * 32 * 96);
  EXPECT_EQ(linear.cost.flops, 2 * 24 * 32 * 96 + 24 * 96);
  EXPECT_DOUBLE_EQ(linear.floor_us, static_cast<double>(linear.cost.bytes) / 10e3);
}

TEST(Explanation, OneArenaIsNoLargerThanItsTemporariesAndNoSmallerThanWhatLives) {
  const Explanation all = explained("bert");
  EXPECT_LE(all.arena_bytes, all.temporary_bytes);
  EXPECT_GE(all.arena_bytes, all.live_bytes);
  EXPECT_GT(all.live_bytes, 0);
}

TEST(Explanation, TakesSchedulesAndTimesFromTheTunedProgram) {
  const Explanation first = explained("softmax");
  EXPECT_EQ(first.kernels[0].time_us, 0);
  EXPECT_TRUE(first.kernels[0].schedule.starts_with("cpu.row_reduction "));
  Program tuned;
  tuned.kernels.push_back({});
  tuned.kernels[0].workload = first.kernels[0].workload.digest;
  tuned.kernels[0].schedule = "cpu.row_reduction lanes=8";
  tuned.kernels[0].report.best_us = 12.5;
  const Explanation all = explained("softmax", {&tuned, 1});
  EXPECT_EQ(all.kernels[0].time_us, 12.5);
  EXPECT_EQ(all.kernels[0].schedule, "cpu.row_reduction lanes=8");
}

TEST(Explanation, TimesWhatOtherProgramsHaveOfItsKernels) {
  const Explanation first = explained("linear_ln_gelu");
  ASSERT_EQ(first.kernels.size(), 2u);
  Program other;  // another graph with one kernel of these
  other.graph = Digest::of("other");
  other.kernels.push_back({});
  other.kernels[0].workload = first.kernels[1].workload.digest;
  other.kernels[0].schedule = "cpu.row_reduction lanes=8";
  other.kernels[0].report.best_us = 12.5;
  other.guards.push_back({});
  const Explanation all = explained("linear_ln_gelu", {&other, 1});
  EXPECT_FALSE(all.kernels[0].known);
  EXPECT_EQ(all.kernels[0].schedule, first.kernels[0].schedule);
  EXPECT_EQ(all.kernels[1].time_us, 12.5);
  EXPECT_TRUE(all.guards.empty()) << "they are the other program's";
  EXPECT_EQ(explanation_json("f", all)["kernels_known"], 1);
  EXPECT_NE(explanation_text("f", all).find("measured 12.5 us for 1 of the launches"),
            std::string::npos)
      << explanation_text("f", all);
}

// Two of x + y: a sum along the rows and a maximum of each, so large that it may be worth computing
// twice.
ExportedProgram two_cuts() {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {8192, 64}), y = b.input(DType::kF32, {8192, 64});
  const NodeId sum = b.binary(Op::kAdd, b.binary(Op::kMul, x, y), y);
  const NodeId column = b.reduce(Op::kReduceSum, sum, {0});
  const NodeId row = b.reduce(Op::kReduceMax, b.binary(Op::kMul, sum, x), {1});
  ExportedProgram program{*b.finish({column, row}), {}, {}};
  for (const char* name : {"x", "y"}) program.inputs.emplace_back().name = name;
  return program;
}

Explanation explained(const ExportedProgram& program, std::span<const Program> tuned,
                      Mode mode = Mode::kMaxAutotune) {
  auto explanation = explain(program, kTarget, mode, tuned, kPeak);
  EXPECT_TRUE(explanation.has_value()) << explanation.error().message;
  return explanation ? *std::move(explanation) : Explanation();
}

// The program of `graph` whose kernels are those of `cut`, each timed.
Program tuned_as(const Digest& graph, const PlanAlternative& cut, double us) {
  Program program;
  program.graph = graph;
  for (const Workload& workload : cut.plan.kernels) {
    ProgramKernel& kernel = program.kernels.emplace_back();
    kernel.workload = workload.digest;
    kernel.schedule = "tuned";
    kernel.report.best_us = us;
  }
  return program;
}

TEST(Explanation, IsAboutTheCutThatWasTakenAndSaysWhy) {
  const ExportedProgram program = two_cuts();
  const NormalForm form = *normalise(program.graph);
  const auto cuts = *plan_alternatives(form.graph);
  ASSERT_EQ(cuts.size(), 2u);
  for (size_t taken = 0; taken < cuts.size(); ++taken) {
    const Program tuned = tuned_as(form.digest, cuts[taken], 3);
    const Explanation all = explained(program, {&tuned, 1});
    EXPECT_EQ(all.alternative, static_cast<int>(taken));
    ASSERT_EQ(all.launches.size(), cuts[taken].plan.launches.size());
    for (const ExplainedKernel& kernel : all.kernels) EXPECT_EQ(kernel.schedule, "tuned");
    EXPECT_EQ(all.alternatives[taken].time_us, 3.0 * static_cast<double>(all.launches.size()));
    EXPECT_EQ(all.alternatives[1 - taken].time_us, 0) << "not known";
    const std::string text = explanation_text("f", all);
    EXPECT_NE(text.find("cut       " + cuts[taken].name), std::string::npos) << text;
    EXPECT_NE(text.find("not: " + cuts[1 - taken].name), std::string::npos) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Explanation, ComparesTheTimesOfCutsWhereOtherProgramsHaveTheirKernels) {
  const ExportedProgram program = two_cuts();
  const NormalForm form = *normalise(program.graph);
  const auto cuts = *plan_alternatives(form.graph);
  const std::vector<Program> tuned = {tuned_as(form.digest, cuts[1], 3),
                                      tuned_as(Digest::of("other"), cuts[0], 5)};
  const auto json = explanation_json("f", explained(program, tuned));
  EXPECT_EQ(json["alternative"], 1) << json;
  ASSERT_EQ(json["alternatives"].size(), 2u);
  EXPECT_EQ(json["alternatives"][1]["name"], cuts[1].name);
  EXPECT_GT(json["alternatives"][0]["time_us"], json["alternatives"][1]["time_us"]);
}

TEST(Explanation, TheProgramItselfSaysWhatTheOtherCutsTook) {
  const ExportedProgram program = two_cuts();
  const NormalForm form = *normalise(program.graph);
  const auto cuts = *plan_alternatives(form.graph);
  Program tuned = tuned_as(form.digest, cuts[1], 3);
  tuned.cuts = {{cuts[0].name, 2, 41.5, false}, {cuts[1].name, 2, 6, true}};
  const Explanation all = explained(program, {&tuned, 1});
  EXPECT_EQ(all.alternatives[0].time_us, 41.5);
  EXPECT_EQ(all.alternatives[1].time_us, 6);
  const std::string text = explanation_text("f", all);
  EXPECT_NE(text.find("41.5 us"), std::string::npos) << text;
}

TEST(Explanation, WithoutTimesTheRulesDecideAndItSaysSo) {
  const ExportedProgram program = two_cuts();
  const Explanation fresh = explained(program, {});
  EXPECT_EQ(fresh.alternative, 0);
  EXPECT_NE(fresh.alternative_reason.find("not tuned yet"), std::string::npos);
  const Explanation plain = explained(program, {}, Mode::kDefault);
  EXPECT_NE(plain.alternative_reason.find("default mode"), std::string::npos);
  const Explanation one = explained("softmax");
  EXPECT_EQ(one.alternatives.size(), 1u);
  EXPECT_EQ(explanation_text("f", one).find("     cut "), std::string::npos) << "no choice";
}

TEST(Explanation, JsonHasAnEntryForEachLaunch) {
  const Explanation all = explained("bert");
  const auto json = explanation_json("bert.pt2", all);
  ASSERT_EQ(json["kernels"].size(), all.launches.size());
  EXPECT_LT(json["distinct_kernels"], all.launches.size()) << "equal layers cost one";
  for (const auto& kernel : json["kernels"]) {
    EXPECT_EQ(kernel["workload"].get<std::string>().size(), 64u);
    EXPECT_FALSE(kernel["family"].get<std::string>().empty());
    EXPECT_FALSE(kernel["fused_ops"].empty()) << kernel;
    EXPECT_GT(kernel["bytes"].get<int64_t>(), 0);
    EXPECT_GE(kernel["flops"].get<int64_t>(), 0);
    EXPECT_GT(kernel["floor_us"].get<double>(), 0);
  }
}

TEST(Candidates, AreListedBestGuessFirstWithTheirTemplates) {
  const Explanation all = explained("linear_ln_gelu");
  const auto json = candidates_json("linear_ln_gelu.pt2", all);
  EXPECT_EQ(json["target"], "cpu:x86-64-v4");
  ASSERT_EQ(json["kernels"].size(), all.kernels.size());
  const std::string text = candidates_text(all);
  for (size_t k = 0; k < all.kernels.size(); ++k) {
    const auto& kernel = json["kernels"][k];
    EXPECT_EQ(kernel["workload"], all.kernels[k].workload.digest.hex());
    EXPECT_EQ(kernel["launches"], std::vector<size_t>{k});
    ASSERT_GT(kernel["candidates"].size(), 1u);
    EXPECT_EQ(kernel["candidates"][0]["schedule"], all.kernels[k].schedule) << "the first guess";
    for (const auto& candidate : kernel["candidates"]) {
      const std::string name = candidate["template"];
      ASSERT_NE(find_kernel_template(name), nullptr) << name;
      EXPECT_EQ(candidate["version"], find_kernel_template(name)->version());
      const std::string schedule = candidate["schedule"];
      EXPECT_TRUE(schedule.starts_with(name)) << schedule;
      EXPECT_NE(text.find(schedule), std::string::npos) << schedule;
    }
  }
}

TEST(Explanation, TextFitsAHundredColumns) {
  for (const char* name : {"bert", "llama", "train_step_mlp"}) {
    std::istringstream text(
        explanation_text("a/long/path/to/" + std::string(name) + ".pt2", explained(name)));
    for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(DevicePeak, FloorIsMemoryOrArithmetic) {
  KernelCost cost;
  cost.bytes = 1'000'000;
  EXPECT_DOUBLE_EQ(kPeak.floor_us(cost), 100);
  cost.flops = cost.contraction_flops = 100'000'000;
  EXPECT_DOUBLE_EQ(kPeak.floor_us(cost), 1000);
}

TEST(DevicePeak, KnowsGpusByModelThenByIsa) {
  const auto peak = [](const char* isa, const char* model) {
    return cuda_peak({Backend::kCuda, isa, model, 0, ""});
  };
  EXPECT_EQ(peak("sm_90a", "NVIDIA H200").gb_per_s, 4300);
  EXPECT_EQ(peak("sm_90a", "NVIDIA H100 80GB HBM3").gb_per_s, 3350);
  EXPECT_EQ(peak("sm_80", "").gb_per_s, 2039);
  EXPECT_NE(peak("sm_80", "").source.find("assumed"), std::string::npos);
  EXPECT_EQ(peak("sm_120", "").gb_per_s, 0);
}

}  // namespace
}  // namespace kiln::cli
