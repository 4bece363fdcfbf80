// RequestDesk's side of a program flight that goes on: looked up, planned, tuned, stored, answered
// (program_flight.h has the diagram).
#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/core/planted.h"
#include "coordinator/core/requests/partition_choice.h"
#include "coordinator/core/requests/request_desk.h"
#include "coordinator/core/tuning/failure_class.h"

namespace kiln {
namespace {

constexpr int kMaxAsks = 3;  // each client, for one graph

}  // namespace

void RequestDesk::looked_up(int64_t now_ms, const ProgramLookedUp& event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kLookingUp) return;
  if (event.program_json.empty()) return missed(now_ms, *flight, event.read, out);
  hits_ += std::ssize(flight->waiters);
  while (!flight->waiters.empty())
    answer(*flight, RequestId(flight->waiters.begin()->first), CacheOutcome::kHit,
           event.program_json, out);
  detached_.ended(now_ms, event.key, {}, out);
  end(*flight);
}

void RequestDesk::missed(int64_t now_ms, ProgramFlight& flight, const Status& read, Actions& out) {
  std::vector<RequestId> checks;
  for (const auto& [id, waiter] : flight.waiters)
    if (waiter.check_only) checks.push_back(id);
  for (const RequestId& id : checks)
    answer(flight, id, fail(read ? not_cached(flight.target) : read.error()), {}, out);
  misses_ += std::ssize(checks);
  if (!wanted(flight)) return end(flight);
  ++misses_;
  joined_ += std::max<int64_t>(std::ssize(flight.waiters) - 1, 0);
  flight.stage = Stage::kWaitGraph;
  if (const Status possible = floor_.check_target(flight.target);
      !possible && !floor_.may_yet_come(now_ms, flight.target))
    return fail_flight(now_ms, flight, possible.error(), out);
  if (crowded()) return fail_crowded(now_ms, flight, out);
  if (detached_.contains(flight.key)) return start_plan(now_ms, flight, {}, {}, out);
  if (flight.uploaded.empty()) return ask_for_graph(now_ms, flight, out);
  start_plan(now_ms, flight, flight.uploader, std::move(flight.uploaded), out);
}

// Looked at wherever candidates come nearer: many programs may pass one look before the first of
// them has its candidates.
bool RequestDesk::crowded() const {
  return floor_.candidates_queued() >= options_.max_candidates_queued;
}

void RequestDesk::fail_crowded(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  fail_flight(now_ms, flight, overloaded("too many candidates wait for workers"), out);
}

// The next waiting client after the one asked last, so that one that never answers is passed over,
// and in the end answered itself.
void RequestDesk::ask_for_graph(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  while (!flight.waiters.empty()) {
    auto next = flight.asked ? flight.waiters.upper_bound(*flight.asked) : flight.waiters.begin();
    if (next == flight.waiters.end()) next = flight.waiters.begin();
    const RequestId id = next->first;
    flight.asked = id;
    flight.asked_ms = now_ms;
    graphs_due_.add(now_ms + options_.graph_timeout_ms, flight.key);
    if (++next->second.times_asked <= kMaxAsks) {
      out.push_back(AskForGraph{id.first, id.second});
      return;
    }
    answer(flight, id, fail(Code::kDeadlineExceeded, "the graph was asked for and never came"), {},
           out);
  }
  end(flight);
}

// Without an uploader the text is empty: the planner takes the stored flight's.
void RequestDesk::start_plan(int64_t now_ms, ProgramFlight& flight,
                             const std::optional<RequestId>& uploader, std::string text,
                             Actions& out) {
  if (crowded() && !planted(PlantedBug::kBoundOnlyOnMiss)) return fail_crowded(now_ms, flight, out);
  flight.stage = Stage::kPlanning;
  flight.asked.reset();
  flight.uploader = uploader;
  keep_graph(flight, text);
  if (uploader && flight.graph_text.empty()) {
    answer_queued(flight, fail(overloaded("too many graphs are kept already")), out);
    if (!wanted(flight)) return end(flight);
  }
  flight.plan_ticket = floor_.plan_started();
  out.push_back(StartPlan{flight.key, flight.graph, flight.target, flight.mode, std::move(text)});
}

// For those who will ask with `detach`, as far as there is room.
void RequestDesk::keep_graph(ProgramFlight& flight, const std::string& text) {
  drop_graph(flight);
  const auto bytes = static_cast<int64_t>(text.size());
  if (graph_bytes_ + bytes > options_.max_graph_bytes_kept) return;
  graph_bytes_ += bytes;
  flight.graph_text = text;
}

void RequestDesk::drop_graph(ProgramFlight& flight) {
  graph_bytes_ -= static_cast<int64_t>(flight.graph_text.size());
  flight.graph_text = {};
}

void RequestDesk::plan_finished(int64_t now_ms, PlanFinished event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kPlanning) return;
  // The ticket is given back last: until then the floor keeps what the plan may not know.
  const uint64_t ticket = flight->plan_ticket;
  if (!wanted(*flight))
    end(*flight);
  else if (!event.program)
    plan_failed(now_ms, *flight, event.program.error(), out);
  else
    start_tuning(now_ms, *flight, std::move(event), out);
  floor_.plan_finished(ticket);
}

void RequestDesk::plan_failed(int64_t now_ms, ProgramFlight& flight, const Error& error,
                              Actions& out) {
  if (error.code != Code::kInvalidArgument) return fail_flight(now_ms, flight, error, out);
  // The graph was not what its digest says: only who sent it is to blame.
  drop_graph(flight);
  const auto uploader = flight.uploader;
  if (!uploader) detached_.ended(now_ms, flight.key, fail(error), out);  // it was the stored one
  if (planted(PlantedBug::kBlameEveryone)) return fail_flight(now_ms, flight, error, out);
  if (uploader && flight.waiters.contains(*uploader))
    answer(flight, *uploader, fail(error), {}, out);
  if (!wanted(flight)) return end(flight);
  flight.stage = Stage::kWaitGraph;
  if (detached_.contains(flight.key)) return start_plan(now_ms, flight, {}, {}, out);
  ask_for_graph(now_ms, flight, out);
}

void RequestDesk::start_tuning(int64_t now_ms, ProgramFlight& flight, PlanFinished event,
                               Actions& out) {
  const bool tunes = std::ranges::any_of(event.kernels, [](const auto& k) { return !k.cached; });
  if (tunes && crowded() && !planted(PlantedBug::kBoundOnlyOnMiss))
    return fail_crowded(now_ms, flight, out);
  flight.stage = Stage::kTuning;
  flight.program = *std::move(event.program);
  flight.program.kernels.clear();
  flight.alternatives = std::move(event.alternatives);
  progress_due_.add(now_ms, flight.key);
  for (const PlannedKernel& planned : event.kernels) {
    ProgramKernel kernel;
    kernel.key = planned.key;
    flight.program.kernels.push_back(planned.cached.value_or(kernel));
    if (!planned.cached) flight.pending.push_back(planned.key);
  }
  const Demand demand = demand_of(flight);
  for (PlannedKernel& planned : event.kernels)
    if (!planned.cached)
      floor_.need(now_ms, flight.key, std::move(planned), demand, flight.target, flight.mode, out);
  if (flight.pending.empty()) return kernels_done(now_ms, flight, out);
  save_if_asked(now_ms, flight, out);
}

void RequestDesk::kernels_settled(int64_t now_ms, Actions& out) {
  for (const Digest& key : floor_.take_settled()) {
    const KernelFlight* kernel = floor_.find(key);
    if (kernel == nullptr) continue;
    const auto programs = kernel->programs();  // releasing them changes it, and may end the flight
    for (const auto& [program, demand] : programs) {
      ProgramFlight* flight = find(program);
      CHECK(flight != nullptr, "a kernel flight's programs are open");
      kernel_settled(now_ms, *flight, *kernel, out);
    }
  }
}

void RequestDesk::kernel_settled(int64_t now_ms, ProgramFlight& flight, const KernelFlight& kernel,
                                 Actions& out) {
  const Digest key = kernel.key();
  if (kernel.stage() == KernelFlight::Stage::kFailed) {
    flight.failed.push_back(key);
    if (!has_way_without(flight.failed, flight.program, flight.alternatives)) {
      Error error = kernel.error();
      // Not for good, however this one failed: the other way may do.
      if (flight.some_way_untried) error.code = Code::kUnavailable;
      return fail_flight(now_ms, flight, error, out);
    }
    if (failure_class(kernel.error().code) == FailureClass::kTransient)
      flight.some_way_untried = true;
  } else {
    for (ProgramKernel& slot : flight.program.kernels)
      if (slot.key == key) slot = kernel.winner();
    if (!kernel.stored()) flight.unstored.push_back(key);
  }
  std::erase(flight.pending, key);
  floor_.release(flight.key, key);
  if (flight.pending.empty()) kernels_done(now_ms, flight, out);
}

void RequestDesk::kernels_done(int64_t now_ms, ProgramFlight& flight, Actions& out) {
  flight.stage = Stage::kStoring;
  flight.program =
      fastest_way(flight.failed, std::move(flight.program), std::move(flight.alternatives));
  flight.program_json = program_to_json(flight.program);
  // Answered, since it works; what is stored would be the choice for good.
  if (flight.some_way_untried && !planted(PlantedBug::kChooseTooEarly))
    return finish(now_ms, flight, fail(Code::kUnavailable, "a way to cut it was not tuned"), out);
  // A program whose kernels are not all stored would be found again without its binaries.
  const bool all_stored =
      std::ranges::none_of(flight.program.kernels, [&](const ProgramKernel& kernel) {
        return std::ranges::find(flight.unstored, kernel.key) != flight.unstored.end();
      });
  if (!all_stored && !planted(PlantedBug::kStoreWithoutKernels))
    return finish(now_ms, flight, fail(Code::kUnavailable, "a kernel could not be stored"), out);
  out.push_back(StoreProgram{std::move(flight.program)});
}

void RequestDesk::program_stored(int64_t now_ms, const ProgramStored& event, Actions& out) {
  ProgramFlight* flight = find(event.key);
  if (flight == nullptr || flight->stage != Stage::kStoring) return;
  if (!event.status) ++store_failures_;
  Status stored = event.status;  // a store that failed may work again later
  if (!stored) stored.error().code = Code::kUnavailable;
  finish(now_ms, *flight, stored, out);
}

void RequestDesk::finish(int64_t now_ms, ProgramFlight& flight, const Status& stored,
                         Actions& out) {
  while (!flight.waiters.empty()) {
    const RequestId id = flight.waiters.begin()->first;
    answer(flight, id, id == flight.starter ? CacheOutcome::kTuned : CacheOutcome::kJoined,
           flight.program_json, out, !stored.has_value() && !planted(PlantedBug::kCallItStored));
  }
  if (!stored) out.push_back(KeepProgram{flight.program_json});
  detached_.ended(now_ms, flight.key, stored, out);
  end(flight);
}

void RequestDesk::fail_flight(int64_t now_ms, ProgramFlight& flight, const Error& error,
                              Actions& out) {
  // What the program itself is to blame for stays so; an absent worker or store does not.
  if (failure_class(error.code) == FailureClass::kTerminal)
    failures_.remember(now_ms, flight.key, error);
  while (!flight.waiters.empty())
    answer(flight, RequestId(flight.waiters.begin()->first), fail(error), {}, out);
  detached_.ended(now_ms, flight.key, fail(error), out);
  end(flight);
}

}  // namespace kiln
