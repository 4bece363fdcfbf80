#include "coordinator/planner.h"

#include <algorithm>

#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/tune/search_space.h"

namespace kiln {
namespace {

// The graph behind `claimed`, from text that anybody may have sent. Normalising it again is the
// proof: a text that is not in normal form, or of another graph, comes out with another digest.
Result<Graph> checked_graph(std::string_view text, const Digest& claimed) {
  TRY(const Graph graph, parse_graph(text));
  TRY_STATUS(verify(graph));
  TRY(NormalForm form, normalise(graph));
  if (form.digest != claimed) {
    return fail(Code::kInvalidArgument, "the graph that was sent has digest " +
                                            form.digest.short_hex() + ", not " +
                                            claimed.short_hex() + " under which it was sent");
  }
  return std::move(form.graph);
}

// Earlier winners (of another target or code generator) are the first candidates for their
// successor, newest first, as far as they are still legal.
void put_earlier_winners_first(std::vector<Schedule>& space, const std::vector<Schedule>& winners) {
  auto place = space.begin();
  for (const Schedule& winner : winners) {
    const auto found = std::find(place, space.end(), winner);
    if (found == space.end()) continue;
    std::rotate(place, found, found + 1);
    ++place;
  }
}

Result<PlannedKernel> plan_kernel(const Workload& workload, const StartPlan& request,
                                  const PlanContext& context) {
  PlannedKernel kernel;
  kernel.workload = workload.digest;
  kernel.family = workload.family;
  kernel.key =
      kernel_key(workload.digest, request.target, request.mode, context.codegen, context.policy);
  if (auto stored = context.cache->kernel(kernel.key)) {
    kernel.cached = std::move(stored->kernel);
    return kernel;
  }
  kernel.workload_text = print(workload.graph);
  TRY(kernel.schedules, search_space(workload, request.target));
  // Without the cache's memory the search starts from nothing, which is slower and no less right.
  if (const auto winners = context.cache->earlier_winners(workload.digest)) {
    put_earlier_winners_first(kernel.schedules, *winners);
  }
  if (auto records = context.cache->records(kernel.key)) kernel.records = *std::move(records);
  return kernel;
}

Result<Program> plan_program(const StartPlan& request, const PlanContext& context,
                             std::vector<PlannedKernel>& kernels) {
  TRY(const Graph graph, checked_graph(request.graph_text, request.graph));
  TRY(Plan cut, plan(graph));
  for (const Workload& workload : cut.kernels) {
    TRY(PlannedKernel kernel, plan_kernel(workload, request, context));
    kernels.push_back(std::move(kernel));
  }
  Program program = program_of(std::move(cut));
  program.key = request.key;
  program.graph = request.graph;
  program.target = request.target;
  program.mode = request.mode;
  program.codegen = context.codegen;
  return program;
}

}  // namespace

PlanFinished make_plan(const StartPlan& request, const PlanContext& context) {
  PlanFinished finished;
  finished.key = request.key;
  finished.program = plan_program(request, context, finished.kernels);
  if (!finished.program) finished.kernels.clear();
  return finished;
}

Planner::Planner(const PlanContext& context, int threads, Done done)
    : context_(context), done_(std::move(done)) {
  for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { run(); });
}

Planner::~Planner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Planner::submit(StartPlan request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
  }
  changed_.notify_one();
}

void Planner::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const StartPlan request = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    done_(make_plan(request, context_));
  }
}

}  // namespace kiln
