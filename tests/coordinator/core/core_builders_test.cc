// Workers that only build: what they get and what devices get of it, who is believed about a binary
// that no device loads, and what happens where they come, die, or are alone.
#include <algorithm>

#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreBuilders : public ::testing::Test {
 protected:
  explicit CoreBuilders(CoreOptions options = {}) : bench(std::move(options)) {}

  static WorkerReport device_of(const WorkerId& worker, std::vector<CandidateResult> results = {}) {
    WorkerReport report;
    report.worker = worker;
    report.target = cpu_target();
    report.builds = true;
    report.compilers = 1;
    report.results = std::move(results);
    return report;
  }
  static WorkerReport builder_of(const WorkerId& worker,
                                 std::vector<CandidateResult> results = {}) {
    WorkerReport report = device_of(worker, std::move(results));
    report.target = {};
    report.slots = 0;
    report.builds_for = {cpu_target()};
    return report;
  }
  // The jobs that are new to each worker. The worker then holds them.
  std::map<WorkerId, std::vector<Job>> new_jobs() {
    std::map<WorkerId, std::vector<Job>> jobs;
    for (SendOrders& orders : bench.take<SendOrders>())
      for (Job& job : orders.orders.jobs)
        if (known.insert(job.lease).second) jobs[orders.worker].push_back(std::move(job));
    return jobs;
  }
  void send(WorkerReport report, const std::string& owner = {}) {
    bench.step(ReportReceived{report.worker, std::move(report), nullptr, owner});
  }
  static CandidateResult built(const Job& job, const std::string& bytes = "built ") {
    const int index = job.candidates.front().index;
    CandidateResult result = ok_result(job, index, 0);
    result.measurement = {};
    result.binary = bytes + std::to_string(index);
    return result;
  }
  // Of a job whose binary was given.
  static CandidateResult tried(const Job& job, const CandidateJob& candidate, double us) {
    CandidateResult result = ok_result(job, candidate.index, us);
    result.compiled = candidate.binary.empty();
    if (!candidate.binary.empty()) result.recipe_json = result.binary = "";
    return result;
  }
  bool is_won() const {
    return std::ranges::any_of(bench.done, [](const Action& action) {
      return std::holds_alternative<StoreKernel>(action);
    });
  }
  WorkerStats stats_of(const WorkerId& worker) {
    for (const WorkerStats& row : bench.core().stats(bench.now_ms).workers)
      if (row.name == worker) return row;
    return {};
  }

  CoreBench bench;
  std::set<uint64_t> known;
};

TEST_F(CoreBuilders, BuildWhatTheDeviceTries) {
  send(device_of("w"));
  send(builder_of("b"));
  bench.start({planned_kernel("k", 6)});
  // An idle device takes a batch that it builds itself; builders have room for two.
  auto jobs = new_jobs();
  ASSERT_EQ(jobs["b"].size(), 2u);
  ASSERT_EQ(jobs["w"].size(), 1u);
  for (const Job& job : jobs["b"]) {
    EXPECT_EQ(job.kind, Job::Kind::kBuild);
    EXPECT_EQ(job.candidates.size(), 1u);
  }
  EXPECT_EQ(jobs["w"].front().kind, Job::Kind::kScreen);
  std::map<int, int> seen;
  Job at_device = jobs["w"].front();
  std::vector<Job> at_builder = jobs["b"];
  int built_elsewhere = 0;
  while (!is_won()) {
    for (const Job& job : at_builder) send(builder_of("b", {built(job)}));
    at_builder.clear();
    std::vector<CandidateResult> results;
    for (const CandidateJob& candidate : at_device.candidates) {
      seen[candidate.index] += at_device.kind == Job::Kind::kScreen;
      if (at_device.kind == Job::Kind::kScreen && !candidate.binary.empty()) {
        ++built_elsewhere;
        EXPECT_EQ(candidate.binary, "built " + std::to_string(candidate.index));
      }
      results.push_back(tried(at_device, candidate, 100.0 - candidate.index));
      if (at_device.kind == Job::Kind::kFinal)
        results.back().recipe_json = results.back().binary = "";
    }
    at_device = {};
    send(device_of("w", std::move(results)));
    jobs = new_jobs();
    if (!jobs["w"].empty()) at_device = jobs["w"].front();
    at_builder = jobs["b"];
    ASSERT_TRUE(!at_device.candidates.empty() || !at_builder.empty() || is_won());
  }
  bench.store_all();
  ASSERT_EQ(bench.kernels.size(), 1u);
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [index, times] : seen) EXPECT_EQ(times, 1) << index;
  EXPECT_GE(built_elsewhere, 2);
  EXPECT_EQ(stats_of("b").built, built_elsewhere);
  EXPECT_EQ(stats_of("b").role, "build");
  EXPECT_EQ(stats_of("w").role, "measure");
}

// What is built with registers in local memory is slow: it is tried when nothing else came out right.
class CoreSpills : public CoreBuilders {
 protected:
  // Two candidates, built by "b", of which the first spills; the job of the device, which is asked
  // for when both are built.
  Job first_screen() {
    WorkerReport full = device_of("w");
    full.slots = full.compilers = 0;
    send(full);
    send(builder_of("b"));
    bench.start({planned_kernel("k", 2)});
    std::vector<CandidateResult> results;
    auto jobs = new_jobs();
    for (const Job& job : jobs["b"]) {
      results.push_back(built(job));
      results.back().local_bytes = results.back().index == 0 ? 64 : 0;
    }
    send(builder_of("b", std::move(results)));
    send(device_of("w"));
    return device_job();
  }
  Job device_job() {
    auto jobs = new_jobs()["w"];
    EXPECT_EQ(jobs.size(), 1u);
    return jobs.empty() ? Job{} : jobs.front();
  }
};

TEST_F(CoreSpills, WaitForTheOthersAndAreNotTriedWhereOneIsRight) {
  const Job job = first_screen();
  ASSERT_EQ(job.candidates.size(), 1u);
  EXPECT_EQ(job.candidates.front().index, 1);
  send(device_of("w", {tried(job, job.candidates.front(), 100)}));
  bench.store_all();
  ASSERT_EQ(bench.kernels.size(), 1u) << "the only one left wins";
  EXPECT_EQ(bench.kernels.front().kernel.report.rejected, 1);
}

TEST_F(CoreSpills, AreTriedWhereNoneIsRight) {
  const Job job = first_screen();
  ASSERT_EQ(job.candidates.size(), 1u);
  send(device_of("w", {bad_result(job, 1, Verdict::kWrongResult, "wrong")}));
  const Job again = device_job();
  ASSERT_EQ(again.candidates.size(), 1u);
  EXPECT_EQ(again.candidates.front().index, 0);
  EXPECT_EQ(again.candidates.front().local_bytes, 64);
  send(device_of("w", {tried(again, again.candidates.front(), 100)}));
  bench.store_all();
  EXPECT_EQ(bench.kernels.size(), 1u);
}

TEST_F(CoreBuilders, NothingIsMeasuredByOneAndRequestsSayWhatTheyWaitFor) {
  send(builder_of("b"));
  bench.fleet_is_back();
  send(builder_of("b"));
  const CompileRequest request = bench.ask("c", 1);
  bench.miss(bench.key());
  bench.upload("c", request);
  const Answer refused = bench.one<Answer>();
  ASSERT_FALSE(refused.reply.outcome.has_value());
  EXPECT_NE(
      refused.reply.outcome.error().message.find("no worker measures for cpu:x86-64-v3 (1 only "
                                                 "builds)"),
      std::string::npos)
      << refused.reply.outcome.error().message;
}

class CoreWaiting : public CoreBuilders {
 protected:
  static CoreOptions options() {
    CoreOptions options;
    options.max_waiting_for_worker_ms = 60'000;
    return options;
  }
  CoreWaiting() : CoreBuilders(options()) {}
};

TEST_F(CoreWaiting, ABuilderAloneBuildsNothingUntilADeviceComes) {
  send(builder_of("b"));
  bench.start({planned_kernel("k", 12)});
  bench.tick(300);
  EXPECT_TRUE(new_jobs().empty());
  const auto progress = bench.take<SendProgress>();
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().progress.waiting,
            "no worker measures for cpu:x86-64-v3 (1 only builds)");
  send(device_of("w"));
  bench.tick(100);
  auto jobs = new_jobs();
  EXPECT_FALSE(jobs["b"].empty());
  EXPECT_FALSE(jobs["w"].empty());
}

// One candidate, two builders, and a device that loads what only one of them makes.
class CoreBadBuilds : public CoreBuilders {
 protected:
  // A device that builds nothing itself.
  void device(std::vector<CandidateResult> results = {}) {
    WorkerReport report = device_of("w", std::move(results));
    report.slots = full ? 0 : 1;
    send(std::move(report));
  }
  // The first job of this kind; where it went.
  std::pair<WorkerId, Job> next(Job::Kind kind) {
    for (auto& [worker, jobs] : new_jobs())
      for (Job& job : jobs)
        if (job.kind == kind) return {worker, job};
    ADD_FAILURE() << "no job of kind " << static_cast<int>(kind);
    return {};
  }
  // From a build by one builder to the job of the other, after the device could not load it.
  std::pair<WorkerId, Job> built_again() {
    full = true;
    device();
    send(builder_of("b1"));
    send(builder_of("b2"));
    bench.start({planned_kernel("k", 1)});
    const auto [first, job] = next(Job::Kind::kBuild);
    full = false;
    send(builder_of(first, {built(job, "bad ")}));
    first_builder = first;
    device();
    const auto [worker, screen] = next(Job::Kind::kScreen);
    EXPECT_EQ(worker, "w");
    EXPECT_EQ(screen.candidates.front().binary, "bad 0");
    full = true;
    device({bad_result(screen, 0, Verdict::kCompileFailed, "the driver refuses it")});
    bench.store_all();
    return next(Job::Kind::kBuild);
  }

  bool full = false;
  WorkerId first_builder;
};

TEST_F(CoreBadBuilds, ABinaryThatDoesNotLoadIsBuiltByAnotherAndCountsAgainstItsBuilder) {
  const auto [second, job] = built_again();
  EXPECT_NE(second, first_builder);
  full = false;
  send(builder_of(second, {built(job, "good ")}));
  device();
  const Job screen = next(Job::Kind::kScreen).second;
  EXPECT_EQ(screen.candidates.front().binary, "good 0");
  device({tried(screen, screen.candidates.front(), 10)});
  bench.store_all();
  ASSERT_EQ(bench.kernels.size(), 1u);
  EXPECT_EQ(bench.kernels.front().binary, "good 0");
  EXPECT_EQ(stats_of(first_builder).state, "quarantined");
  EXPECT_EQ(stats_of(second).state, "serving");
}

TEST_F(CoreBadBuilds, OneThatTwoBuildAlikeIsTheCandidatesFault) {
  const auto [second, job] = built_again();
  send(builder_of(second, {built(job, "bad ")}));
  bench.store_all();
  const Answer failed = bench.one<Answer>();
  EXPECT_FALSE(failed.reply.outcome.has_value());
  EXPECT_EQ(stats_of(first_builder).state, "serving");
  EXPECT_EQ(stats_of(second).state, "serving");
}

// That nothing loads is one worker's word, whether the builds are alike or not: a program is refused
// for it only where no other owner can be asked.
class CoreBadTester : public CoreBadBuilds, public ::testing::WithParamInterface<const char*> {};

TEST_P(CoreBadTester, RefusesNothingForGood) {
  const auto [second, job] = built_again();
  WorkerReport honest = device_of("honest");
  honest.slots = 0;
  send(honest, "alice");
  send(builder_of(second, {built(job, GetParam())}));
  if (GetParam() != std::string("bad ")) {
    full = false;
    device();
    const Job screen = next(Job::Kind::kScreen).second;
    full = true;
    device({bad_result(screen, 0, Verdict::kCompileFailed, "the driver refuses it")});
  }
  EXPECT_TRUE(bench.none<Answer>()) << "a second opinion is sought first";
  honest.slots = 1;
  send(honest, "alice");
  const auto [worker, opinion] = next(Job::Kind::kScreen);
  EXPECT_EQ(worker, "honest");
  EXPECT_EQ(opinion.candidates.front().binary, "") << "it builds for itself";
  honest.results = {tried(opinion, opinion.candidates.front(), 10)};
  send(honest, "alice");
  bench.store_all();
  ASSERT_EQ(bench.kernels.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Builds, CoreBadTester, ::testing::Values("bad ", "other "));

TEST_F(CoreBadBuilds, WhatABuilderThatDiesHadIsBuiltByAnother) {
  full = true;
  device();
  send(builder_of("b1"));
  send(builder_of("b2"));
  bench.start({planned_kernel("k", 1)});
  const auto [first, job] = next(Job::Kind::kBuild);
  bench.step(WorkerGone{first});
  const auto [second, again] = next(Job::Kind::kBuild);
  EXPECT_NE(first, second);
  EXPECT_GT(again.epoch, job.epoch);
}

TEST_F(CoreBadBuilds, WhatWaitsIsForTheDeviceWhenTheLastBuilderLeaves) {
  full = true;
  device();
  send(builder_of("b1"));
  bench.start({planned_kernel("k", 1)});
  next(Job::Kind::kBuild);
  bench.step(WorkerGone{"b1"});
  bench.tick(100);
  full = false;
  device();
  const Job screen = next(Job::Kind::kScreen).second;
  EXPECT_TRUE(screen.candidates.front().binary.empty());
}

// ---- GPUs ----

Target gpu() {
  return {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
}

class CoreGpuBuilders : public CoreBuilders {
 protected:
  void gpu_reports(const WorkerId& worker) {
    WorkerReport report = device_of(worker);
    report.target = gpu();
    report.slots = 8;
    send(std::move(report));
  }
  void builder_reports(const Target& builds_for) {
    WorkerReport report = builder_of("b");
    report.target.backend = Backend::kCuda;
    report.builds_for = {builds_for};
    send(std::move(report));
  }
  void start(int candidates) {
    CompileRequest request;
    request.request = 1;
    request.graph = digest_of("g");
    request.target = gpu();
    request.mode = Mode::kMaxAutotune;
    bench.step(RequestReceived{"c", request});
    const Digest key = program_key(request.graph, request.target, request.mode);
    bench.miss(key);
    request.graph_text = "graph";
    bench.step(RequestReceived{"c", request});
    Program program;
    program.key = key;
    program.graph = request.graph;
    program.target = request.target;
    program.mode = request.mode;
    bench.step(PlanFinished{key, std::move(program), {planned_kernel("k", candidates)}});
  }
};

TEST_F(CoreGpuBuilders, EveryCompilerOfTheFleetBuildsAndTheGpuTriesOnlyWhatIsBuilt) {
  gpu_reports("w");
  builder_reports({Backend::kCuda, "sm_90a", "", 0, "cuda-13"});
  start(20);
  auto jobs = new_jobs();
  EXPECT_EQ(jobs["w"].size(), 2u);
  EXPECT_EQ(jobs["b"].size(), 2u);
  for (const auto& [worker, some] : jobs)
    for (const Job& job : some) EXPECT_EQ(job.kind, Job::Kind::kBuild) << worker;
}

TEST_F(CoreGpuBuilders, OneOfANewerToolkitBuildsNothing) {
  gpu_reports("w");
  builder_reports({Backend::kCuda, "sm_90a", "", 0, "cuda-14"});
  start(20);
  auto jobs = new_jobs();
  EXPECT_TRUE(jobs["b"].empty());
  ASSERT_FALSE(jobs["w"].empty());
  EXPECT_EQ(jobs["w"].front().kind, Job::Kind::kScreen);
}

TEST_F(CoreGpuBuilders, OneForAnotherGpuBuildsNothing) {
  gpu_reports("w");
  builder_reports({Backend::kCuda, "sm_80", "", 0, "cuda-13"});
  start(20);
  EXPECT_TRUE(new_jobs()["b"].empty());
}

}  // namespace
}  // namespace kiln
