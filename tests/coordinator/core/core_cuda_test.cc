// GPUs: what "cuda:sm_90a" from a machine without one means, and how much a GPU is leased at once.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

Target gpu(const std::string& isa, const std::string& model = "", int units = 0,
           const std::string& toolkit = "") {
  return {Backend::kCuda, isa, model, units, toolkit};
}

void report_gpu(CoreBench& bench, const WorkerId& id, const Target& target, bool draining = false,
                int slots = 4) {
  WorkerReport report = bench.report_of(id);
  report.target = target;
  report.slots = slots;
  report.draining = draining;
  bench.step(ReportReceived{id, std::move(report)});
}

// The key that is looked up when `target` is asked for.
Digest looked_up(CoreBench& bench, const Target& target, const ClientId& client = "c") {
  CompileRequest request;
  request.request = 1;
  request.graph = digest_of("g");
  request.target = bench.core().resolve(target);
  request.mode = Mode::kMaxAutotune;
  bench.step(RequestReceived{client, request});
  const auto asked = bench.take<LookUpProgram>();
  return asked.empty() ? Digest{} : asked.front().key;
}

Digest key_for(const Target& target) {
  return program_key(digest_of("g"), target, Mode::kMaxAutotune);
}

const Target kH200 = gpu("sm_90a", "NVIDIA H200", 132, "cuda-13");
const Target kH100 = gpu("sm_90a", "NVIDIA H100", 114, "cuda-12");

TEST(CoreCuda, ATargetNamedWithoutAGpuHasTheKeyOfThoseWhoHaveOne) {
  CoreBench bench;
  report_gpu(bench, "w2", kH200);
  EXPECT_EQ(looked_up(bench, gpu("sm_90a")), key_for(kH200));
  EXPECT_EQ(looked_up(bench, kH200, "replica"), Digest{}) << "it joins the same task";
}

TEST(CoreCuda, TheFirstWorkerByNameDecides) {
  for (const bool h200_first : {false, true}) {
    CoreBench bench;
    report_gpu(bench, h200_first ? "a" : "b", kH200);
    report_gpu(bench, h200_first ? "b" : "a", kH100);
    EXPECT_EQ(looked_up(bench, gpu("sm_90a")), key_for(h200_first ? kH200 : kH100));
  }
}

TEST(CoreCuda, AWorkerOfThatVeryArchitectureComesBeforeOneThatRunsItToo) {
  CoreBench bench;
  const Target a10 = gpu("sm_86", "NVIDIA A10", 72, "cuda-13");
  const Target a100 = gpu("sm_80", "NVIDIA A100", 108, "cuda-13");
  report_gpu(bench, "a", a10);
  Target as_a10 = a10;
  as_a10.isa = "sm_80";
  EXPECT_EQ(looked_up(bench, gpu("sm_80")), key_for(as_a10));
  report_gpu(bench, "b", a100);
  EXPECT_EQ(looked_up(bench, gpu("sm_80"), "d"), key_for(a100));
}

TEST(CoreCuda, WithoutAFittingWorkerTheTargetStandsAsItIs) {
  CoreBench bench;
  bench.report("cpu worker");
  report_gpu(bench, "leaving", kH200, true);
  EXPECT_EQ(looked_up(bench, gpu("sm_90a")), key_for(gpu("sm_90a")));
  bench.miss(key_for(gpu("sm_90a")));
  const Answer answer = bench.one<Answer>();
  ASSERT_FALSE(answer.reply.outcome.has_value());
  EXPECT_EQ(answer.reply.outcome.error().code, Code::kUnavailable);
  const std::string& message = answer.reply.outcome.error().message;
  EXPECT_NE(message.find("cuda:sm_90a"), std::string::npos) << message;
  EXPECT_NE(message.find("cpu:x86-64-v3"), std::string::npos) << message;
}

TEST(CoreCuda, ALookUpWithoutAFittingWorkerSaysThatNoDeviceWasMeant) {
  CoreBench bench;
  bench.fleet_is_back();
  bench.report("cpu worker");
  CompileRequest request;
  request.graph = digest_of("g");
  request.target = bench.core().resolve(gpu("sm_90a"));
  request.check_only = true;
  bench.step(RequestReceived{"c", request});
  bench.miss(bench.one<LookUpProgram>().key);
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kNotFound);
  for (const char* part : {"cuda:sm_90a", "names none", "cpu:x86-64-v3"})
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

// Begun at once it would be tuned under a key that nobody asks for later.
TEST(CoreCuda, WhatNamesNoDeviceIsAskedAgainWhileWorkersAreOnTheirWay) {
  CoreBench bench;
  bench.step(Tick{});
  EXPECT_EQ(looked_up(bench, gpu("sm_90a")), Digest{});
  const Error error = bench.one<Answer>().reply.outcome.error();
  EXPECT_EQ(error.code, Code::kOverloaded);
  EXPECT_GT(error.retry_after_ms, 0);
  report_gpu(bench, "w", kH200);
  EXPECT_EQ(looked_up(bench, gpu("sm_90a")), key_for(kH200));
}

TEST(CoreCuda, ADriverThatIsTooOldIsSeenInTheAnswer) {
  CoreBench bench;
  bench.fleet_is_back();
  report_gpu(bench, "w", kH100);
  looked_up(bench, kH200);
  bench.miss(key_for(kH200));
  const std::string message = bench.one<Answer>().reply.outcome.error().message;
  EXPECT_NE(message.find("cuda:sm_90a (cuda-13)"), std::string::npos) << message;
  EXPECT_NE(message.find("cuda:sm_90a (cuda-12)"), std::string::npos) << message;
}

TEST(CoreCuda, NamedFactsAreLeftAsTheyAre) {
  CoreBench bench;
  report_gpu(bench, "w", kH200);
  const Target asked = gpu("sm_90a", "NVIDIA H20", 78, "cuda-13");
  EXPECT_EQ(looked_up(bench, asked), key_for(asked));
}

class LeasesOnGpus : public ::testing::TestWithParam<int> {
 protected:
  // Plans a program of `kernels` kernels with twelve candidates each for as many GPUs as GetParam()
  // says; returns the candidates of every job that they got, by worker.
  std::map<WorkerId, std::vector<size_t>> jobs(int kernels, int slots) {
    CoreBench bench;
    for (int i = 0; i < GetParam(); ++i)
      report_gpu(bench, "w" + std::to_string(i), kH200, false, slots);
    const Digest key = looked_up(bench, kH200);
    bench.miss(key);
    CompileRequest request;
    request.request = 1;
    request.graph = digest_of("g");
    request.target = kH200;
    request.mode = Mode::kMaxAutotune;
    bench.upload("c", request);
    bench.done.clear();
    Program program;
    program.key = key;
    program.target = kH200;
    std::vector<PlannedKernel> planned;
    for (int i = 0; i < kernels; ++i)
      planned.push_back(planned_kernel(("k" + std::to_string(i)).c_str(), 12));
    bench.step(PlanFinished{key, program, std::move(planned)});
    std::map<WorkerId, std::vector<size_t>> jobs;
    for (const SendOrders& send : bench.take<SendOrders>())
      for (const Job& job : send.orders.jobs) jobs[send.worker].push_back(job.candidates.size());
    return jobs;
  }
};

TEST_P(LeasesOnGpus, ASingleKernelIsDividedOneLeaseEach) {
  const auto leased = jobs(1, 4);
  EXPECT_EQ(std::ssize(leased), GetParam());
  for (const auto& [worker, sizes] : leased)
    EXPECT_EQ(sizes, std::vector<size_t>{12u / GetParam()}) << worker;
}

// Its inputs and its reference are then made once.
TEST_P(LeasesOnGpus, OfManyKernelsEachIsOneLease) {
  for (const auto& [worker, sizes] : jobs(9, 2))
    EXPECT_EQ(sizes, (std::vector<size_t>{12, 12})) << worker;
}

INSTANTIATE_TEST_SUITE_P(OneToThree, LeasesOnGpus, ::testing::Values(1, 2, 3));

// Two GPUs whose candidates a third worker builds.
class BuiltForGpus : public ::testing::Test {
 protected:
  BuiltForGpus() {
    report("w0");
    report("w1");
    report("b");
    const Digest key = looked_up(bench, kH200);
    bench.miss(key);
    CompileRequest request;
    request.request = 1;
    request.graph = digest_of("g");
    request.target = kH200;
    request.mode = Mode::kMaxAutotune;
    bench.upload("c", request);
    Program program;
    program.key = key;
    program.target = kH200;
    bench.step(PlanFinished{key, program, {planned_kernel("k", kCandidates)}});
  }
  void report(const WorkerId& id, std::vector<CandidateResult> results = {}) {
    WorkerReport report = bench.report_of(id, {}, std::move(results));
    report.builds = true;
    report.target = kH200;
    report.slots = 4;
    report.compilers = 0;
    if (id == "b") {
      report.target = {};
      report.slots = 0;
      report.compilers = kCandidates;
      report.builds_for = {gpu("sm_90a", "", 0, "cuda-13")};
    }
    bench.step(ReportReceived{id, std::move(report)});
  }
  // The candidates that are new to each worker.
  std::map<WorkerId, std::vector<std::pair<Job, int>>> leased() {
    std::map<WorkerId, std::vector<std::pair<Job, int>>> leased;
    for (const SendOrders& send : bench.take<SendOrders>())
      for (const Job& job : send.orders.jobs)
        if (known.insert(job.lease).second)
          for (const CandidateJob& candidate : job.candidates)
            leased[send.worker].emplace_back(job, candidate.index);
    return leased;
  }
  // The next `count` of what the builder has are built.
  void build(size_t count) {
    auto jobs = leased();
    for (const auto& lease : jobs["b"]) at_builder.push_back(lease);
    std::vector<CandidateResult> results;
    for (; count > 0 && !at_builder.empty(); --count) {
      const auto& [job, index] = at_builder.front();
      results.push_back(ok_result(job, index, 0));
      results.back().measurement = {};
      results.back().binary = "built " + std::to_string(index);
      at_builder.erase(at_builder.begin());
    }
    report("b", std::move(results));
  }

  static constexpr int kCandidates = 20;
  CoreBench bench;
  std::set<uint64_t> known;
  std::vector<std::pair<Job, int>> at_builder;
};

TEST_F(BuiltForGpus, AWorkloadGoesToOneOfThemAndNotInCrumbs) {
  build(1);
  EXPECT_TRUE(leased().empty()) << "there will be more of it";
  build(7);
  auto first = leased();
  ASSERT_EQ(first.size(), 1u) << "the other one has not its inputs";
  const auto [home, candidates] = *first.begin();
  EXPECT_GE(candidates.size(), 4u) << "some 50 ms, at 10 ms each until it is known better";
  build(7);
  EXPECT_EQ(leased().count(home == "w0" ? "w1" : "w0"), 0u);
  build(kCandidates);
  auto rest = leased();
  size_t left = 0;
  for (const auto& [worker, taken] : rest) left += taken.size();
  EXPECT_GT(left, 0u) << "all is built: what waits is divided, since one of them has nothing";
}

}  // namespace
}  // namespace kiln
