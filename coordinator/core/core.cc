#include "coordinator/core/core.h"

#include "coordinator/core/requests/request_desk.h"
#include "coordinator/core/scheduling/tuning_floor.h"

namespace kiln {

// Routes each event to the desk (clients, programs) or the floor (workers, kernels); the order at
// the end of a step is: kernels settled -> programs go on -> work is leased -> orders are sent.
struct Core::State {
  explicit State(const CoreOptions& given) : options(given) {}

  void on(RequestReceived event) {
    desk.request(now_ms, event.client, event.user, std::move(event.request), out);
  }
  void on(const RequestCancelled& event) {
    desk.cancel(now_ms, {event.client, event.request}, out);
  }
  void on(const ClientGone& event) { desk.client_gone(now_ms, event.client, out); }
  void on(const ProgramLookedUp& event) { desk.looked_up(now_ms, event, out); }
  void on(PlanFinished event) { desk.plan_finished(now_ms, std::move(event), out); }
  void on(ReportReceived event) {
    floor.report(now_ms, event.worker, std::move(event.report), out);
  }
  void on(const WorkerGone& event) { floor.worker_gone(now_ms, event.worker, out); }
  void on(const DrainRequested& event) { floor.drain(event.worker); }
  void on(const KernelStored& event) { floor.kernel_stored(event.kernel, event.status); }
  void on(const ProgramStored& event) { desk.program_stored(now_ms, event, out); }
  void on(const RecordsStored& event) { floor.records_stored(event.worker, event.acks); }
  void on(const FlightStored& event) { desk.flight_stored(now_ms, event, out); }
  void on(const FlightRecovered& event) { desk.flight_recovered(event, out); }
  void on(ForgetFailures) { desk.forget_failures(out); }
  void on(Tick) {
    floor.tick(now_ms, out);
    desk.tick(now_ms, out);
  }

  const CoreOptions options;
  int64_t now_ms = -1;  // before the first step
  Actions out;
  TuningFloor floor{options};
  RequestDesk desk{options, floor};
};

Core::Core(CoreOptions options) : state_(std::make_unique<State>(options)) {}
Core::~Core() = default;

std::vector<Action> Core::step(int64_t now_ms, const Event& event) {
  return step(now_ms, Event(event));
}

std::vector<Action> Core::step(int64_t now_ms, Event&& event) {
  State& s = *state_;
  if (s.now_ms < 0) s.floor.life_begins(now_ms);
  s.now_ms = now_ms;
  std::visit([&s](auto& e) { s.on(std::move(e)); }, event);
  s.desk.kernels_settled(now_ms, s.out);
  s.floor.dispatch(now_ms, s.out);
  return std::exchange(s.out, {});
}

Target Core::resolve(const Target& target) const {
  return state_->floor.resolve(target);
}

bool Core::is_open(const ClientId& client, uint64_t request) const {
  return state_->desk.is_open({client, request});
}

Stats Core::stats(int64_t now_ms) const {
  Stats stats;
  state_->desk.add_stats(stats);
  state_->floor.add_stats(now_ms, stats);
  return stats;
}

}  // namespace kiln
