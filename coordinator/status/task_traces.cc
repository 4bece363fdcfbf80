#include "coordinator/status/task_traces.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr size_t kMaxStages = 64;  // of one task: bad graphs send it back to an earlier one

}  // namespace

Span TaskTraces::begin(const TraceContext& caller, const CompileRequest& request,
                       int64_t start_ns) const {
  Span span = Span::below(caller, "compile", start_ns, Span::Kind::kServer);
  if (!caller.is_valid()) {
    span.context = TraceContext::root(true);
    span.parent = {};
  }
  span.context.sampled = true;
  span.add("kiln.graph", request.graph.hex());
  span.add("kiln.target", request.target.to_string());
  span.add("kiln.mode", std::string(kiln::to_string(request.mode)));
  return span;
}

// Ends `span`, if it is still open.
void TaskTraces::finish(Span span) const {
  if (span.end_ns == 0) span.end_ns = options_.now_ns();
  options_.sink(std::move(span));
}

void TaskTraces::finish(Task& task, Span span) const {
  if (task.is_kept()) return finish(std::move(span));
  task.unsent.push_back(std::move(span));
}

void TaskTraces::asked(const Digest& key, const ClientId& client, const CompileRequest& request) {
  if (!is_on()) return;
  const int64_t now = options_.now_ns();
  Task& task = tasks_[key];
  if (task.stage.start_ns == 0) {
    task.stage.name = kiln::to_string(TaskStage::kLookingUp);
    task.stage.start_ns = now;
  }
  const TraceContext caller = TraceContext::parse(request.traceparent);
  if (!options_.samples(caller)) return;
  Request asked{key, begin(caller, request, now), caller.is_valid()};
  if (!task.owner.is_valid()) {
    task.owner = asked.span.context;
    task.has_caller = asked.has_caller;
    task.stage = Span::below(task.owner, task.stage.name, now);
  }
  requests_.emplace(RequestId{client, request.request}, std::move(asked));
}

void TaskTraces::entered(const Digest& key, TaskStage stage) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  const int64_t now = options_.now_ns();
  if (stage == TaskStage::kPlanning) {
    task.is_planned = true;
    for (Span& span : std::exchange(task.unsent, {})) finish(std::move(span));
  }
  Span passed =
      std::exchange(task.stage, Span::below(task.owner, std::string(kiln::to_string(stage)), now));
  if (!task.owner.is_valid()) return;
  passed.end_ns = now;
  if (task.passed.size() < kMaxStages) task.passed.push_back(passed);
  finish(task, std::move(passed));
}

void TaskTraces::planned(const PlanFinished& plan) {
  const auto found = tasks_.find(plan.key);
  if (found == tasks_.end() || !found->second.owner.is_valid()) return;
  const Task& task = found->second;
  const int64_t now = options_.now_ns();
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.cached || kernels_.size() >= kMaxKernels) continue;
    const auto [entry, is_new] = kernels_.try_emplace(kernel.key);
    if (!is_new) continue;  // another program's too, which began it
    Span span = Span::below(task.stage.context, "kernel", now);
    span.add("kiln.kernel", kernel.key.hex());
    span.add("kiln.family", std::string(kiln::to_string(kernel.family)));
    span.add("kiln.candidates", static_cast<int64_t>(kernel.schedules.size()));
    entry->second.task = plan.key;
    entry->second.span = std::move(span);
  }
}

void TaskTraces::answered(const ClientId& client, uint64_t request, const CompileReply& reply) {
  const auto found = requests_.find({client, request});
  if (found == requests_.end()) return;
  if (reply.outcome)
    leave(found, reply.stale ? "stale" : std::string(kiln::to_string(*reply.outcome)), "");
  else
    leave(found, std::string(kiln::to_string(reply.outcome.error().code)),
          reply.outcome.error().message);
}

void TaskTraces::cancelled(const ClientId& client, uint64_t request) {
  const auto found = requests_.find({client, request});
  if (found != requests_.end()) leave(found, "abandoned", "nobody waits for it");
}

void TaskTraces::leave(std::map<RequestId, Request>::iterator at, const std::string& outcome,
                       const std::string& error) {
  Request request = std::move(at->second);
  requests_.erase(at);
  request.span.end_ns = options_.now_ns();
  request.span.add("kiln.outcome", outcome);
  request.span.error = error;
  const auto found = tasks_.find(request.task);
  if (found == tasks_.end()) return finish(std::move(request.span));
  Task& task = found->second;
  if (task.owner == request.span.context) return finish(task, std::move(request.span));
  if (!request.has_caller && !task.is_planned) return;
  request.span.links.push_back(task.owner);
  join(task, request);
  finish(std::move(request.span));
}

// The stages of a task's owner, as far as another request waited for them.
void TaskTraces::join(const Task& task, const Request& request) const {
  std::vector<Span> stages = task.passed;
  stages.push_back(task.stage);
  for (const Span& stage : stages) {
    Span waited = Span::below(request.span.context, stage.name,
                              std::max(stage.start_ns, request.span.start_ns));
    waited.end_ns =
        stage.end_ns == 0 ? request.span.end_ns : std::min(stage.end_ns, request.span.end_ns);
    waited.links.push_back(stage.context);
    if (waited.end_ns > waited.start_ns) finish(std::move(waited));
  }
}

void TaskTraces::ended(const Digest& key, const std::string& outcome, bool is_early) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  const Task task = std::move(found->second);
  tasks_.erase(found);
  if (!task.owner.is_valid()) return;
  if (task.is_kept()) finish(task.stage);
  if (is_early) return;
  for (auto kernel = kernels_.begin(); kernel != kernels_.end();) {
    if (kernel->second.task != key) {
      ++kernel;
      continue;
    }
    if (outcome != "tuned") kernel->second.span.error = outcome;
    finish(std::move(kernel->second.span));
    kernel = kernels_.erase(kernel);
  }
}

void TaskTraces::hit(const CompileRequest& request, int64_t start_ns) {
  if (!is_on() || request.traceparent.empty()) return;
  const TraceContext caller = TraceContext::parse(request.traceparent);
  if (caller.is_valid() && options_.samples(caller))
    finish(begin(caller, request, start_ns).add("kiln.outcome", std::string("hit")));
}

void TaskTraces::ordered(SendOrders& action) {
  if (!is_on() || (kernels_.empty() && leases_.empty())) return;
  const int64_t now = options_.now_ns();
  std::map<uint64_t, Span>& open = leases_[action.worker];
  for (Job& job : action.orders.jobs) {
    if (const auto known = open.find(job.lease); known != open.end()) {
      job.traceparent = known->second.context.to_traceparent();  // ordered again
      continue;
    }
    const auto kernel = kernels_.find(job.kernel_key);
    if (kernel == kernels_.end()) continue;
    const TraceContext& above = kernel->second.span.context;
    if (!std::exchange(kernel->second.leased, true)) {
      Span queue = Span::below(above, "queue", kernel->second.span.start_ns);
      queue.end_ns = now;
      finish(std::move(queue));
    }
    Span lease = Span::below(above, "lease", now, Span::Kind::kProducer);
    lease.add("kiln.lease", static_cast<int64_t>(job.lease));
    lease.add("kiln.lease.kind", std::string(to_string(job.kind)));
    lease.add("kiln.worker", action.worker);
    lease.add("kiln.candidates", static_cast<int64_t>(job.candidates.size()));
    job.traceparent = lease.context.to_traceparent();
    open.emplace(job.lease, std::move(lease));
  }
  const auto is_held = [&](uint64_t lease) {
    return std::ranges::find(action.orders.leases, lease) != action.orders.leases.end();
  };
  for (auto lease = open.begin(); lease != open.end();) {
    if (is_held(lease->first)) {
      ++lease;
      continue;
    }
    finish(std::move(lease->second));
    lease = open.erase(lease);
  }
  if (open.empty()) leases_.erase(action.worker);
}

void TaskTraces::gone(const WorkerId& worker) {
  const auto found = leases_.find(worker);
  if (found == leases_.end()) return;
  for (auto& [lease, span] : found->second) {
    span.error = "the worker is gone";
    finish(std::move(span));
  }
  leases_.erase(found);
}

void TaskTraces::storing(const StoreKernel& action) {
  const auto found = kernels_.find(action.kernel.key);
  if (found == kernels_.end()) return;
  Kernel& kernel = found->second;
  kernel.span.add("kiln.best_us", action.kernel.report.best_us);
  kernel.publish = Span::below(kernel.span.context, "publish", options_.now_ns());
}

void TaskTraces::stored(const KernelStored& event) {
  const auto found = kernels_.find(event.kernel);
  if (found == kernels_.end()) return;
  Kernel kernel = std::move(found->second);
  kernels_.erase(found);
  if (!event.status) kernel.publish.error = event.status.error().message;
  if (kernel.publish.start_ns != 0) finish(std::move(kernel.publish));
  finish(std::move(kernel.span));
}

size_t TaskTraces::open_spans() const {
  size_t leases = 0;
  for (const auto& [worker, open] : leases_) leases += open.size();
  return requests_.size() + tasks_.size() + kernels_.size() + leases;
}

}  // namespace kiln
