#include "tests/simulation/reason_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln::simulation {
namespace {

constexpr int kAsks = 3;               // for the graph, before a client is given up
constexpr int64_t kFirstStepMs = 100;  // until the first step of an incarnation

bool says(const Error& error, const char* words) {
  return error.message.find(words) != std::string::npos;
}

}  // namespace

void ReasonWatch::incarnation_begins(int64_t now_ms) {
  began_ms_ = now_ms;
  workers_.clear();
  targets_seen_.clear();
  sent_garbage_.clear();
  asks_.clear();
  unstored_.clear();
  asked_.clear();
  unserved_.clear();
  troubled_.clear();
  withdrawn_.clear();
}

void ReasonWatch::saw(int64_t now_ms, const Event& event) {
  if (const auto* e = std::get_if<RequestReceived>(&event))
    if (const std::string& text = e->request.graph_text;
        !text.empty() && text != truth_.by_graph(e->request.graph).graph_text)
      sent_garbage_.emplace(e->client, e->request.request);
  if (const auto* e = std::get_if<ReportReceived>(&event)) {
    Known& worker = workers_[e->worker];
    worker.target = e->report.target;
    worker.seen_ms = now_ms;
    worker.failed = worker.failed || e->report.device_errors > 0;
    worker.drains = worker.drains || e->report.draining;
    targets_seen_.insert(e->report.target.isa);
  }
  if (const auto* e = std::get_if<WorkerGone>(&event)) workers_.erase(e->worker);
  if (const auto* e = std::get_if<DrainRequested>(&event))
    if (const auto found = workers_.find(e->worker); found != workers_.end())
      found->second.drains = true;
  if (const auto* e = std::get_if<DetachedStored>(&event); e != nullptr && !e->status)
    unstored_.insert(e->key);
  if (const auto* e = std::get_if<RequestReceived>(&event)) {
    const CompileRequest& request = e->request;
    asked_.emplace(program_key(request.graph, request.target, request.mode), request.target);
  }
  for (const auto& [program, target] : asked_)
    if (!certainly_serves(now_ms, target)) unserved_.insert(program);
}

// Each partition needs a kernel of which every candidate is bad, or had bad luck.
bool ReasonWatch::no_alternative_survives(const TrueProgram& program, const Target& target,
                                          Mode mode) const {
  const auto is_lost = [&](int kernel) {
    const Digest key = truth_.kernel_key(kernel, target, mode);
    return std::ranges::all_of(truth_.kernel(kernel).candidates, [&](const TrueCandidate& c) {
      return c.verdict != Verdict::kOk || troubled_.contains({key, c.schedule.to_string()});
    });
  };
  for (const TruePartition& partition : program.partitions) {
    if (mode == Mode::kDefault && &partition != &program.partitions.front()) break;
    if (std::ranges::none_of(partition.kernels, is_lost)) return false;
  }
  return true;
}

bool ReasonWatch::uses_withdrawn(const TrueProgram& program, const CompileRequest& request) const {
  return std::ranges::any_of(program.partitions, [&](const TruePartition& partition) {
    return std::ranges::any_of(partition.kernels, [&](int kernel) {
      return withdrawn_.contains(truth_.kernel_key(kernel, request.target, request.mode));
    });
  });
}

// One that reported lately, and nothing is the matter with it.
bool ReasonWatch::certainly_serves(int64_t now_ms, const Target& target) const {
  if (scenario_.drifting()) return false;  // it may be in quarantine
  return std::ranges::any_of(workers_, [&](const auto& named) {
    const Known& worker = named.second;
    return worker.target.can_run(target) && !worker.drains && !worker.failed &&
           now_ms - worker.seen_ms < options_.worker_timeout_ms;
  });
}

bool ReasonWatch::lacks_reason(int64_t now_ms, const RequestId& id, const CompileRequest& request,
                               const Error& error) const {
  const TrueProgram& program = truth_.by_graph(request.graph);
  const CoreOptions usual;
  switch (error.code) {
    case Code::kNotFound:
      return !request.check_only;
    case Code::kUnsupported:
      return program.supported;
    case Code::kInvalidArgument:
      return !sent_garbage_.contains(id);
    case Code::kDeadlineExceeded:
      return !asks_.contains(id) || asks_.at(id) < kAsks;
    case Code::kOverloaded:
      if (says(error, "candidates wait"))
        return options_.max_candidates_queued == usual.max_candidates_queued;
      if (says(error, "graphs are kept"))
        return options_.max_graph_bytes_kept == usual.max_graph_bytes_kept;
      if (says(error, "has reported yet"))
        return now_ms - began_ms_ >= options_.fleet_returns_ms + kFirstStepMs ||
               targets_seen_.contains(request.target.isa);
      if (says(error, "turned out to be wrong")) return !uses_withdrawn(program, request);
      return !says(error, "requests are waiting") && !says(error, "are queued already");
    case Code::kUnavailable:
      if (says(error, "no worker for") || says(error, "no worker measures for"))
        return certainly_serves(now_ms, request.target);
      if (says(error, "no worker has")) return !scenario_.mixed;
      if (says(error, "survived")) break;
      return !unstored_.contains(program_key(request.graph, request.target, request.mode));
    case Code::kInternal:
      if (says(error, "survived")) break;
      return true;
    case Code::kCorruption:
    case Code::kPermissionDenied:
      return true;
  }
  // Some of several partitions may have had bad candidates and others, at some time, no worker.
  if (error.code == Code::kUnavailable && program.partitions.size() > 1 &&
      (scenario_.mixed ||
       unserved_.contains(program_key(request.graph, request.target, request.mode))))
    return false;
  return !no_alternative_survives(program, request.target, request.mode);
}

std::optional<std::string> ReasonWatch::refused(int64_t now_ms, const ClientId& client,
                                                const CompileRequest& request,
                                                const Error& error) const {
  if (!lacks_reason(now_ms, {client, request.request}, request, error)) return std::nullopt;
  return fmt::format("{} is refused, which has no reason: {}", client, error.message);
}

std::optional<std::string> ReasonWatch::failed(const DetachedTask& task, const Error& error) const {
  const TrueProgram& program = truth_.by_graph(task.graph);
  const bool has_reason = (error.code == Code::kUnsupported && !program.supported) ||
                          (error.code == Code::kInternal && says(error, "survived") &&
                           no_alternative_survives(program, task.target, task.mode));
  if (has_reason) return std::nullopt;
  return fmt::format("a queued program fails, which has no reason: {}", error.message);
}

}  // namespace kiln::simulation
