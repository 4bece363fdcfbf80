// What the coordinator's core takes for one step, with very much queued and many workers, all of
// them made up: reports that bring results and take new work, the store's word, ticks, requests and
// their plans. The core alone: nothing is encoded, signed or sent.
//   dispatch_bench [--candidates N] [--json] [WORKERS...]     default: 1000000; 10 100 1000
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>

#include "compiler_core/base/check.h"
#include "coordinator/core/core.h"
#include "tests/bench/score.h"

namespace kiln::bench {
namespace {

// CPU time of this thread: a step waits for nothing, and a busy machine is not its fault.
double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

constexpr int kCandidatesAKernel = 500;
constexpr int kReports = 20'000;
constexpr int kTickMs = 100;  // as the coordinator's loop, on a clock that a report moves by 1 ms

double bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

Target cpu() {
  return {Backend::kCpu, "x86-64-v3", "", 0, {}};
}

PlannedKernel planned_kernel(int number) {
  PlannedKernel kernel;
  kernel.key = Digest::of(fmt::format("kernel {}", number));
  kernel.workload = Digest::of(fmt::format("workload {}", number));
  kernel.workload_text = std::string(1'000, 'w');
  for (int i = 0; i < kCandidatesAKernel; ++i)
    kernel.schedules.push_back(
        {"cuda.matmul", {{"tile_m", i % 8}, {"tile_n", i / 8 % 8}, {"tile_k", i / 64}}});
  return kernel;
}

class Scheduler {
 public:
  explicit Scheduler(int workers) : core_(CoreOptions{}), jobs_(workers) {
    for (int w = 0; w < workers; ++w) report(w, {});
  }

  void queue(int candidates) {
    const double before = bytes_in_use();
    for (int i = 0; i < candidates / kCandidatesAKernel; ++i) ask(i);
    queued_ = core_.stats(now_ms_).candidates_queued;
    bytes_ = bytes_in_use() - before;
  }

  // In turn each worker reports its batch as done. Times of the steps alone.
  void work() {
    for (int i = 0; i < kReports; ++i) {
      const int worker = i % static_cast<int>(jobs_.size());
      ++now_ms_;
      report(worker, results_of(jobs_[worker]));
      if (i % kTickMs == 0) step(Tick{}, ticks_);
    }
  }

  void score(Score& score) {
    const std::string name = fmt::format("{} workers, {} candidates queued", jobs_.size(), queued_);
    CHECK(measured_ > kReports / 2, "workers had work");
    for (Times* times : {&reports_, &stores_, &ticks_, &requests_, &plans_}) {
      std::vector<double>& us = times->us;
      std::ranges::sort(us);
      score.add(fmt::format("{}: {}, p50", name, times->what), us[us.size() / 2], "us");
      score.add(fmt::format("{}: {}, p99", name, times->what), us[us.size() * 99 / 100], "us",
                times->goal, fmt::format("max {:.0f} us of {}", us.back(), us.size()));
    }
    score.add(
        name + ": memory", bytes_ / (1 << 20), "MiB", "",
        fmt::format("{:.0f} bytes a candidate", bytes_ / std::max<double>(1, double(queued_))));
  }

 private:
  struct Times {
    const char* what;
    const char* goal;
    std::vector<double> us{};
  };

  void step(Event event, Times& times) {
    const double start_us = cpu_us();
    std::vector<Action> actions = core_.step(now_ms_, std::move(event));
    times.us.push_back(cpu_us() - start_us);
    for (Action& action : actions) {
      if (auto* orders = std::get_if<SendOrders>(&action)) {
        const int worker = std::stoi(orders->worker);
        if (!orders->orders.jobs.empty()) jobs_[worker] = std::move(orders->orders.jobs.front());
      } else if (auto* records = std::get_if<StoreRecords>(&action)) {
        stored_.push_back({records->worker, std::move(records->acks)});
      } else if (auto* kernel = std::get_if<StoreKernel>(&action)) {
        kernels_.push_back(kernel->kernel.key);
      }
    }
  }

  // The store's word.
  void store() {
    for (RecordsStored& stored : std::exchange(stored_, {})) step(std::move(stored), stores_);
    for (const Digest& kernel : std::exchange(kernels_, {}))
      step(KernelStored{kernel, {}}, stores_);
  }

  void ask(int number) {
    CompileRequest request;
    request.request = static_cast<uint64_t>(number) + 1;
    request.graph = Digest::of(fmt::format("graph {}", number));
    request.target = cpu();
    request.mode = Mode::kMaxAutotune;
    request.graph_text = "graph";
    const Digest key = program_key(request.graph, request.target, request.mode);
    RequestReceived asked;
    asked.client = fmt::format("client {}", number % 100);
    asked.request = std::move(request);
    Program program;
    program.key = key;
    program.graph = asked.request.graph;
    program.target = cpu();
    program.mode = Mode::kMaxAutotune;
    step(std::move(asked), requests_);
    step(ProgramLookedUp{key, ""}, requests_);
    PlanFinished plan{key, std::move(program), {}};
    plan.kernels.push_back(planned_kernel(number));
    step(std::move(plan), plans_);
  }

  void report(int worker, std::vector<CandidateResult> results) {
    measured_ += std::ssize(results);
    WorkerReport report;
    report.worker = std::to_string(worker);
    report.target = cpu();
    report.results = std::move(results);
    jobs_[worker] = {};
    WorkerId name = report.worker;
    step(ReportReceived{std::move(name), std::move(report)}, reports_);
    store();
  }

  static std::vector<CandidateResult> results_of(const Job& job) {
    std::vector<CandidateResult> results;
    for (const CandidateJob& candidate : job.candidates) {
      CandidateResult result;
      result.lease = job.lease;
      result.epoch = job.epoch;
      result.kernel_key = job.kernel_key;
      result.index = candidate.index;
      result.compiled = true;
      result.measurement.samples_us.assign(20, 100.0 + candidate.index);
      if (job.kind != Job::Kind::kFinal) {
        result.recipe_json = recipe_to_json(Recipe{});
        result.binary = std::string(1'000, 'b');
      }
      results.push_back(std::move(result));
    }
    return results;
  }

  Core core_;
  int64_t now_ms_ = 1'000, queued_ = 0, measured_ = 0;
  double bytes_ = 0;
  std::vector<Job> jobs_;  // what each worker has
  std::vector<RecordsStored> stored_;
  std::vector<Digest> kernels_;
  Times reports_{"a report and new work", "< 1000"}, stores_{"the store's word", "< 1000"},
      ticks_{"a tick", "< 1000"}, requests_{"a request", "< 1000"},
      plans_{"a plan of 500 candidates", ""};
};

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  bool json = false;
  int candidates = 1'000'000;
  std::vector<int> crowds = {10, 100, 1'000};
  CLI::App app("Steps of the coordinator's core with much queued");
  app.add_flag("--json", json);
  app.add_option("--candidates", candidates)->capture_default_str();
  app.add_option("WORKERS", crowds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  kiln::bench::Score score;
  for (const int workers : crowds) {
    kiln::bench::Scheduler scheduler(workers);
    scheduler.queue(candidates);
    scheduler.work();
    scheduler.score(score);
  }
  fmt::print("{}\n", json ? score.json().dump(2) : score.markdown());
  return 0;
}
