// TaskTraces: the spans of what a coordinator does, for OpenTelemetry. Sees the same as TaskLog, which
// owns it, and the leases that workers get; keeps only what is open. One thread.
//
//   compile                  a request: from its receipt to its answer; below its caller's span
//     looking_up, wait_graph, planning, tuning, storing   one after the other, without gaps
//       kernel               below `tuning`: from the plan to the winner's being stored
//         queue              until a worker has the first of its candidates
//         lease              candidates that a worker has; the worker's spans are below it
//         publish            the winner's binary and row are made durable
//
// Requests of one program share the work. Its spans are below the request that began it; the others
// have the same stages as far as they waited for them, and a link to that request. A request without a
// caller's span begins a trace of its own, which is kept where its program is planned: look-ups that
// hit are not worth one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/core/events.h"
#include "coordinator/status/service_status.h"
#include "schema/tracing/span.h"

namespace kiln {

class TaskTraces {
 public:
  struct Options {
    SpanSink sink{};  // empty: nothing is traced
    std::function<bool(const TraceContext& caller)> samples{};
    std::function<int64_t()> now_ns = [] { return trace_clock_ns(); };
  };
  explicit TaskTraces(Options options) : options_(std::move(options)) {}

  // `task`: its key.
  void asked(const Digest& task, const ClientId& client, const CompileRequest& request);
  void entered(const Digest& task, TaskStage stage);
  void planned(const PlanFinished& plan);
  void answered(const ClientId& client, uint64_t request, const CompileReply& reply);
  void cancelled(const ClientId& client, uint64_t request);
  // `is_early`: answered before all its kernels are verified, which goes on.
  void ended(const Digest& task, const std::string& outcome, bool is_early);
  // A look-up that was answered from memory, and is no task.
  void hit(const CompileRequest& request, int64_t start_ns);

  // Notes the leases that begin and end, and names their spans in the jobs.
  void ordered(SendOrders& action);
  void gone(const WorkerId& worker);
  void storing(const StoreKernel& action);
  void stored(const KernelStored& event);

  size_t open_spans() const;

  static constexpr size_t kMaxKernels = 1 << 14;  // open ones; beyond, kernels have no spans

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Request {
    Digest task;
    Span span;
    bool has_caller = false;
  };
  struct Task {
    TraceContext owner{};  // the request that began it; not valid: it is not traced
    bool has_caller = false;
    bool is_planned = false;
    Span stage{};                // open; below `owner`
    std::vector<Span> passed{};  // stages; of the owner's
    std::vector<Span> unsent{};  // spans of a trace that may not be worth keeping
    bool is_kept() const { return has_caller || is_planned; }
  };
  struct Kernel {
    Digest task;
    Span span;
    Span publish{};
    bool leased = false;
  };
  bool is_on() const { return static_cast<bool>(options_.sink); }
  Span begin(const TraceContext& caller, const CompileRequest& request, int64_t start_ns) const;
  void finish(Span span) const;
  void finish(Task& task, Span span) const;
  void leave(std::map<RequestId, Request>::iterator request, const std::string& outcome,
             const std::string& error);
  void join(const Task& task, const Request& request) const;

  const Options options_;
  std::map<RequestId, Request> requests_;
  std::unordered_map<Digest, Task> tasks_;
  std::unordered_map<Digest, Kernel> kernels_;
  std::map<WorkerId, std::map<uint64_t, Span>> leases_;  // by lease
};

}  // namespace kiln
