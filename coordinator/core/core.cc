#include "coordinator/core/core.h"

#include "coordinator/core/requests/compile_requests.h"
#include "coordinator/core/scheduling/tuning_scheduler.h"

namespace kiln {

// Routes each event to the requests (clients, programs) or the scheduler (workers, kernels); the
// order at the end of a step is: kernels settled -> programs go on -> work is leased -> orders are
// sent.
struct Core::State {
  explicit State(const CoreOptions& given) : options(given) {}

  void on(RequestReceived event) { requests.request(now_ms, std::move(event), out); }
  void on(const RequestCancelled& event) {
    requests.cancel(now_ms, {event.client, event.request}, out);
  }
  void on(const ClientGone& event) { requests.client_gone(now_ms, event.client, out); }
  void on(const ProgramLookedUp& event) { requests.looked_up(now_ms, event, out); }
  void on(PlanFinished event) { requests.plan_finished(now_ms, std::move(event), out); }
  void on(ReportReceived event) { scheduler.report(now_ms, std::move(event), out); }
  void on(const WorkerGone& event) { scheduler.worker_gone(now_ms, event.worker, out); }
  void on(const DrainRequested& event) { scheduler.drain(event.worker); }
  void on(const KernelStored& event) { scheduler.kernel_stored(event.kernel, event.status); }
  void on(const ProgramStored& event) { requests.program_stored(now_ms, event, out); }
  void on(const RecordsStored& event) { scheduler.records_stored(event.worker, event.acks); }
  void on(const DetachedStored& event) { requests.detached_stored(now_ms, event, out); }
  void on(const DetachedRecovered& event) { requests.detached_recovered(event, out); }
  void on(ForgetFailures) { requests.forget_failures(out); }
  void on(const CancelDetached& event) { requests.cancel_detached(event.program, out); }
  void on(const TakingBackBegan& event) { requests.taking_back_began(now_ms, event, out); }
  void on(TakingBackEnded) { requests.taking_back_ended(); }
  void on(const KernelWithdrawn& event) { requests.kernel_withdrawn(now_ms, event, out); }
  void on(Tick) {
    scheduler.tick(now_ms, out);
    requests.tick(now_ms, out);
  }

  const CoreOptions options;
  int64_t now_ms = -1;  // before the first step
  Actions out;
  TuningScheduler scheduler{options};
  CompileRequests requests{options, scheduler};
};

Core::Core(const CoreOptions& options) : state_(std::make_unique<State>(options)) {}
Core::~Core() = default;

std::vector<Action> Core::step(int64_t now_ms, const Event& event) {
  return step(now_ms, Event(event));
}

std::vector<Action> Core::step(int64_t now_ms, Event&& event) {
  State& s = *state_;
  if (s.now_ms < 0) s.scheduler.incarnation_begins(now_ms);
  s.now_ms = now_ms;
  std::visit([&s](auto& e) { s.on(std::move(e)); }, event);
  s.requests.kernels_settled(now_ms, s.out);
  s.scheduler.dispatch(now_ms, s.out);
  return std::exchange(s.out, {});
}

Target Core::resolve(const Target& target) const {
  return state_->scheduler.resolve(target);
}

bool Core::is_open(const ClientId& client, uint64_t request) const {
  return state_->requests.is_open({client, request});
}

Stats Core::stats(int64_t now_ms, const Viewer& viewer) const {
  Stats stats;
  state_->requests.add_stats(stats, viewer);
  state_->scheduler.add_stats(now_ms, stats);
  return stats;
}

std::vector<OpenProgram> Core::open_programs(int64_t now_ms, size_t limit) const {
  return state_->requests.open_programs(now_ms, limit);
}

}  // namespace kiln
