// CoreBench: a Core with a hand-ticked clock and short ways to say what happens to it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/core/core.h"

namespace kiln {

inline Target cpu_target() {
  Target target;
  target.isa = "x86-64-v3";
  return target;
}

inline Digest digest_of(std::string_view name) {
  return Digest::of(name);
}

inline Schedule schedule_of(int index) {
  return Schedule{"cpu.pointwise", {{"vector", index}}};
}

// A kernel of `schedules` candidates.
inline PlannedKernel planned_kernel(const std::string& name, int schedules) {
  PlannedKernel planned;
  planned.key = digest_of("kernel " + name);
  planned.workload = digest_of("workload " + name);
  planned.workload_text = "workload " + name;
  for (int i = 0; i < schedules; ++i) planned.schedules.push_back(schedule_of(i));
  return planned;
}

inline TuningRecord record_of(const PlannedKernel& planned, int index, double us) {
  TuningRecord record;
  record.kernel_key = planned.key;
  record.workload = planned.workload;
  record.schedule = planned.schedules[index];
  record.measurement.samples_us.assign(20, us);
  return record;
}

class CoreBench {
 public:
  explicit CoreBench(CoreOptions options = {}) : options_(std::move(options)), core_(options_) {}

  // One step; what it asks for is appended to `done`.
  void step(Event event) {
    auto actions = core_.step(now_ms, std::move(event));
    done.insert(done.end(), std::make_move_iterator(actions.begin()),
                std::make_move_iterator(actions.end()));
  }
  void tick(int64_t ms) {
    now_ms += ms;
    step(Tick{});
  }
  // An incarnation that is no longer young: who has not reported by now is not coming back.
  void fleet_is_back() {
    step(Tick{});
    now_ms += options_.fleet_returns_ms;
  }

  // Takes the actions of one kind out of `done`.
  template <class T>
  std::vector<T> take() {
    std::vector<T> taken;
    std::vector<Action> rest;
    for (Action& action : done) {
      if (std::holds_alternative<T>(action))
        taken.push_back(std::get<T>(std::move(action)));
      else
        rest.push_back(std::move(action));
    }
    done = std::move(rest);
    return taken;
  }
  // The only action of that kind.
  template <class T>
  T one() {
    auto taken = take<T>();
    EXPECT_EQ(taken.size(), 1u);
    return taken.empty() ? T{} : std::move(taken.front());
  }
  template <class T>
  bool none() {
    return take<T>().empty();
  }

  // ---- clients ----
  CompileRequest ask(const ClientId& client, uint64_t number, const std::string& graph = "g",
                     Mode mode = Mode::kMaxAutotune) {
    CompileRequest request;
    request.request = number;
    request.graph = digest_of(graph);
    request.target = cpu_target();
    request.mode = mode;
    step(RequestReceived{client, request});
    return request;
  }
  void upload(const ClientId& client, CompileRequest request, std::string text = "graph") {
    request.graph_text = std::move(text);
    step(RequestReceived{client, std::move(request)});
  }
  Digest key(const std::string& graph = "g", Mode mode = Mode::kMaxAutotune) const {
    return program_key(digest_of(graph), cpu_target(), mode);
  }
  void miss(const Digest& program) { step(ProgramLookedUp{program, ""}); }
  // From nothing to a task that tunes `kernels` for client "c", request 1.
  void start(std::vector<PlannedKernel> needed, Mode mode = Mode::kMaxAutotune,
             const std::string& graph = "g", const ClientId& client = "c", uint64_t number = 1) {
    const CompileRequest request = ask(client, number, graph, mode);
    miss(key(graph, mode));
    upload(client, request);
    plan(std::move(needed), mode, graph);
  }
  void plan(std::vector<PlannedKernel> needed, Mode mode = Mode::kMaxAutotune,
            const std::string& graph = "g") {
    Program program;
    program.key = key(graph, mode);
    program.graph = digest_of(graph);
    program.target = cpu_target();
    program.mode = mode;
    step(PlanFinished{program.key, std::move(program), std::move(needed)});
  }

  // ---- workers ----
  WorkerReport report_of(const WorkerId& worker, std::vector<LeaseState> leases = {},
                         std::vector<CandidateResult> results = {}) const {
    WorkerReport report;
    report.worker = worker;
    report.target = cpu_target();
    report.leases = std::move(leases);
    report.results = std::move(results);
    return report;
  }
  void report(const WorkerId& worker, std::vector<LeaseState> leases = {},
              std::vector<CandidateResult> results = {}) {
    step(ReportReceived{worker, report_of(worker, std::move(leases), std::move(results))});
  }
  // The same, of a worker with a key.
  void report_of_key(const WorkerId& worker, const std::string& owner,
                     std::vector<CandidateResult> results = {}) {
    step(ReportReceived{worker, report_of(worker, {}, std::move(results)), nullptr, owner});
  }
  // The job of the last orders to `worker`; Job{} when it has none. Takes all orders.
  Job job_of(const WorkerId& worker) {
    Job job;
    for (SendOrders& orders : take<SendOrders>())
      if (orders.worker == worker)
        job = orders.orders.jobs.empty() ? Job{} : std::move(orders.orders.jobs.front());
    return job;
  }
  // The store works: kernels, programs and records are stored at once, until nothing new comes.
  void store_all() {
    for (bool again = true; again;) {
      again = false;
      for (auto& a : take<StoreRecords>()) {
        for (auto& record : a.records) records.push_back(record);
        step(RecordsStored{a.worker, a.acks});
        again = true;
      }
      for (auto& a : take<StoreKernel>()) {
        kernels.push_back(a);
        step(KernelStored{a.kernel.key, {}});
        again = true;
      }
      for (auto& a : take<StoreProgram>()) {
        programs.push_back(a.program);
        step(ProgramStored{a.program.key, {}});
        again = true;
      }
    }
  }
  // Does every job of `worker` until there are none: answer(job) reports its results.
  template <class Answer>
  void work_off(const WorkerId& worker, const Answer& answer) {
    for (Job job = job_of(worker); job.lease != 0; job = job_of(worker)) {
      answer(job);
      auto orders = take<SendOrders>();
      store_all();
      for (auto& each : orders) done.emplace_back(std::move(each));
    }
  }

  int64_t now_ms = 1'000;
  std::vector<Action> done;
  std::vector<TuningRecord> records;  // what store_all() stored
  std::vector<StoreKernel> kernels;
  std::vector<Program> programs;
  Core& core() { return core_; }

 private:
  const CoreOptions options_;
  Core core_;
};

inline std::vector<int> indices(const Job& job) {
  std::vector<int> result;
  for (const CandidateJob& candidate : job.candidates) result.push_back(candidate.index);
  return result;
}

// What a worker says of candidate `index`: it runs in `us`.
inline CandidateResult ok_result(const Job& job, int index, double us, int samples = 20) {
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = index;
  result.compiled = job.kind != Job::Kind::kFinal;
  if (job.kind != Job::Kind::kCompile) result.measurement.samples_us.assign(samples, us);
  if (job.kind != Job::Kind::kFinal) {
    result.recipe_json = recipe_to_json(Recipe{});
    result.binary = "binary " + std::to_string(index);
  }
  return result;
}

inline CandidateResult bad_result(const Job& job, int index, Verdict verdict,
                                  std::string log = "because") {
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = index;
  result.compiled = true;
  result.verdict = verdict;
  result.log = std::move(log);
  return result;
}

}  // namespace kiln
