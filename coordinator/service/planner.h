// Planner: the threads that turn an uploaded graph into a plan for the core: read, check, partition
// into kernels, and look up what the store knows about each. Thread-safe; owns its threads. The
// store and the callback outlive it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/store.h"
#include "coordinator/core/events.h"
#include "coordinator/storage/vouching.h"

namespace kiln {

class PendingTaskStore;

struct PlanContext {
  TemplateVersions templates;  // of this build
  MeasurementPolicy policy;
  Store* store = nullptr;
  PendingTaskStore* tasks = nullptr;  // has the graph of a request without one
  Vouching vouching{};                // winners that it does not suffice for are tuned again
};

// The whole work on one graph, on the caller's thread. kInvalidArgument when the text is not the
// canonical graph of the digest it was sent under (nobody may put a program under another graph's
// key); kUnsupported when no kernel family covers it.
PlanFinished make_plan(const StartPlan& request, const PlanContext& context);

class Planner {
 public:
  using Done = std::function<void(PlanFinished)>;  // on a planner thread, once for each submit

  Planner(const PlanContext& context, int threads, Done done);
  // Waits for the plans in progress; those not begun are forgotten.
  ~Planner();
  // Never blocks. As many wait here as there are open compile tasks, which the core bounds.
  void submit(StartPlan request);

 private:
  void run();

  const PlanContext context_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StartPlan> waiting_;  // guarded by mutex_
  bool stopping_ = false;          // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace kiln
