#include "tests/simulation/tuning_fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <functional>
#include <memory>
#include <queue>
#include <sstream>
#include <unordered_map>

#include "coordinator/core/core.h"
#include "tests/simulation/fleet_site.h"
#include "worker/agent/held_leases.h"

namespace kiln::simulation {
namespace {

constexpr int64_t kTickUs = 100'000;
constexpr int64_t kReportUs = 1'000'000;
constexpr int64_t kMostUs = int64_t{3'600} * 1'000'000;

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// A site with the agent that speaks for it: reports whenever there is something new, and every
// second.
class SimulatedWorker {
 public:
  SimulatedWorker(WorkerReport self, FleetWorld& world, const FleetCosts& costs,
                  std::function<void(WorkerReport report)> send)
      : self_(self),
        held_(std::move(self)),
        world_(world),
        costs_(costs),
        send_(std::move(send)),
        site_(self_.compilers, world, costs, 0,
              {[this](uint64_t lease) { held_.step(lease); },
               [this](CandidateResult result) { finished(std::move(result)); }}) {}

  const WorkerReport& self() const { return self_; }
  const FleetSite::Figures& figures() const { return site_.figures(); }
  void live() {
    report();
    world_.after(kReportUs, [this] { live(); });
  }
  void ordered(WorkerOrders orders) {
    HeldLeases::Changes changes = held_.apply(std::move(orders));
    for (const uint64_t lease : changes.drop) site_.drop(lease);
    if (!changes.start.empty()) site_.start(std::move(changes.start));
  }

 private:
  void finished(CandidateResult result) {
    if (!held_.finish(std::move(result)) || std::exchange(report_due_, true)) return;
    world_.after(us_of(costs_.latency) / 4, [this] { report(); });
  }
  void report() {
    report_due_ = false;
    send_(held_.report());
  }

  const WorkerReport self_;
  HeldLeases held_;
  FleetWorld& world_;
  const FleetCosts& costs_;
  const std::function<void(WorkerReport report)> send_;
  bool report_due_ = false;
  FleetSite site_;
};

// The clock, the coordinator with its store and planner, and the workers.
class Run final : public FleetWorld {
 public:
  Run(const FleetShape& shape, const FleetWork& work, const FleetCosts& costs)
      : work_(work), costs_(costs), core_(CoreOptions{}) {
    for (int i = 0; i < shape.devices; ++i)
      add_worker(fleet_report(fmt::format("gpu{:04}", i), shape.cores, false, costs.slots));
    for (int i = 0; i < shape.builders; ++i)
      add_worker(
          fleet_report(fmt::format("builder{:04}", i), shape.builder_cores, true, costs.slots));
  }

  FleetFigures run() {
    for (const auto& [name, worker] : workers_) worker->live();
    after(kTickUs, [this] { tick(); });
    const int64_t asked_us = 2'000'000;
    after(asked_us, [this] {
      for (int i = 0; i < work_.programs; ++i) ask(i);
    });
    while (figures_.answers < work_.programs && now_us_ < kMostUs) {
      const Timer timer = timers_.top();
      timers_.pop();
      now_us_ = timer.at_us;
      timer.run();
    }
    figures_.seconds = static_cast<double>(now_us_ - asked_us) / 1e6;
    add_figures();
    return figures_;
  }

  // ---- FleetWorld ----
  int64_t now_us() const override { return now_us_; }
  void after(int64_t us, std::function<void()> run) override {
    timers_.push({now_us_ + us, ++timers_made_, std::move(run)});
  }
  const FleetKernel& kernel(const Digest& key) override { return kernels_.at(key); }

 private:
  struct Timer {
    int64_t at_us = 0;
    uint64_t order = 0;
    std::function<void()> run;
    bool operator>(const Timer& other) const {
      return std::tie(at_us, order) > std::tie(other.at_us, other.order);
    }
  };

  void add_worker(WorkerReport self) {
    const std::string name = self.worker;
    workers_[name] = std::make_unique<SimulatedWorker>(
        std::move(self), *this, costs_, [this](WorkerReport report) {
          arrive(ReportReceived{report.worker, std::move(report)});
        });
  }

  void tick() {
    after(kTickUs, [this] { tick(); });
    step(Tick{});
  }

  // A message is on its way, then waits for the coordinator's one thread.
  void arrive(Event event) {
    after(us_of(costs_.latency), [this, event = std::make_shared<Event>(std::move(event))] {
      free_us_ = std::max(free_us_, now_us_) + us_of(costs_.handling);
      after(free_us_ - now_us_, [this, event] { step(std::move(*event)); });
    });
  }

  void step(Event event) {
    const double start_s = cpu_s();
    std::vector<Action> actions = core_.step(now_us_ / 1'000, std::move(event));
    figures_.core_cpu_s += cpu_s() - start_s;
    for (Action& action : actions) act(action);
  }

  void act(Action& action) {
    if (auto* send = std::get_if<SendOrders>(&action)) {
      SimulatedWorker* worker = workers_.at(send->worker).get();
      after(us_of(costs_.latency),
            [worker, orders = std::make_shared<WorkerOrders>(std::move(send->orders))] {
              worker->ordered(std::move(*orders));
            });
    } else if (auto* store = std::get_if<StoreRecords>(&action)) {
      stored(RecordsStored{store->worker, std::move(store->acks)});
    } else if (auto* kernel = std::get_if<StoreKernel>(&action)) {
      stored(KernelStored{kernel->kernel.key, {}});
    } else if (auto* program = std::get_if<StoreProgram>(&action)) {
      stored(ProgramStored{program->task, {}});
    } else if (auto* look = std::get_if<LookUpProgram>(&action)) {
      stored(ProgramLookedUp{look->key, ""});
    } else if (auto* plan = std::get_if<StartPlan>(&action)) {
      after(us_of(costs_.plan),
            [this, key = plan->key, graph = plan->graph] { planned(key, graph); });
    } else if (std::holds_alternative<Answer>(action)) {
      ++figures_.answers;
    }
  }

  void stored(Event event) {
    after(us_of(costs_.store),
          [this, event = std::make_shared<Event>(std::move(event))] { step(std::move(*event)); });
  }

  void ask(int number) {
    CompileRequest request;
    request.request = static_cast<uint64_t>(number) + 1;
    request.graph_text = fmt::format("program {}", number);
    request.graph = Digest::of(request.graph_text);
    request.target = fleet_target();
    request.mode = Mode::kMaxAutotune;
    graphs_[request.graph] = number;
    arrive(RequestReceived{fmt::format("client {}", number), std::move(request)});
  }

  void planned(const Digest& key, const Digest& graph) {
    Program program;
    program.key = key;
    program.graph = graph;
    program.target = fleet_target();
    program.mode = Mode::kMaxAutotune;
    PlanFinished plan{key, std::move(program), {}};
    const int number = graphs_.at(graph);
    const auto add = [&](FleetKernel kernel) {
      plan.kernels.push_back(kernel.planned());
      kernels_.emplace(plan.kernels.back().key, std::move(kernel));
    };
    for (int i = 0; i < std::ssize(work_.recorded); ++i)
      if (const RecordedKernel& recorded = work_.recorded[static_cast<size_t>(i)];
          recorded.program == number)
        add({i, recorded, costs_.variants});
    for (int i = 0; work_.recorded.empty() && i < work_.kernels; ++i)
      add({number * work_.kernels + i, work_.candidates, costs_});
    step(std::move(plan));
  }

  void add_figures() {
    int64_t first_us = kMostUs, last_us = 0, last_build_us = 0;
    double devices = 0, compilers = 0, begun_s = 2;
    for (const auto& [name, worker] : workers_) {
      const FleetSite::Figures& seen = worker->figures();
      figures_.leases += seen.leases;
      figures_.candidates += seen.tried;
      figures_.builds += seen.builds;
      figures_.opens += seen.opens;
      figures_.device_s += static_cast<double>(seen.busy_us) / 1e6;
      figures_.waited_s += static_cast<double>(seen.waited_us) / 1e6;
      figures_.compile_s += static_cast<double>(seen.compile_us) / 1e6;
      if (seen.last_us > 0) first_us = std::min(first_us, seen.first_us);
      last_us = std::max(last_us, seen.last_us);
      last_build_us = std::max(last_build_us, seen.last_build_us);
      devices += !worker->self().only_builds();
      compilers += worker->self().compilers;
    }
    figures_.busy = figures_.device_s / devices /
                    (static_cast<double>(std::max<int64_t>(1, last_us - first_us)) / 1e6);
    figures_.compiling =
        figures_.compile_s / compilers / (static_cast<double>(last_build_us) / 1e6 - begun_s);
  }

  const FleetWork work_;
  const FleetCosts costs_;
  Core core_;
  FleetFigures figures_;
  int64_t now_us_ = 1'000;
  int64_t free_us_ = 0;  // when the coordinator has handled what has come
  uint64_t timers_made_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::map<std::string, std::unique_ptr<SimulatedWorker>> workers_;
  std::unordered_map<Digest, int> graphs_;
  std::unordered_map<Digest, FleetKernel> kernels_;
};

}  // namespace

FleetFigures tune(const FleetShape& shape, const FleetWork& work, const FleetCosts& costs) {
  return Run(shape, work, costs).run();
}

std::vector<RecordedKernel> read_kernels(std::istream& text) {
  std::vector<RecordedKernel> kernels;
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    std::string what;
    fields >> what;
    if (what == "kernel") {
      RecordedKernel& kernel = kernels.emplace_back();
      fields >> kernel.program >> kernel.open_ms >> kernel.final_ms;
    } else if (what == "candidate" && !kernels.empty()) {
      RecordedKernel::Candidate& candidate = kernels.back().candidates.emplace_back();
      fields >> candidate.build_ms >> candidate.try_ms >> candidate.us >> std::ws;
      std::getline(fields, candidate.schedule);
    }
    if (fields.bad() || what.empty()) break;
  }
  return kernels;
}

FleetShape parse_shape(const std::string& name) {
  FleetShape shape{0, 0, 0, 0};
  const char* at = name.data();
  const char* const end = at + name.size();
  const auto number = [&](int& value) {
    const auto [after, error] = std::from_chars(at, end, value);
    const bool good = error == std::errc() && value > 0;
    at = after;
    return good;
  };
  const auto follows = [&](char sign) {
    const bool does = at < end && *at == sign;
    at += does;
    return does;
  };
  const FleetShape none{0, 0, 0, 0};
  int cores = 0, builders = 0;
  if (!number(shape.devices) || !follows('x') || !number(cores)) return none;
  shape.cores = std::max(1, cores / shape.devices);
  if (!follows('+')) return at == end ? shape : none;
  if (!number(builders)) return none;
  const bool are_several = follows('x');
  shape.builders = are_several ? builders : 1;
  shape.builder_cores = builders;
  if (are_several && !number(shape.builder_cores)) return none;
  return at == end ? shape : none;
}

}  // namespace kiln::simulation
