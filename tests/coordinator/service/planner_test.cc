#include "coordinator/service/planner.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "cache/kernel_cache.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "coordinator/storage/artifact_offers.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln {
namespace {

class PlannerTest : public ::testing::Test {
 protected:
  StartPlan request_for(const NormalForm& graph) const {
    StartPlan request;
    request.graph = graph.digest;
    request.target = test_target();
    request.mode = Mode::kMaxAutotune;
    request.key = program_key(graph.digest, request.target, request.mode);
    request.graph_text = print(graph.graph);
    return request;
  }
  void raise(std::string_view name) {
    for (TemplateVersion& each : context_.templates)
      if (each.name == name) ++each.version;
  }
  // Stores `schedule` as the winner of the planned kernel, under `key`.
  void store_winner(const PlannedKernel& planned, const Digest& key, const Schedule& schedule) {
    StoredKernel stored;
    stored.kernel.key = key;
    stored.kernel.workload = planned.workload;
    stored.kernel.family = to_string(planned.family);
    stored.kernel.schedule = schedule.to_string();
    stored.kernel.blob = Digest::of("binary");
    stored.kernel.report.best_us = 1;
    stored.kernel.templates = planned.templates;
    stored.kernel.recipe.phases = {{"kernel", 1}};
    stored.tuned_on = test_target();
    cache_->put_blob("binary", nullptr);
    cache_->put_kernel(stored, nullptr);
    cache_->flush();
  }

  const TempDir dir_ = *TempDir::create("kiln-planner");
  const std::unique_ptr<KernelCache> cache_ = *KernelCache::open(dir_.path());
  PlanContext context_{template_versions(), MeasurementPolicy{}, cache_.get()};
};

TEST_F(PlannerTest, PlansACanonicalGraph) {
  const StartPlan request = request_for(test_graph(3));
  const PlanFinished finished = make_plan(request, context_);
  ASSERT_TRUE(finished.program.has_value()) << finished.program.error().message;
  EXPECT_EQ(finished.key, request.key);
  EXPECT_EQ(finished.program->key, request.key);
  EXPECT_EQ(finished.program->graph, request.graph);
  EXPECT_EQ(finished.program->template_stamp, template_stamp(template_versions()));
  ASSERT_EQ(finished.kernels.size(), 1u);
  EXPECT_FALSE(finished.kernels[0].cached.has_value());
  EXPECT_GT(finished.kernels[0].schedules.size(), 1u);
  EXPECT_TRUE(parse_graph(finished.kernels[0].workload_text).has_value());
}

// An offer is a template of its own: it makes the winner of just its workload stale, for as long as it is
// there. One whose arguments are not the workload's counts as tried.
TEST_F(PlannerTest, AnOfferedKernelIsACandidateWhereItIsTimed) {
  const auto artifacts = *ArtifactStore::open(
      dir_.path() / kArtifactsFile, *SigningKey::load_or_create(dir_.path() / "signing"), {});
  ArtifactOffers table(*artifacts, dir_.path() / kArtifactsFile);
  Offers offers(table);
  context_.offers = &offers;
  StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  store_winner(before, before.key, before.schedules.back());
  ASSERT_TRUE(make_plan(request, context_).kernels.at(0).cached);

  OfferedKernel offered;
  offered.name = "theirs";
  offered.workload = before.workload;
  offered.target = request.target;
  offered.recipe.inputs = offered.recipe.outputs = {{DType::kF32, {1024}}};
  offered.recipe.phases = {{"theirs", 1}};
  offered.binary = "their binary";
  OfferedKernel other = offered;
  other.recipe.inputs.clear();
  for (const OfferedKernel& each : {offered, other}) {
    offers.put({each.key()}, offered_to_text(each), [](const Status&) {});
    artifacts->flush();
  }
  const PlannedKernel planned = make_plan(request, context_).kernels.at(0);
  EXPECT_FALSE(planned.cached);
  ASSERT_EQ(planned.offered.size(), 1u);
  EXPECT_EQ(planned.offered.begin()->second.binary, "their binary");
  EXPECT_EQ(planned.schedules.front(), before.schedules.back()) << "the earlier winner comes first";
  EXPECT_EQ(planned.schedules.back().to_string(), offered.template_name());
  EXPECT_EQ(find_version(planned.templates, offered.template_name()), 1);
  EXPECT_EQ(find_version(planned.templates, other.template_name()), 1);
  store_winner(planned, planned.key, planned.schedules.back());
  EXPECT_TRUE(make_plan(request, context_).kernels.at(0).cached);
  context_.offers = nullptr;  // they are gone
  EXPECT_TRUE(make_plan(request, context_).kernels.at(0).cached);

  context_.offers = &offers;
  request.mode = Mode::kDefault;
  EXPECT_TRUE(make_plan(request, context_).kernels.at(0).offered.empty());
}

TEST_F(PlannerTest, KeepsWhichLinesAKernelIsOf) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {64});
  b.begin_origin({"aten.sin.default", "model.py:7 in forward", "layers.0"});
  StartPlan request = request_for(normalise(b.finish({b.unary(Op::kSin, x)}).value()).value());
  const PlanFinished without = make_plan(request, context_);
  request.graph_text += "#from\taten.sin.default\tmodel.py:7 in forward\tlayers.0\t%1\n";
  const PlanFinished finished = make_plan(request, context_);
  ASSERT_TRUE(finished.program.has_value()) << finished.program.error().message;
  EXPECT_EQ(finished.kernels[0].key, without.kernels[0].key);
  EXPECT_EQ(finished.kernels[0].workload_text,
            without.kernels[0].workload_text +
                request.graph_text.substr(request.graph_text.find("#from")));
}

// Few rows over many keys: one kernel or three is for their times to say, where times are taken.
TEST_F(PlannerTest, PlansBothPartitionsWhereOnlyTimesCanTell) {
  GraphBuilder b;
  const Shape scores_shape = {2, 16, 512};
  const NodeId q = b.input(DType::kF32, {2, 16, 32}), k = b.input(DType::kF32, {2, 32, 512});
  const NodeId v = b.input(DType::kF32, {2, 512, 32});
  const NodeId scores = b.matmul(q, k);
  const auto over_keys = [&](Op op, NodeId x) {
    return b.broadcast(b.reduce(op, x, {2}, true), scores_shape);
  };
  const NodeId e = b.unary(Op::kExp, b.binary(Op::kSub, scores, over_keys(Op::kReduceMax, scores)));
  const NodeId weights = b.binary(Op::kDiv, e, over_keys(Op::kReduceSum, e));
  const Graph graph = b.finish({b.matmul(weights, v)}).value();
  StartPlan request = request_for(normalise(graph).value());
  const PlanFinished finished = make_plan(request, context_);
  ASSERT_TRUE(finished.program.has_value()) << finished.program.error().message;
  EXPECT_EQ(finished.program->launches.size(), 1u);
  ASSERT_EQ(finished.alternatives.size(), 1u);
  EXPECT_EQ(finished.alternatives[0].program.launches.size(), 3u);
  EXPECT_EQ(finished.alternatives[0].program.key, request.key);
  EXPECT_EQ(finished.alternatives[0].kernels, (std::vector<int>{1, 2, 3}));
  ASSERT_EQ(finished.program->cuts.size(), 1u);
  EXPECT_EQ(finished.program->cuts[0].name, "by rules");
  ASSERT_EQ(finished.alternatives[0].program.cuts.size(), 1u);
  EXPECT_EQ(finished.alternatives[0].program.cuts[0].name, "attention in three kernels");
  EXPECT_EQ(finished.kernels.size(), 4u);

  request.mode = Mode::kDefault;
  const PlanFinished untimed = make_plan(request, context_);
  EXPECT_EQ(untimed.kernels.size(), 1u);
  EXPECT_TRUE(untimed.alternatives.empty());
  EXPECT_TRUE(untimed.program->cuts.empty()) << "no choice, nothing to report";
}

TEST_F(PlannerTest, RefusesAGraphUnderAnothersDigest) {
  StartPlan request = request_for(test_graph(3));
  request.graph_text = print(test_graph(4).graph);
  const PlanFinished finished = make_plan(request, context_);
  ASSERT_FALSE(finished.program.has_value());
  EXPECT_EQ(finished.program.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(finished.kernels.empty());
}

TEST_F(PlannerTest, FindsAKernelThatIsCached) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel planned = make_plan(request, context_).kernels.at(0);
  store_winner(planned, planned.key, planned.schedules[1]);
  const PlannedKernel again = make_plan(request, context_).kernels.at(0);
  ASSERT_TRUE(again.cached.has_value());
  EXPECT_EQ(again.cached->schedule, planned.schedules[1].to_string());
}

TEST_F(PlannerTest, PutsAnEarlierWinnerFirstAndKeepsTheRestInOrder) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  const Schedule winner = before.schedules.back();
  store_winner(before, Digest::of("on another target"), winner);
  const PlannedKernel after = make_plan(request, context_).kernels.at(0);
  EXPECT_FALSE(after.cached.has_value());
  std::vector<Schedule> expected = before.schedules;
  std::rotate(expected.begin(), expected.end() - 1, expected.end());
  EXPECT_EQ(after.schedules, expected);
}

// Schedules of index version 4 and before begin with a family.
TEST_F(PlannerTest, AnEarlierWinnerOfBeforeTemplatesHadNamesIsFirstToo) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  Schedule winner = before.schedules.back();
  ASSERT_EQ(winner.template_name, "cpu.pointwise");
  winner.template_name = "pointwise";
  store_winner(before, Digest::of("of an older Kiln"), winner);
  EXPECT_EQ(make_plan(request, context_).kernels.at(0).schedules.front(), before.schedules.back());
}

TEST_F(PlannerTest, AnotherVersionOfATemplateThatCoversMakesAWinnerStaleAndIsTunedFromIt) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  const Schedule winner = before.schedules.back();
  store_winner(before, before.key, winner);
  TuningRecord record;
  record.kernel_key = before.key;
  record.workload = before.workload;
  record.target = test_target();
  record.schedule = winner;
  record.measurement.samples_us = {1, 2, 3};
  record.template_version = find_version(before.templates, "cpu.pointwise");
  cache_->put_record(record, nullptr);
  cache_->flush();
  raise("cpu.pointwise");
  const PlannedKernel after = make_plan(request, context_).kernels.at(0);
  EXPECT_EQ(after.key, before.key);
  EXPECT_FALSE(after.cached.has_value());
  EXPECT_EQ(after.schedules.front(), winner);
  EXPECT_TRUE(after.records.empty()) << "what it took says nothing of the new text";
  EXPECT_EQ(
      changes(before.templates, after.templates),
      fmt::format("cpu.pointwise {} -> {}", record.template_version, record.template_version + 1));
}

TEST_F(PlannerTest, AnotherVersionOfAnyOtherTemplateMakesNothingStale) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  store_winner(before, before.key, before.schedules.back());
  for (const TemplateVersion& each : template_versions())
    if (each.name != "cpu.pointwise") raise(each.name);
  const PlanFinished after = make_plan(request, context_);
  EXPECT_TRUE(after.kernels.at(0).cached.has_value());
  EXPECT_NE(after.program->template_stamp, template_stamp(template_versions()));
}

TEST_F(PlannerTest, WhatWonAtTheNearestSizeIsTheFirstCandidate) {
  const auto softmax_like = [](int64_t rows, int64_t columns) {
    GraphBuilder builder;
    const NodeId x = builder.input(DType::kF32, {rows, columns});
    const Graph graph = builder.finish({builder.reduce(Op::kReduceMax, x, {1})}).value();
    return normalise(graph).value();
  };
  const auto planned = [&](int64_t rows, int64_t columns, Mode mode = Mode::kMaxAutotune) {
    StartPlan request = request_for(softmax_like(rows, columns));
    request.mode = mode;
    PlanFinished finished = make_plan(request, context_);
    cache_->flush();
    return finished.kernels.at(0);
  };
  const PlannedKernel near = planned(64, 1024), far = planned(64, 65536);
  ASSERT_GT(near.schedules.size(), 2u);
  store_winner(near, near.key, near.schedules.at(2));
  store_winner(far, far.key, far.schedules.at(1));
  EXPECT_EQ(planned(64, 1040).schedules.at(0), near.schedules.at(2));
  EXPECT_EQ(planned(64, 60000).schedules.at(0), far.schedules.at(1));
  EXPECT_NE(planned(64, 1048, Mode::kDefault).schedules.at(0), near.schedules.at(2))
      << "what is not measured is the cost model's to say";
}

TEST_F(PlannerTest, WhatIsExpectedToBeFarBehindIsInReserveUnlessItWonBefore) {
  GraphBuilder builder;
  const NodeId x = builder.input(DType::kBF16, {512, 512}),
               w = builder.input(DType::kBF16, {512, 512});
  const Graph graph = builder.finish({builder.cast(builder.matmul(x, w), DType::kBF16)}).value();
  StartPlan request = request_for(normalise(graph).value());
  request.target = *Target::parse("cuda:sm_90a");
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  EXPECT_EQ(before.reserves, std::set<std::string>{"cuda.matmul"});
  const auto reserve = std::ranges::find(before.schedules, "cuda.matmul", &Schedule::template_name);
  ASSERT_NE(reserve, before.schedules.end()) << "and a candidate all the same";

  EXPECT_TRUE(before.has_variants);

  request.mode = Mode::kDefault;
  EXPECT_TRUE(make_plan(request, context_).kernels.at(0).reserves.empty())
      << "the next choice is tried where the first one is wrong";
  EXPECT_FALSE(make_plan(request, context_).kernels.at(0).has_variants);
  request.mode = Mode::kMaxAutotune;
  store_winner(before, Digest::of("of another template version"), *reserve);
  EXPECT_TRUE(make_plan(request, context_).kernels.at(0).reserves.empty());
}

TEST_F(PlannerTest, AnEarlierWinnerThatIsNotLegalAnyMoreIsLeftOut) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel before = make_plan(request, context_).kernels.at(0);
  store_winner(before, Digest::of("old"), {"cpu.pointwise", {{"no_such_decision", 1}}});
  store_winner(before, Digest::of("older"), {"another_build.origami", {{"fold", 3}}});
  EXPECT_EQ(make_plan(request, context_).kernels.at(0).schedules, before.schedules);
}

TEST_F(PlannerTest, BringsTheRecordsOfAnEarlierIncarnation) {
  const StartPlan request = request_for(test_graph(3));
  const PlannedKernel planned = make_plan(request, context_).kernels.at(0);
  TuningRecord record;
  record.kernel_key = planned.key;
  record.workload = planned.workload;
  record.target = test_target();
  record.schedule = planned.schedules[0];
  record.measurement.samples_us = {1, 2, 3};
  record.template_version = find_version(planned.templates, planned.schedules[0].template_name);
  cache_->put_record(record, nullptr);
  cache_->flush();
  const PlannedKernel again = make_plan(request, context_).kernels.at(0);
  ASSERT_EQ(again.records.size(), 1u);
  EXPECT_EQ(again.records[0].schedule, planned.schedules[0]);
}

TEST_F(PlannerTest, ThreadsAnswerEverySubmission) {
  std::mutex mutex;
  std::vector<Digest> answered;
  std::promise<void> all;
  Planner planner(context_, 2, [&](const PlanFinished& finished) {
    const std::lock_guard lock(mutex);
    answered.push_back(finished.key);
    if (answered.size() == 10) all.set_value();
  });
  for (int constant = 3; constant < 13; ++constant) {
    planner.submit(request_for(test_graph(constant)));
  }
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::ranges::sort(answered);
  EXPECT_EQ(std::unique(answered.begin(), answered.end()), answered.end());
}

TEST_F(PlannerTest, AUserWithManyGraphsHoldsUpItsOwn) {
  std::promise<void> all_wait, done;
  std::vector<Digest> planned;  // one thread plans
  Planner planner(context_, 1, [&](const PlanFinished& finished) {
    if (planned.empty()) all_wait.get_future().wait();
    planned.push_back(finished.key);
    if (planned.size() == 6) done.set_value();
  });
  std::vector<Digest> keys;
  const auto submit = [&](int constant, const std::string& user) {
    StartPlan request = request_for(test_graph(constant));
    keys.push_back(request.key);
    planner.submit(std::move(request), user);
  };
  for (int constant = 2; constant <= 6; ++constant) submit(constant, "greedy");
  submit(7, "other");
  all_wait.set_value();
  done.get_future().wait();
  EXPECT_EQ(planned, (std::vector<Digest>{keys[0], keys[5], keys[1], keys[2], keys[3], keys[4]}));
}

}  // namespace
}  // namespace kiln
