// TaskLog: one log line for each compile task: its key, its waiters, how long each stage took, what
// was tried; and the same durations as histograms. Sees the requests that missed and the core's
// actions; keeps only open tasks. One thread.
//
//   flight key=0123456789ab target=cpu:x86-64-v3 mode=max-autotune outcome=tuned requests=3
//     clients=2 kernels=3 cached=1 candidates=24 winners_us=81.250 looking_up_s=0.000
//     wait_graph_s=0.012 planning_s=0.050 tuning_s=2.000 storing_s=0.010 total_s=2.260
//     users=ci,replica program_key=0123456789ab... (64 digits, as `kiln cache pin` takes it)
//
// "flight" is the event's stable name. users: the users that waited, "local" for those without
// keys; the first few, then the number of the rest; absent if an earlier incarnation knew them.
// candidates: of the kernels that were not cached. winners_us: the sum of the medians of the
// program's kernels, 0 in default mode. A stage that was not reached took 0. A detached task has
// its line when it ends; if an earlier incarnation queued it, only its end is known.
#pragma once

#include <array>
#include <bitset>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "coordinator/core/events.h"
#include "coordinator/status/log_line.h"
#include "coordinator/status/miss_log.h"
#include "coordinator/status/service_status.h"
#include "coordinator/status/task_traces.h"

namespace kiln {

class TaskLog {
 public:
  using Sink = std::function<void(const LogLine& line)>;
  explicit TaskLog(Sink sink, TaskTraces::Options tracing = {})
      : sink_(std::move(sink)), traces_(std::move(tracing)) {}

  // `user`: empty when there are no keys.
  // `key` is the task's, as everywhere; `program` the one to report.
  void asked(int64_t now_ms, const Digest& key, const Digest& program, const ClientId& client,
             const std::string& user, const CompileRequest& request);
  // The client was asked for the graph.
  void waiting_for_graph(int64_t now_ms, const ClientId& client, uint64_t request);
  void planning(int64_t now_ms, const Digest& key);
  void planned(int64_t now_ms, const PlanFinished& plan);
  void storing(int64_t now_ms, const StoreProgram& action);
  // The line is written when the last waiting client is answered or gone; none for mere look-ups.
  // `is_early`: with a program that is not verified yet.
  void answered(int64_t now_ms, const ClientId& client, const CompileReply& reply,
                bool is_early = false);
  void cancelled(int64_t now_ms, const ClientId& client, uint64_t request);
  void gone(int64_t now_ms, const ClientId& client);
  void detached_ended(int64_t now_ms, const EndDetached& ended);

  const TaskTimes& times() const { return times_; }  // of tasks that ended
  const MissLog& misses() const { return misses_; }
  TaskTraces& traces() { return traces_; }  // of the same tasks

 private:
  using RequestId = std::pair<ClientId, uint64_t>;
  struct Task {
    Digest program;
    bool is_everybodys = true;
    Digest graph;
    Target target;
    Mode mode = Mode::kDefault;
    int64_t started_ms = 0, stage_since_ms = 0;
    TaskStage stage = TaskStage::kLookingUp;
    std::array<int64_t, kTaskStages> stage_ms{};
    std::bitset<kTaskStages> stages_reached{1};  // looking_up
    size_t kernels = 0, cached = 0, candidates = 0;
    double winners_us = 0;
    size_t waiting = 0, requests = 0;
    bool detached = false;  // goes on though nobody waits
    std::set<ClientId> clients;
    std::set<std::string> users;
    std::string outcome = "abandoned", reason;
    bool reached(TaskStage s) const { return stages_reached.test(static_cast<size_t>(s)); }
  };
  void enter(int64_t now_ms, TaskStage stage, const Digest& key, Task& task);
  Task* find(const Digest& key);
  void leave(int64_t now_ms, std::map<RequestId, Digest>::iterator request,
             const CompileReply* reply, bool is_early = false);
  void end(int64_t now_ms, const Digest& key, Task& task, bool is_early = false);
  void report(const Task& task, int64_t total_ms);
  void remember(int64_t now_ms, const Task& task);

  const Sink sink_;
  std::unordered_map<Digest, Task> tasks_;
  std::map<RequestId, Digest> requests_;  // open ones
  TaskTimes times_;
  MissLog misses_;
  TaskTraces traces_;
};

}  // namespace kiln
