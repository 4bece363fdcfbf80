#include "coordinator/service/planner.h"

#include <algorithm>
#include <chrono>

#include "cache/pending_task_store.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/alternatives.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/plan/shape_generic_key.h"
#include "compiler_core/tune/device_peak.h"

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

// Schedules of before templates had names begin with a family: "matmul" was what "cpu.matmul" is on
// a CPU now.
std::vector<Schedule> with_template_names(std::vector<Schedule> winners, const Target& target) {
  const std::string backend = target.backend == Backend::kCuda ? "cuda." : "cpu.";
  for (Schedule& winner : winners)
    if (find_kernel_template(winner.template_name) == nullptr &&
        winner.template_name.find('.') == std::string::npos)
      winner.template_name.insert(0, backend);
  return winners;
}

// Earlier winners (of another target or version of a template) are the first candidates for their
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

// Whether `a` decides what `b` does, whatever the values.
bool decide_the_same(const Schedule& a, const Schedule& b) {
  return a.template_name == b.template_name &&
         std::equal(a.decisions.begin(), a.decisions.end(), b.decisions.begin(), b.decisions.end(),
                    [](const auto& x, const auto& y) { return x.name == y.name; });
}

// Puts the winner of the nearest sizes first, even where the search space of these sizes does not
// list it, as long as there is code for it.
void put_nearest_winner_first(std::vector<Schedule>& space, const Workload& workload,
                              const Target& target, const std::vector<Schedule>& winners) {
  for (const Schedule& winner : winners) {
    const auto found = std::find(space.begin(), space.end(), winner);
    if (found != space.end()) {
      std::rotate(space.begin(), found, found + 1);
      return;
    }
    const bool is_known = std::ranges::any_of(
        space, [&](const Schedule& listed) { return decide_the_same(winner, listed); });
    if (is_known && lower(workload, winner, target)) {
      space.insert(space.begin(), winner);
      return;
    }
  }
}

constexpr int64_t kOneVerdictMs = 3'600'000;
constexpr std::chrono::milliseconds kAskAgain{100};

// Whether two owners said, or it was lately, that a candidate is bad: one worker with bad memory
// must not refuse a program for ever.
bool still_stands(const TuningRecord& verdict, const std::vector<TuningRecord>& records,
                  int64_t now_ms) {
  return verdict.verdict == Verdict::kOk || now_ms - verdict.taken_at_ms < kOneVerdictMs ||
         std::ranges::any_of(records, [&](const TuningRecord& other) {
           return other.verdict == verdict.verdict && other.owner != verdict.owner &&
                  other.schedule == verdict.schedule;
         });
}

// The measurements that say something of the templates as they are now.
std::vector<TuningRecord> current(std::vector<TuningRecord> records,
                                  const TemplateVersions& templates) {
  const int64_t now_ms = unix_ms();
  const std::vector<TuningRecord> all = records;
  std::erase_if(records, [&](const TuningRecord& record) {
    return !still_stands(record, all, now_ms) ||
           record.template_version != find_version(templates, record.schedule.template_name);
  });
  return records;
}

int64_t steady_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// Blocks while the store is away for moments.
template <class Read>
auto read_patiently(const PlanContext& context, Read read) {
  for (;; std::this_thread::sleep_for(kAskAgain)) {
    auto answer = read(*context.store);
    const bool is_away = !answer && answer.error().code == Code::kUnavailable;
    if (context.outage == nullptr || (is_away && !context.outage->may_pass(steady_ms())))
      return answer;
    if (is_away) continue;
    context.outage->over();
    return answer;
  }
}

// Adds the kernels that are offered for the workload, each a template of its own. A recipe is its author's word: it
// is tried only if its arguments are the workload's.
void add_offers(PlannedKernel& kernel, const Workload& workload, const Target& target,
                const PlanContext& context) {
  if (context.offers == nullptr) return;
  const int version = find_version(context.templates, kOfferedTemplate);
  const Recipe arguments = argument_recipe(workload.graph);
  for (OfferedKernel& offered : context.offers->of(workload.digest, target)) {
    std::string name = offered.template_name();
    kernel.templates.push_back({name, std::max(version, 1)});
    if (offered.recipe.inputs == arguments.inputs && offered.recipe.outputs == arguments.outputs)
      kernel.offered.emplace(std::move(name), std::move(offered));
  }
  std::ranges::sort(kernel.templates, {}, &TemplateVersion::name);
}

// What won before is no reserve.
void take_from_reserves(std::set<std::string>& reserves, const std::vector<Schedule>& winners) {
  for (const Schedule& winner : winners) reserves.erase(winner.template_name);
}

Result<PlannedKernel> plan_kernel(const Workload& workload, const StartPlan& request,
                                  const PlanContext& context) {
  PlannedKernel kernel;
  kernel.workload = workload.digest;
  kernel.family = workload.family;
  kernel.key = kernel_key(workload.digest, request.target, request.mode, context.policy);
  kernel.templates = covering_templates(context.templates, workload, request.target);
  const bool is_timed = request.mode == Mode::kMaxAutotune;
  if (is_timed) add_offers(kernel, workload, request.target, context);
  // A stale winner stays stored until its successor is, and is the first candidate for it.
  auto stored = read_patiently(context, [&](Store& store) { return store.kernel(kernel.key); });
  const bool is_confirmed = stored && context.vouching.suffices(stored->kernel.provenance);
  if (stored && is_confirmed &&
      Offers::without_gone(stored->kernel.templates, kernel.templates) == kernel.templates) {
    kernel.cached = std::move(stored->kernel);
    return kernel;
  }
  kernel.workload_text = print_with_origins(workload.graph);
  if (kernel.workload_text.size() > kMaxWorkloadBytes) kernel.workload_text = print(workload.graph);
  kernel.impossible_us = impossible_us(workload, request.target);
  TRY(SearchSpace space,
      ranked_space(workload, request.target, is_timed ? Libraries::kTake : Libraries::kLeaveOut));
  kernel.schedules = std::move(space.schedules);
  if (is_timed) kernel.reserves = std::move(space.far);
  kernel.has_variants = is_timed && request.target.backend == Backend::kCuda;
  for (const auto& [name, offered] : kernel.offered) kernel.schedules.push_back({name, {}});
  for (const Schedule& schedule : kernel.schedules)
    if (const std::string_view library = library_of(schedule); !library.empty())
      kernel.libraries.emplace(schedule.template_name, library);
  // Without the store's memory the search starts from nothing, which is slower and no less right.
  const ShapeGenericKey kin = shape_generic_key(workload);
  // Only where it is timed: untimed, the cost model's guess at these sizes is the better one.
  if (const auto winners = context.store->nearest_winners(kin); winners && is_timed) {
    const std::vector<Schedule> named = with_template_names(*winners, request.target);
    put_nearest_winner_first(kernel.schedules, workload, request.target, named);
    take_from_reserves(kernel.reserves, named);
  }
  if (const auto winners = context.store->earlier_winners(workload.digest)) {
    const std::vector<Schedule> named = with_template_names(*winners, request.target);
    put_earlier_winners_first(kernel.schedules, named);
    take_from_reserves(kernel.reserves, named);
  }
  // A row that is not kept costs the next size a better start.
  context.store->put_shape_generic_key(workload.digest, kin, nullptr);
  if (auto records =
          read_patiently(context, [&](Store& store) { return store.records(kernel.key); }))
    kernel.records = current(*std::move(records), kernel.templates);
  return kernel;
}

// That of the request, or of the task that was stored when it was accepted.
Result<std::string> graph_text(const StartPlan& request, const PlanContext& context) {
  if (!request.graph_text.empty() || context.tasks == nullptr) return request.graph_text;
  return context.tasks->graph_text({request.graph, request.target, request.mode, request.audience});
}

// The alternative partitions; only one in modes that time nothing.
Result<std::vector<PlanAlternative>> ways_to_cut(const Graph& graph, const Target& target,
                                                 Mode mode) {
  if (mode == Mode::kMaxAutotune) return plan_alternatives(graph, partition_rules(target));
  std::vector<PlanAlternative> one;
  TRY(one.emplace_back(), untimed_partition(graph, target));
  return one;
}

// The positions in `kernels` of those that `cut` needs; new ones are planned and appended.
Result<std::vector<int>> plan_kernels(const Plan& cut, const StartPlan& request,
                                      const PlanContext& context,
                                      std::vector<PlannedKernel>& kernels) {
  std::vector<int> positions;
  for (const Workload& workload : cut.kernels) {
    const auto known = std::find_if(
        kernels.begin(), kernels.end(),
        [&](const PlannedKernel& kernel) { return kernel.workload == workload.digest; });
    positions.push_back(static_cast<int>(known - kernels.begin()));
    if (known != kernels.end()) continue;
    TRY(PlannedKernel kernel, plan_kernel(workload, request, context));
    kernels.push_back(std::move(kernel));
  }
  return positions;
}

// The core reports each one's time in `cuts`, where there are several.
Program program_for(PlanAlternative partition, const StartPlan& request,
                    const PlanContext& context) {
  Program program = program_of(std::move(partition.plan));
  program.cuts = {{std::move(partition.name), 0, 0, false}};
  program.key = program_key(request.graph, request.target, request.mode);
  program.graph = request.graph;
  program.target = request.target;
  program.mode = request.mode;
  program.template_stamp = template_stamp(context.templates);
  return program;
}

Result<Program> plan_program(const StartPlan& request, const PlanContext& context,
                             PlanFinished& finished) {
  TRY(const std::string text, graph_text(request, context));
  TRY(const Graph graph, checked_graph(text, request.graph));
  TRY(std::vector<PlanAlternative> partitions, ways_to_cut(graph, request.target, request.mode));
  TRY_STATUS(plan_kernels(partitions.front().plan, request, context, finished.kernels));
  for (auto partition = partitions.begin() + 1; partition != partitions.end(); ++partition) {
    const size_t before = finished.kernels.size();
    auto positions = plan_kernels(partition->plan, request, context, finished.kernels);
    if (positions) {
      finished.alternatives.push_back(
          {program_for(std::move(*partition), request, context), *std::move(positions)});
    } else {  // no family has schedules for one of its kernels
      finished.kernels.erase(finished.kernels.begin() + static_cast<std::ptrdiff_t>(before),
                             finished.kernels.end());
    }
  }
  Program by_default = program_for(std::move(partitions.front()), request, context);
  if (finished.alternatives.empty()) by_default.cuts.clear();
  return by_default;
}

}  // namespace

PlanFinished make_plan(const StartPlan& request, const PlanContext& context) {
  PlanFinished finished;
  finished.key = request.key;
  finished.program = plan_program(request, context, finished);
  if (!finished.program) finished.kernels.clear(), finished.alternatives.clear();
  return finished;
}

Planner::Planner(const PlanContext& context, int threads, Done done)
    : context_{context.templates, context.policy, context.store, context.tasks,
               context.vouching,  &outage_,       context.offers},
      done_(std::move(done)) {
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

void Planner::submit(StartPlan request, const std::string& user) {
  {
    const std::lock_guard lock(mutex_);
    turns_.join(user);
    waiting_[user].push_back(std::move(request));
  }
  changed_.notify_one();
}

void Planner::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const TenantId user = std::get<TenantId>(*turns_.order().begin());
    std::deque<StartPlan>& theirs = waiting_.at(user);
    const StartPlan request = std::move(theirs.front());
    theirs.pop_front();
    if (theirs.empty()) waiting_.erase(user);
    turns_.charge(user, 1 + static_cast<double>(request.graph_text.size()));
    turns_.leave(user);
    lock.unlock();
    done_(make_plan(request, context_));
  }
}

}  // namespace kiln
