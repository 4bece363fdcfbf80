#include "tests/simulation/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>

namespace kiln::simulation {
namespace {

constexpr int64_t kTickMs = 100;
constexpr int64_t kFaultsMs = 15'000;
constexpr int64_t kAskAgainMs = 1'000;
constexpr int64_t kPatienceMs = 120'000;  // to answer everybody once the faults are over

}  // namespace

Cluster::Cluster(uint64_t seed, Mutant mutant, bool trace, Cast cast)
    : random_(seed),
      upgrades_(seed ^ 0x75706772616465),
      terms_(seed ^ 0x7465726d73),
      mutation_(mutant.world),
      trace_(trace),
      cast_(cast),
      scenario_(random_, seed),
      truth_(random_, scenario_),
      options_(make_options(seed)),
      checker_(truth_, scenario_, options_),
      faults_end_ms_(kFaultsMs) {
  active_mutation = mutant.core;
  if (scenario_.mixed) options_.templates = {{"cpu.pointwise", 1}, {"cpu.vector", 1}};
  if (random_.chance(0.8)) loss_ = random_.fraction() * 0.2;
  if (random_.chance(0.8)) duplication_ = random_.fraction() * 0.2;
  if (random_.chance(0.3)) disk_full_ = random_.fraction() * 0.5;
  if (random_.chance(0.5)) death_ = random_.fraction() * 0.002;
  const auto clients = random_.between(scenario_.crowded() ? 3 : 1, 6);
  const auto users = random_.between(0, 4);
  for (int i = 0; i < clients; ++i)
    clients_.push_back(std::make_unique<Client>(
        "client" + std::to_string(i), users == 0 ? "" : "user" + std::to_string(i % users),
        scenario_.asks_now, *this, random_, truth_));
  const auto workers = scenario_.crowded() ? random_.between(1, 2) : random_.between(1, 4);
  Random builders(seed ^ 0x6275696c64);  // of its own, so that other clusters are as they were
  for (int i = 0; i < workers; ++i) {
    const bool slow = scenario_.uneven() && random_.chance(0.5);
    const bool builds = !scenario_.crowded() && builders.chance(0.7);
    const int compilers = builds ? static_cast<int>(builders.between(1, 2)) : 0;
    workers_.push_back(std::make_unique<Worker>(
        "worker" + std::to_string(i),
        scenario_.uneven() || random_.chance(0.6) ? target_v4() : target_v3(),
        slow ? 1 + random_.fraction() * (kSlowestDevice - 1) : 1.0, scenario_.drifting(), compilers,
        *this, random_, truth_));
  }
  // Apart from the seeds below, whose histories stay as they were.
  for (int64_t left = seed < kFirstSeedWithBuilders ? 0 : builders.between(1, 3); left > 0; --left)
    workers_.push_back(Worker::builder(
        "builder" + std::to_string(left), builders.chance(0.7) ? target_v4() : target_v3(),
        static_cast<int>(builders.between(1, 3)), *this, random_, truth_));
}

Cluster::~Cluster() {
  active_mutation = Mutation::kNone;
}

// Bounds that some clusters have; by numbers of their own, so that others are as they were.
void Cluster::set_bounds(uint64_t seed, CoreOptions& options) const {
  Random random(seed ^ 0x626f756e6473);
  if (scenario_.crowded()) {
    if (!random.chance(0.5)) return;
    options.max_candidates_queued = random.between(8, 40);
    options.max_detached_running = 1;  // else most are begun only to be put off, ever longer
    return;
  }
  if (random.chance(0.2)) options.max_graph_bytes_kept = random.between(6, 18);
  if (random.chance(0.3)) options.max_detached_running = 1;
  // A place that is taken for a target which no worker ever has is not given back.
  if (options.max_waiting_for_worker_ms == 0 && random.chance(0.3))
    options.max_detached = static_cast<int>(random.between(1, 2));
}

CoreOptions Cluster::make_options(uint64_t seed) {
  CoreOptions options;
  options.batch_size = static_cast<int>(random_.between(1, 4));
  options.policy.finalists = static_cast<int>(random_.between(1, 4));
  options.lease_timeout_ms = 2'500;
  options.worker_timeout_ms = 3'000;
  options.worker_grace_ms = 6'000;
  options.graph_timeout_ms = 1'000;
  options.failure_memory_ms = 4'000;
  options.transient_memory_ms = 1'000;
  options.quarantine_ms = 3'000;
  options.hedge_least_ms = 400;
  options.max_lost = INT_MAX;  // workers die of nothing here: core_costly_test has what it is for
  if (scenario_.crowded()) {
    options.batch_size = options.max_batch = 1;
    options.warm_up_turn = 3;
    set_bounds(seed, options);
    return options;
  }
  if (random_.chance(0.1)) options.max_candidates_queued = random_.between(1, 20);
  if (random_.chance(0.3)) options.max_open_requests = static_cast<int>(random_.between(1, 5));
  if (random_.chance(0.3)) options.max_open_requests_a_client = 1;
  if (random_.chance(0.3)) options.max_waiting_for_worker_ms = 2'000;
  set_bounds(seed, options);
  return options;
}

Outcome Cluster::run() {
  start_coordinator();
  for (auto& worker : workers_) worker->start();
  for (auto& client : clients_) client->start();
  after(kTickMs, [this] { tick(); });
  while (!checker_.violation() && now_ms_ < faults_end_ms_ + kPatienceMs) {
    if (!faults() && all_quiet() && !await_successors()) break;
    Timer timer = timers_.top();
    timers_.pop();
    now_ms_ = timer.at_ms;
    timer.run();
  }
  outcome_.violation = checker_.violation();
  if (!outcome_.violation && !detached_done())
    outcome_.violation = fmt::format(
        "invariant 6: a program that was answered as queued is neither stored nor failed {} s "
        "after the last fault",
        kPatienceMs / 1000);
  if (!outcome_.violation && !successors_owed().empty())
    outcome_.violation = fmt::format(
        "invariant 6: a program is served in the place of another, and {} s after the last fault "
        "nobody has made that one",
        kPatienceMs / 1000);
  if (!outcome_.violation && !all_quiet())
    outcome_.violation = fmt::format(
        "invariant 2: {} requests are not answered {} s after the "
        "last fault",
        checker_.open_requests(), kPatienceMs / 1000);
  for (const auto& client : clients_) outcome_.answers += client->answers();
  outcome_.accepted = checker_.accepted();
  outcome_.fenced = checker_.fenced();
  if (core_ != nullptr) outcome_.stats = core_->stats(now_ms_);
  return std::move(outcome_);
}

// But for those whose target no worker has.
bool Cluster::detached_done() const {
  return std::ranges::all_of(checker_.promised(), [&](const auto& promised) {
    return std::ranges::none_of(
        workers_, [&](const auto& worker) { return worker->target().can_run(promised.second); });
  });
}

// The requests that stale programs or tier 0 answered and whose programs can be made: there is room
// for them, and a worker.
std::vector<CompileRequest> Cluster::successors_owed() const {
  const CoreOptions unbounded;
  if (options_.max_detached < unbounded.max_detached ||
      options_.max_graph_bytes_kept < unbounded.max_graph_bytes_kept)
    return {};
  std::vector<CompileRequest> owed;
  for (const auto& [key, request] : checker_.owed_successors())
    if (std::ranges::any_of(workers_, [&target = request.target](const auto& worker) {
          return worker->target().can_run(target);
        }))
      owed.push_back(request);
  return owed;
}

// They are made because somebody asks for them: asks now and then. False: none is left.
bool Cluster::await_successors() {
  const std::vector<CompileRequest> owed = successors_owed();
  if (owed.empty()) return false;
  if (now_ms_ < ask_again_ms_) return true;
  ask_again_ms_ = now_ms_ + kAskAgainMs;
  for (const CompileRequest& request : owed) clients_.front()->ask_again(request);
  return true;
}

bool Cluster::all_quiet() const {
  return core_ != nullptr && checker_.open_requests() == 0 && detached_done() &&
         core_->stats(now_ms_).flights_open == 0 &&
         std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->idle(); });
}

void Cluster::note(const std::string& text) {
  if (trace_) fmt::print("{:>7} ms  {}\n", now_ms_, text);
}

// ---- The coordinator's process ----

void Cluster::start_coordinator() {
  ++incarnation_;
  ++outcome_.incarnations;
  writer_free_ms_ = now_ms_;
  evict();
  options_.first_lease = ++store_.generation << 32;
  if (cast_ == Cast::kPool) take_term();
  if (scenario_.mixed && faults() && upgrades_.chance(0.3))
    ++options_.templates[static_cast<size_t>(upgrades_.between(0, 1))].version;
  if (mutation_ == WorldMutation::kReuseLeaseIds) options_.first_lease = 1;
  if (mutation_ == WorldMutation::kTrustWallClock)
    options_.first_lease =
        static_cast<uint64_t>(1'700'000'000'000'000 + now_ms_ * 1'000 + clock_offset_us_);
  core_ = std::make_unique<Core>(options_);
  checker_.at(now_ms_);
  checker_.incarnation_begins(store_);
  note(fmt::format("coordinator starts, life {}", incarnation_));
  if (mutation_ == WorldMutation::kForgetTasks) return;
  for (const auto& [key, stored] : store_.tasks)
    step(DetachedRecovered{stored.task, stored.failure});
}

// Between two incarnations the cache may have been trimmed; records outlive binaries.
void Cluster::evict() {
  if (random_.chance(0.3)) store_.programs.clear();
  if (random_.chance(0.3)) {
    std::vector<Digest> unneeded;
    store_.programs.clear();
    std::erase_if(store_.kernels, [&](const auto& kernel) {
      const bool goes = random_.chance(0.5);
      if (goes) unneeded.push_back(kernel.second.kernel.blob);
      return goes;
    });
    if (cast_ == Cast::kPool) remove_objects(unneeded);
  }
  if (mutation_ == WorldMutation::kEvictKernels)
    std::erase_if(store_.kernels, [&](const auto&) { return random_.chance(0.5); });
}

void Cluster::crash_coordinator() {
  note("coordinator dies");
  core_.reset();
  ++incarnation_;
  after(random_.between(50, 2'000), [this] { start_coordinator(); });
}

// While there are faults, some worker is of another build.
std::shared_ptr<const TemplateVersions> Cluster::templates() {
  if (!scenario_.mixed) return nullptr;
  TemplateVersions templates = options_.templates;
  if (faults() && upgrades_.chance(0.4))
    --templates[static_cast<size_t>(upgrades_.between(0, 1))].version;
  return std::make_shared<const TemplateVersions>(std::move(templates));
}

void Cluster::tick() {
  after(kTickMs, [this] { tick(); });
  if (!faults() && core_ != nullptr && !std::exchange(fleet_upgraded_, true))
    for (auto& worker : workers_) worker->upgrade();
  if (core_ == nullptr) return;
  if (mutation_ != WorldMutation::kLoseDeaths) step(Tick{});
  if (core_ != nullptr) checker_.saw(core_->stats(now_ms_));
  if (core_ != nullptr && faults()) cause_trouble();
}

void Cluster::cause_trouble() {
  constexpr int64_t kHourUs = 3'600'000'000;
  if (random_.chance(0.02)) clock_offset_us_ += random_.chance(0.5) ? kHourUs : -kHourUs;
  if (random_.chance(0.02)) cut_somebody_off();
  if (random_.chance(0.01)) {
    const auto chosen = random_.between(0, std::ssize(workers_) - 1);
    const WorkerId id = workers_[static_cast<size_t>(chosen)]->id();
    note(id + " shall drain");
    step(DrainRequested{id});
  }
  if (core_ != nullptr && random_.chance(0.011)) crash_coordinator();
  if (cast_ != Cast::kPool) return;
  if (core_ != nullptr && terms_.chance(0.02)) stand_still();
  if (core_ != nullptr && terms_.chance(0.005)) fail_over();
}

void Cluster::cut_somebody_off() {
  const bool client = random_.chance(0.3);
  const auto count = client ? std::ssize(clients_) : std::ssize(workers_);
  const std::string name =
      (client ? "client" : "worker") + std::to_string(random_.between(0, count - 1));
  const bool inwards = random_.chance(0.5);
  cut_until_ms_[{name, inwards}] = now_ms_ + random_.between(500, 5'000);
  note(fmt::format("what {} {} is lost", name, inwards ? "says" : "should hear"));
}

// `id`: its name, a dot, and which incarnation of it.
bool Cluster::is_cut_off(const std::string& id, bool inwards) const {
  const auto cut = cut_until_ms_.find({id.substr(0, id.find('.')), inwards});
  return cut != cut_until_ms_.end() && now_ms_ < std::min(cut->second, faults_end_ms_);
}

void Cluster::step(Event event) {
  if (core_ == nullptr || is_late_ || checker_.violation()) return;
  checker_.at(now_ms_);
  checker_.saw(event);
  if (mutation_ == WorldMutation::kAcceptStale) accept_stale(event);
  if (mutation_ == WorldMutation::kLoseDeaths && std::holds_alternative<WorkerGone>(event)) return;
  feed(std::move(event));
}

void Cluster::feed(Event event) {
  ++outcome_.steps;
  const bool dies = faults() && random_.chance(death_);
  const bool makes_candidates = std::holds_alternative<PlanFinished>(event);
  const int64_t queued = makes_candidates ? core_->stats(now_ms_).candidates_queued : 0;
  for (Action& action : core_->step(now_ms_, std::move(event))) {
    checker_.saw(action);
    // At any step, and between any two things that it was about to do.
    if (dies && random_.chance(0.5)) return crash_coordinator();
    if (mutation_ == WorldMutation::kAnswerTwice && std::holds_alternative<Answer>(action))
      checker_.saw(action);
    act(std::move(action));
  }
  if (dies) return crash_coordinator();
  if (makes_candidates) checker_.saw_queue(queued, core_->stats(now_ms_).candidates_queued);
  if (checker_.violation()) note(*checker_.violation());
}

// ---- What the core asks for ----

void Cluster::act(Action action) {
  act_on_client(action);
  if (auto* a = std::get_if<SendOrders>(&action)) {
    for (const Job& job : a->orders.jobs) {
      note(fmt::format("lease {} epoch {} kind {} of {} to {}", job.lease, job.epoch,
                       static_cast<int>(job.kind), job.kernel_key.short_hex(), a->worker));
      if (mutation_ == WorldMutation::kAcceptStale) jobs_[job.lease] = {a->worker, job};
    }
    return to_worker(a->worker, std::move(a->orders));
  }
  if (auto* a = std::get_if<StartPlan>(&action)) return plan(std::move(*a));
  if (auto* a = std::get_if<LookUpProgram>(&action)) {
    after(random_.between(0, 20), [this, key = a->key, incarnation = incarnation_] {
      if (incarnation != incarnation_) return;
      const auto found = store_.programs.find(key);
      if (found == store_.programs.end()) return step(ProgramLookedUp{key, ""});
      if (cast_ == Cast::kPool) read_binaries(*program_from_json(found->second));
      if (!store_.programs.contains(key)) return step(ProgramLookedUp{key, ""});
      const bool stale =
          program_from_json(found->second)->template_stamp != template_stamp(options_.templates);
      step(ProgramLookedUp{key, found->second, {}, stale});
    });
    return;
  }
  act_on_store(std::move(action));
}

void Cluster::act_on_client(const Action& action) {
  if (const auto* a = std::get_if<Answer>(&action)) {
    const auto& outcome = a->reply.outcome;
    note(fmt::format("{} request {} is answered: {}", a->client, a->reply.request,
                     outcome ? std::to_string(static_cast<int>(*outcome))
                             : outcome.error().message.substr(0, 100)));
    to_client(a->client, [reply = a->reply](Client& client) { client.answered(reply); });
  }
  if (const auto* a = std::get_if<AskForGraph>(&action))
    to_client(a->client, [request = a->request](Client& c) { c.graph_wanted(request); });
}

void Cluster::act_on_store(Action action) {
  if (auto* a = std::get_if<StoreRecords>(&action)) {
    const RecordsStored stored{a->worker, a->acks};
    if (mutation_ == WorldMutation::kAckUnstored)
      after(0, [this, stored, incarnation = incarnation_] {
        if (incarnation == incarnation_) feed(stored);
      });
    write([this, stored, records = std::move(a->records)](const Status& status) {
      for (const TuningRecord& record : records) {
        if (status)
          store_.records[record.kernel_key].push_back(record);
        else
          checker_.record_lost(record);
      }
      step(stored);
    });
  } else if (auto* k = std::get_if<StoreKernel>(&action)) {
    note(fmt::format("winner of {}: {}", k->kernel.key.short_hex(), k->kernel.schedule));
    write([this, kernel = std::move(*k)](const Status& status) {
      if (status && cast_ == Cast::kPool) put_object(kernel.kernel.blob);
      if (status) store_.kernels.insert_or_assign(kernel.kernel.key, kernel);
      step(KernelStored{kernel.kernel.key, status});
    });
  } else if (auto* p = std::get_if<StoreProgram>(&action)) {
    const Digest key = p->program.key;
    if (mutation_ == WorldMutation::kAnswerUnstored)
      after(0, [this, key, incarnation = incarnation_] {
        if (incarnation == incarnation_) feed(ProgramStored{key, {}});
      });
    write([this, key, json = program_to_json(p->program)](const Status& status) {
      if (status) store_.programs[key] = json;
      step(ProgramStored{key, status});
    });
  } else {
    act_on_tasks(std::move(action));
  }
}

void Cluster::act_on_tasks(Action action) {
  if (auto* s = std::get_if<StoreDetached>(&action)) {
    if (mutation_ == WorldMutation::kQueueUnstored)
      after(0, [this, stored = DetachedStored{s->key, s->task, {}}, incarnation = incarnation_] {
        if (incarnation == incarnation_) feed(stored);
      });
    write([this, store = std::move(*s)](const Status& status) {
      if (status) store_.tasks[store.key] = {store.task, store.graph_text};
      step(DetachedStored{store.key, store.task, status});
    });
  } else if (auto* e = std::get_if<EndDetached>(&action)) {
    write([this, end = std::move(*e)](const Status& status) {
      const DetachedTask& task = end.task;
      const Digest key = program_key(task.graph, task.target, task.mode);
      if (!status) return;
      if (end.outcome)
        store_.tasks.erase(key);
      else if (store_.tasks.contains(key))
        store_.tasks[key] = {task, "", end.outcome.error()};
    });
  } else if (const auto* w = std::get_if<WithdrawKernel>(&action)) {
    withdraw(*w);
  } else if (const auto* f = std::get_if<ForgetDetached>(&action)) {
    write([this, task = f->task](const Status& status) {
      if (status) store_.tasks.erase(program_key(task.graph, task.target, task.mode));
    });
  }
}

// As the shell does: what was made with the kernel so far is revoked, and forgotten.
void Cluster::withdraw(const WithdrawKernel& action) {
  const int64_t through = ++store_.serial;
  write([this, action, through](const Status& status) {
    if (status) {
      checker_.revoked(action.kernel, through);
      std::erase_if(store_.programs, [&](const auto& stored) {
        const auto program = program_from_json(stored.second);
        return std::ranges::any_of(program->kernels, [&](const ProgramKernel& kernel) {
          return kernel.key == action.kernel;
        });
      });
      store_.kernels.erase(action.kernel);
    }
    step(KernelWithdrawn{action.ticket, ++store_.serial});
  });
}

// One writer: in order, each after a while, none after the process died.
void Cluster::write(std::function<void(Status)> apply) {
  writer_free_ms_ = std::max(writer_free_ms_, now_ms_) + random_.between(1, 60);
  const bool full = faults() && random_.chance(disk_full_);
  after(writer_free_ms_ - now_ms_,
        [this, full, apply = std::move(apply), incarnation = incarnation_] {
          if (incarnation != incarnation_) return write_late(apply, incarnation);
          apply(full ? Status(fail(Code::kUnavailable, "no space left on device")) : Status());
        });
}

// Reads the store at one moment and answers at a later one.
void Cluster::plan(StartPlan start) {
  after(random_.between(1, 150), [this, start = std::move(start), incarnation = incarnation_] {
    if (incarnation != incarnation_) return;
    const TrueProgram& truth = truth_.by_graph(start.graph);
    PlanFinished finished{start.key, Program{}, {}};
    finished.program->key = start.key;
    finished.program->graph = start.graph;
    finished.program->target = start.target;
    finished.program->mode = start.mode;
    finished.program->template_stamp = template_stamp(options_.templates);
    const bool stored = start.graph_text.empty() && store_.tasks.contains(start.key);
    const std::string& text = stored ? store_.tasks[start.key].graph_text : start.graph_text;
    if (text != truth.graph_text)
      finished.program = fail(Code::kInvalidArgument, "the graph is not its digest");
    else if (!truth.supported)
      finished.program = fail(Code::kUnsupported, "an op that no kernel family covers");
    else
      plan_alternatives(truth, start, finished);
    after(random_.between(1, 300), [this, finished = std::move(finished), incarnation]() mutable {
      if (incarnation != incarnation_) return;
      if (finished.program) finished.program->serial = ++store_.serial;
      step(finished);
    });
  });
}

// As the planner does: kernels that several partitions need are planned once, those by rules first.
void Cluster::plan_alternatives(const TrueProgram& truth, const StartPlan& start,
                                PlanFinished& finished) {
  std::vector<int> known;
  const Program empty = *finished.program;
  for (const TruePartition& partition : truth.partitions) {
    const bool by_default = &partition == &truth.partitions.front();
    if (!by_default && start.mode == Mode::kDefault) return;
    PlannedAlternative cut{empty, {}};
    for (const int kernel : partition.kernels) {
      const auto found = std::find(known.begin(), known.end(), kernel);
      cut.kernels.push_back(static_cast<int>(found - known.begin()));
      if (found != known.end()) continue;
      known.push_back(kernel);
      finished.kernels.push_back(planned(kernel, start));
    }
    for (const int launch : partition.launches) cut.program.launches.push_back({launch, {}, {}});
    if (by_default)
      finished.program->launches = cut.program.launches;
    else
      finished.alternatives.push_back(std::move(cut));
  }
}

PlannedKernel Cluster::planned(int kernel, const StartPlan& start) {
  const TrueKernel& truth = truth_.kernel(kernel);
  PlannedKernel planned;
  planned.key = truth_.kernel_key(kernel, start.target, start.mode);
  planned.workload = Digest::of(truth.name);
  planned.workload_text = truth.name;
  for (const TrueCandidate& candidate : truth.candidates)
    planned.schedules.push_back(candidate.schedule);
  // Of some kernels those of one template are expected to be far behind; each has one of the other.
  if (scenario_.mixed && kernel % 2 == 0) planned.reserves = {"cpu.vector"};
  planned.has_variants = start.mode == Mode::kMaxAutotune && kernel % 3 == 0;
  // Earlier winners come first, so an index means another schedule in another incarnation.
  std::rotate(planned.schedules.begin(),
              planned.schedules.begin() + incarnation_ % std::ssize(planned.schedules),
              planned.schedules.end());
  planned.templates = options_.templates;
  if (const auto cached = store_.kernels.find(planned.key);
      cached != store_.kernels.end() && (cached->second.kernel.templates == planned.templates ||
                                         mutation_ == WorldMutation::kTrustStale))
    planned.cached = cached->second.kernel;
  if (mutation_ != WorldMutation::kForgetRecords) planned.records = store_.records[planned.key];
  std::erase_if(planned.records,
                [&](const TuningRecord& record) { return !is_current(record, planned.templates); });
  return planned;
}

// ---- The network ----

void Cluster::after(int64_t ms, std::function<void()> run) {
  timers_.push(Timer{now_ms_ + ms, ++orders_, std::move(run)});
}

void Cluster::lossy(std::function<void()> deliver) {
  if (faults() && random_.chance(loss_)) return;
  const int copies = faults() && random_.chance(duplication_) ? 2 : 1;
  for (int i = 0; i < copies; ++i) after(random_.between(1, faults() ? 80 : 5), deliver);
}

void Cluster::to_coordinator(Event event) {
  const auto* report = std::get_if<ReportReceived>(&event);
  const auto* request = std::get_if<RequestReceived>(&event);
  if (report != nullptr && is_cut_off(report->worker, true)) return;
  if (request != nullptr && is_cut_off(request->client, true)) return;
  lossy([this, event = std::move(event)] { step(event); });
}

void Cluster::tell_coordinator(Event event) {
  step(std::move(event));
}

void Cluster::to_client(const ClientId& id, std::function<void(Client&)> deliver) {
  if (is_cut_off(id, false)) return;
  lossy([this, id, deliver = std::move(deliver)] {
    for (auto& client : clients_)
      if (client->id() == id) return deliver(*client);
  });
}

void Cluster::to_worker(const WorkerId& id, WorkerOrders orders) {
  if (is_cut_off(id, false)) return;
  lossy([this, id, orders = std::move(orders)] {
    for (auto& worker : workers_)
      if (worker->id() == id) return worker->ordered(orders);
  });
}

void Cluster::accept_stale(Event& event) const {
  auto* report = std::get_if<ReportReceived>(&event);
  if (report == nullptr) return;
  for (CandidateResult& result : report->report.results)
    for (const auto& [lease, sent] : jobs_) {
      const auto& [worker, job] = sent;
      if (lease <= result.lease || worker != report->worker) continue;
      if (job.kernel_key != result.kernel_key) continue;
      for (const CandidateJob& candidate : job.candidates)
        if (candidate.index == result.index) {
          result.lease = lease;
          result.epoch = job.epoch;
        }
    }
}

}  // namespace kiln::simulation
