// Planner: the threads that turn an uploaded graph into a plan for the core: read, check, partition
// into kernels, and look up what the store knows about each. Users take turns by the size of their
// graphs, so that many or large ones of one user hold up their own. Thread-safe; owns its threads.
// The store and the callback outlive it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/store.h"
#include "coordinator/core/events.h"
#include "coordinator/core/scheduling/fair_queue.h"
#include "coordinator/storage/offers.h"
#include "coordinator/storage/outage.h"
#include "coordinator/storage/vouching.h"

namespace kiln {

class PendingTaskStore;

struct PlanContext {
  TemplateVersions templates;  // of this build
  MeasurementPolicy policy;
  Store* store = nullptr;
  PendingTaskStore* tasks = nullptr;  // has the graph of a request without one
  Vouching vouching{};                // winners that it does not suffice for are tuned again
  Outage* outage = nullptr;           // of the store, which is asked again while it is short
  Offers* offers = nullptr;           // of kernels; null: there are none
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
  // Never blocks. As many wait here as there are open compile tasks, which the core bounds. `user`:
  // by the name of its key; empty: nobody's in particular.
  void submit(StartPlan request, const std::string& user = "");

 private:
  void run();

  Outage outage_;
  const PlanContext context_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. Nobody's list is empty, and who has one is in turns_ as often.
  std::unordered_map<std::string, std::deque<StartPlan>> waiting_;
  FairQueue turns_;  // the work is bytes of text
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kiln
