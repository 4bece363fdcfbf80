#include "coordinator/status/task_log.h"

#include <fmt/format.h>

namespace kiln {
namespace {

constexpr size_t kUsersNamed = 8;

std::string names_of(const std::set<std::string>& users) {
  std::string names;
  size_t named = 0;
  for (const std::string& user : users) {
    if (named == kUsersNamed) return names + fmt::format(",+{}", users.size() - named);
    names += (named++ == 0 ? "" : ",") + user;
  }
  return names;
}

double seconds(int64_t ms) {
  return static_cast<double>(ms) / 1000;
}

}  // namespace

TaskLog::Task* TaskLog::find(const Digest& key) {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : &found->second;
}

// A bad graph sends a task back to an earlier stage: times of one stage add up.
void TaskLog::enter(int64_t now_ms, TaskStage stage, const Digest& key, Task& task) {
  task.stage_ms[static_cast<size_t>(task.stage)] += now_ms - task.stage_since_ms;
  task.stage = stage;
  task.stages_reached.set(static_cast<size_t>(stage));
  task.stage_since_ms = now_ms;
  traces_.entered(key, stage);
}

void TaskLog::asked(int64_t now_ms, const Digest& key, const Digest& program,
                    const ClientId& client, const std::string& user,
                    const CompileRequest& request) {
  const bool is_new = requests_.try_emplace({client, request.request}, key).second;
  if (!is_new) return;  // the same request again, with its graph
  traces_.asked(key, client, request);
  Task& task = tasks_[key];
  if (task.requests++ == 0) {
    task.program = program;
    task.is_everybodys = key == program;
    task.started_ms = task.stage_since_ms = now_ms;
    task.graph = request.graph;
    task.target = request.target;
    task.mode = request.mode;
  }
  ++task.waiting;
  task.clients.insert(client);
  task.users.insert(user.empty() ? "local" : user);
}

void TaskLog::waiting_for_graph(int64_t now_ms, const ClientId& client, uint64_t request) {
  const auto asked = requests_.find({client, request});
  if (asked == requests_.end()) return;
  Task* task = find(asked->second);
  if (task != nullptr && task->stage != TaskStage::kWaitGraph) {
    enter(now_ms, TaskStage::kWaitGraph, asked->second, *task);
  }
}

void TaskLog::planning(int64_t now_ms, const Digest& key) {
  if (Task* task = find(key)) enter(now_ms, TaskStage::kPlanning, key, *task);
}

void TaskLog::planned(int64_t now_ms, const PlanFinished& plan) {
  Task* task = find(plan.key);
  if (task == nullptr || task->stage != TaskStage::kPlanning) return;
  enter(now_ms, TaskStage::kTuning, plan.key, *task);
  traces_.planned(plan);
  task->kernels = plan.kernels.size();
  task->cached = task->candidates = 0;
  for (const PlannedKernel& kernel : plan.kernels) {
    task->cached += kernel.cached ? 1 : 0;
    task->candidates += kernel.cached ? 0 : kernel.schedules.size();
  }
}

void TaskLog::storing(int64_t now_ms, const StoreProgram& action) {
  Task* task = find(action.task);
  if (task == nullptr) return;
  enter(now_ms, TaskStage::kStoring, action.task, *task);
  for (const ProgramKernel& kernel : action.program.kernels)
    task->winners_us += kernel.report.best_us;
}

void TaskLog::answered(int64_t now_ms, const ClientId& client, const CompileReply& reply,
                       bool is_early) {
  traces_.answered(client, reply.request, reply);
  if (const auto found = requests_.find({client, reply.request}); found != requests_.end()) {
    leave(now_ms, found, &reply, is_early);
  }
}

void TaskLog::cancelled(int64_t now_ms, const ClientId& client, uint64_t request) {
  if (const auto found = requests_.find({client, request}); found != requests_.end()) {
    leave(now_ms, found, nullptr);
  }
}

void TaskLog::gone(int64_t now_ms, const ClientId& client) {
  for (auto at = requests_.lower_bound({client, 0});
       at != requests_.end() && at->first.first == client;) {
    leave(now_ms, at++, nullptr);
  }
}

void TaskLog::leave(int64_t now_ms, std::map<RequestId, Digest>::iterator request,
                    const CompileReply* reply, bool is_early) {
  const Digest key = request->second;
  if (reply == nullptr) traces_.cancelled(request->first.first, request->first.second);
  requests_.erase(request);
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  if (reply != nullptr && reply->outcome) {
    // The one that started the task says "tuned"; those that joined say less.
    if (task.outcome != "tuned")
      task.outcome = reply->tier0   ? "tier0"
                     : is_early     ? "unverified"
                     : reply->stale ? "stale"
                                    : to_string(*reply->outcome);
  } else if (reply != nullptr) {
    task.outcome = to_string(reply->outcome.error().code);
    task.reason = reply->outcome.error().message;
  }
  task.detached |= reply != nullptr && reply->outcome && *reply->outcome == CacheOutcome::kQueued;
  if (--task.waiting > 0 || task.detached) return;
  end(now_ms, key, task, is_early);
  tasks_.erase(found);
}

void TaskLog::detached_ended(int64_t now_ms, const EndDetached& ended) {
  const Digest& key = ended.key;
  Task& task = tasks_[key];
  if (task.requests == 0 && !task.detached) {  // queued in an earlier incarnation
    task.program = ended.task.program();
    task.is_everybodys = key == task.program;
    task.started_ms = task.stage_since_ms = now_ms;
    task.graph = ended.task.graph;
    task.target = ended.task.target;
    task.mode = ended.task.mode;
  }
  task.detached = false;
  task.outcome = ended.cancelled ? "cancelled"
                 : ended.outcome ? "tuned"
                                 : to_string(ended.outcome.error().code);
  if (!ended.outcome) task.reason = ended.outcome.error().message;
  if (task.waiting > 0) return;
  end(now_ms, key, task);
  tasks_.erase(key);
}

void TaskLog::end(int64_t now_ms, const Digest& key, Task& task, bool is_early) {
  traces_.ended(key, task.outcome, is_early);
  // Look-ups that hit the index, missed and were only checks, or are not the user's to turn into
  // work, get no line: a reader may send a million of them.
  const bool looked_up_only = !task.reached(TaskStage::kPlanning) &&
                              (task.outcome == "hit" || task.outcome == "stale" ||
                               task.outcome == "not_found" || task.outcome == "permission_denied");
  if (task.outcome != "hit" && task.outcome != "stale" && task.is_everybodys)
    remember(now_ms, task);
  if (looked_up_only) return;
  enter(now_ms, task.stage, key, task);
  report(task, now_ms - task.started_ms);
}

void TaskLog::remember(int64_t now_ms, const Task& task) {
  Miss miss{task.program, task.graph, task.target, task.mode};
  miss.times = static_cast<int64_t>(task.requests);
  miss.at_ms = now_ms;
  miss.took_s = seconds(now_ms - task.started_ms);
  miss.outcome = task.outcome;
  miss.reason = task.reason.substr(0, task.reason.find('\n'));  // no compiler's words
  miss.kernels = task.kernels;
  miss.cached = task.cached;
  miss.candidates = task.candidates;
  miss.winners_us = task.winners_us;
  miss.users = task.users;
  misses_.add(std::move(miss));
}

void TaskLog::report(const Task& task, int64_t total_ms) {
  ++times_.outcomes[task.outcome];
  times_.total.observe(seconds(total_ms));
  for (size_t i = 0; i < kTaskStages; ++i) {
    if (task.reached(static_cast<TaskStage>(i))) {
      times_.stages[i].observe(seconds(task.stage_ms[i]));
    }
  }
  if (!sink_) return;
  LogLine line("flight");
  line.add("key", task.program.short_hex()).add("target", task.target.to_string());
  line.add("mode", to_string(task.mode));
  line.add("outcome", task.outcome).add("requests", task.requests);
  line.add("clients", task.clients.size()).add("kernels", task.kernels);
  line.add("cached", task.cached).add("candidates", task.candidates);
  line.add("winners_us", task.winners_us);
  for (size_t i = 0; i < kTaskStages; ++i) {
    line.add(fmt::format("{}_s", to_string(static_cast<TaskStage>(i))), seconds(task.stage_ms[i]));
  }
  line.add("total_s", seconds(total_ms));
  if (!task.users.empty()) line.add("users", names_of(task.users));
  line.add("program_key", task.program.hex());
  if (!task.reason.empty()) line.add("reason", task.reason);
  sink_(line);
}

}  // namespace kiln
