// Programs at work, as people look at them (core/open_program.h). Changes nothing.
#include <algorithm>

#include "coordinator/core/requests/compile_requests.h"

namespace kiln {
namespace {

constexpr size_t kKernelsOfOne = 200;

std::string_view name_of(CompileTask::Stage stage) {
  switch (stage) {
    case CompileTask::Stage::kLookingUp:
      return "looking_up";
    case CompileTask::Stage::kWaitGraph:
      return "wait_graph";
    case CompileTask::Stage::kPlanning:
      return "planning";
    case CompileTask::Stage::kTuning:
      return "tuning";
    case CompileTask::Stage::kStoring:
      return "storing";
  }
  return "";
}

std::string_view name_of(TuningTask::Stage stage) {
  switch (stage) {
    case TuningTask::Stage::kScreening:
      return "screening";
    case TuningTask::Stage::kRebuilding:
      return "rebuilding";
    case TuningTask::Stage::kFinals:
      return "finals";
    case TuningTask::Stage::kConfirming:
      return "confirming";
    case TuningTask::Stage::kStoring:
      return "storing";
    case TuningTask::Stage::kDone:
      return "done";
    case TuningTask::Stage::kFailed:
      return "failed";
  }
  return "";
}

OpenKernel cached_kernel(const ProgramKernel& kernel) {
  OpenKernel view;
  view.key = kernel.key;
  if (const auto family = parse_family(kernel.family)) view.family = *family;
  view.stage = "cached";
  view.candidates = view.settled = kernel.report.candidates;
  view.best_us = kernel.report.best_us;
  return view;
}

OpenKernel tuned_kernel(const TuningTask& task) {
  OpenKernel view;
  view.key = task.key();
  view.family = task.family();
  view.stage = name_of(task.stage());
  view.candidates = task.candidates().size();
  view.settled = task.candidates().settled();
  view.waiting = task.waiting();
  view.best_us = task.candidates().best_us();
  return view;
}

}  // namespace

OpenProgram CompileRequests::open_program(int64_t now_ms, const CompileTask& task) const {
  OpenProgram view;
  view.key = task.key;
  view.graph = task.graph;
  view.target = task.target;
  view.mode = task.mode;
  view.stage = name_of(task.stage);
  view.age_s = static_cast<double>(now_ms - task.started_ms) / 1000;
  view.waiters = static_cast<int>(task.waiters.size());
  view.detached = detached_.contains(task.key);
  for (const ProgramKernel& kernel : task.program.kernels) {
    if (view.kernels.size() >= kKernelsOfOne) {
      ++view.more_kernels;
      continue;
    }
    const TuningTask* tuning = scheduler_.find(kernel.key);
    view.kernels.push_back(tuning == nullptr ? cached_kernel(kernel) : tuned_kernel(*tuning));
  }
  view.waiting = scheduler_.waiting_for(task.target);
  return view;
}

std::vector<OpenProgram> CompileRequests::open_programs(int64_t now_ms, size_t limit) const {
  std::vector<const CompileTask*> tasks;
  for (const auto& [key, task] : tasks_)
    if (task.stage != CompileTask::Stage::kLookingUp && task.audience.is_all())
      tasks.push_back(&task);
  const auto end = tasks.begin() + static_cast<std::ptrdiff_t>(std::min(limit, tasks.size()));
  std::partial_sort(tasks.begin(), end, tasks.end(),
                    [](const CompileTask* a, const CompileTask* b) {
                      return std::tie(a->started_ms, a->key) < std::tie(b->started_ms, b->key);
                    });
  std::vector<OpenProgram> views;
  for (auto task = tasks.begin(); task != end; ++task)
    views.push_back(open_program(now_ms, **task));
  return views;
}

}  // namespace kiln
