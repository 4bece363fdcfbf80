#include "tests/simulation/checker.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln::simulation {
namespace {

// How far the winner W may be from the best candidate B, by the noise alone. The screening of each
// is off by kNoise to either side, times the calibration of its device, whose calibration time is off
// by kCalibrationNoise (the reference is common to all, and cancels). Whoever wins was no slower
// than B there, or beat B in one final, which has the noise of times only, since one worker runs it
// whole. (A winner that beat others there, but not B, did so because B's screening was slower than
// its own: the finalists are the best of the screening.) The larger of both is that of the
// screening:  W (1-n)/(1+s) <= B (1+n)/(1-s).  The tie rule needs an incumbent, and a tuning ranks
// without one; what racing drops loses its binary, not its time.
constexpr double kWinnerSlack =
    (1 + kNoise) / (1 - kNoise) * (1 + kCalibrationNoise) / (1 - kCalibrationNoise) + 1e-9;

// The same of a partition, whose time is a sum of such medians; and the default partition
// stands against one that is up to 2 % faster.
constexpr double kPartitionSlack = kWinnerSlack / 0.98;

constexpr int kBuildsACompiler = 2;  // one that runs, and the next

}  // namespace

void Checker::fail(int invariant, const std::string& what) {
  if (!violation_) violation_ = fmt::format("invariant {}: {}", invariant, what);
}

void Checker::incarnation_begins(const Store& store) {
  fleet_.incarnation_begins();
  fairness_.incarnation_begins();
  bounds_.incarnation_begins();
  reasons_.incarnation_begins(now_ms_);
  finals_.incarnation_begins();
  early_.incarnation_begins();
  last_lease_of_earlier_incarnations_ = last_lease_;
  open_.clear();
  workers_.clear();
  leases_.clear();
  reported_.clear();
  accepted_.clear();
  durable_.clear();
  finished_.clear();
  winners_.clear();
  won_.clear();
  troubled_.clear();
  owed_.clear();
  programs_found_.clear();
  stale_found_.clear();
  std::erase_if(owed_successors_, [&](const auto& served) {
    const auto found = store.programs.find(served.first);
    if (found == store.programs.end()) return !served.second.now;  // stale, and gone
    return program_from_json(found->second)->template_stamp == template_stamp(options_.templates);
  });
  programs_settled_.clear();
  kernels_unstored_.clear();
  programs_stored_.clear();
  detached_stored_.clear();
  for (const auto& [key, records] : store.records)
    for (const TuningRecord& record : records)
      if (is_current(record, options_.templates) && is_terminal(record.verdict) &&
          (record.verdict != Verdict::kOk || !record.measurement.samples_us.empty()))
        finished_[{key, record.schedule.to_string()}] = record.verdict;
  if (templates_ != options_.templates) finals_.forget();
  templates_ = options_.templates;
  for (const auto& [key, kernel] : store.kernels) {
    if (kernel.kernel.templates != templates_) continue;  // stale: tuned again
    winners_.insert(key);
    won_[key].insert(kernel.kernel.schedule);
  }
  check_stored(store);
}

// A program that an incarnation finds is answered as it is, so all its kernels must be there.
void Checker::check_stored(const Store& store) {
  for (const auto& [key, json] : store.programs) {
    const auto program = program_from_json(json);
    if (!program) return fail(5, "a program in the store cannot be read");
    if (program->template_stamp != template_stamp(templates_)) continue;
    for (const ProgramKernel& kernel : program->kernels) {
      const auto found = store.kernels.find(kernel.key);
      if (found == store.kernels.end() || found->second.kernel.blob != kernel.blob)
        return fail(5, "a program is in the store whose kernel is not");
    }
  }
}

void Checker::fail_if(int invariant, const std::optional<std::string>& what) {
  if (what) fail(invariant, *what);
}

void Checker::record_lost(const TuningRecord& record) {
  finished_.erase({record.kernel_key, record.schedule.to_string()});
  finals_.lost(record);
  early_.lost(record);
}

// ---- Events ----

void Checker::saw(const Event& event) {
  if (!owed_.empty()) fail(1, "a result of an earlier life is not acknowledged");
  fail_if(5, early_.step_ends());
  saw_for_watches(event);
  if (const auto* e = std::get_if<RequestReceived>(&event)) saw_request(*e);
  if (const auto* e = std::get_if<RequestCancelled>(&event)) open_.erase({e->client, e->request});
  if (const auto* e = std::get_if<ClientGone>(&event))
    std::erase_if(open_, [&](const auto& entry) { return entry.first.first == e->client; });
  if (const auto* e = std::get_if<ProgramLookedUp>(&event); e != nullptr && e->stale)
    stale_found_[e->key] = e->program_json;
  if (const auto* e = std::get_if<ProgramLookedUp>(&event);
      e != nullptr && !e->program_json.empty() && !e->stale) {
    owed_successors_.erase(e->key);
    programs_found_.insert(e->key);
    programs_stored_.insert(e->key);
    promised_.erase(e->key);
  }
  if (const auto* e = std::get_if<ProgramStored>(&event)) {
    programs_settled_.insert(e->key);
    if (e->status) programs_stored_.insert(e->key);
    if (e->status) promised_.erase(e->key);
    if (e->status) owed_successors_.erase(e->key);
  }
  if (const auto* e = std::get_if<DetachedStored>(&event); e != nullptr && e->status)
    detached_stored_.insert(e->key);
  if (const auto* e = std::get_if<DetachedRecovered>(&event); e != nullptr && !e->failure)
    detached_stored_.insert(program_key(e->task.graph, e->task.target, e->task.mode));
  if (const auto* e = std::get_if<KernelStored>(&event); e != nullptr && !e->status) {
    winners_.erase(e->kernel);
    kernels_unstored_.insert(e->kernel);
  }
  if (const auto* e = std::get_if<ReportReceived>(&event)) {
    workers_[e->worker] = e->report;
    worker_templates_[e->worker] = e->templates;
    for (const CandidateResult& result : e->report.results) {
      reported_.emplace(result.lease, result.epoch, result.index);
      saw_final(result);
      if (result.lease > last_lease_of_earlier_incarnations_) continue;
      owed_.emplace(result.lease, result.index);
      if (is_terminal(result.verdict)) fenced_.emplace(result.lease, result.index);
    }
  }
  if (const auto* e = std::get_if<WorkerGone>(&event)) {
    workers_.erase(e->worker);
    std::erase_if(leases_, [&](const auto& lease) {
      if (lease.second.worker == e->worker) trouble(lease.second);
      return lease.second.worker == e->worker;
    });
  }
  if (const auto* e = std::get_if<RecordsStored>(&event))
    for (const ResultAck& ack : e->acks) {
      durable_.emplace(ack.lease, ack.index);
      finals_.durable(ack);
    }
}

void Checker::trouble(const KnownLease& lease) {
  for (const auto& [index, schedule] : lease.outstanding)
    reasons_.troubled(lease.kernel, schedule.to_string());
}

void Checker::saw_for_watches(const Event& event) {
  fleet_.saw(now_ms_, event);
  bounds_.saw(event);
  reasons_.saw(now_ms_, event);
  if (const auto* e = std::get_if<RequestReceived>(&event)) fairness_.asked(*e);
  if (const auto* e = std::get_if<RequestCancelled>(&event)) fairness_.ended(e->client, e->request);
  if (const auto* e = std::get_if<ClientGone>(&event)) fairness_.gone(e->client);
  if (const auto* e = std::get_if<PlanFinished>(&event)) fairness_.planned(*e);
}

// The core's statistics must agree with what was seen of it.
void Checker::saw(const Stats& stats) {
  if (stats.requests_open != std::ssize(open_))
    fail(2, fmt::format("{} requests are open, and the core says {}", open_.size(),
                        stats.requests_open));
  fail_if(4, bounds_.saw(stats));
}

void Checker::saw_queue(int64_t before, int64_t after) {
  fail_if(4, bounds_.made_candidates(before, after));
}

void Checker::saw_request(const RequestReceived& event) {
  open_.try_emplace({event.client, event.request.request}, event.request);
}

// ---- Actions ----

void Checker::saw(const Action& action) {
  if (const auto* a = std::get_if<Answer>(&action)) saw_answer(*a);
  if (const auto* a = std::get_if<AskForGraph>(&action))
    reasons_.asked_for_graph(a->client, a->request);
  if (const auto* a = std::get_if<SendOrders>(&action)) saw_orders(*a);
  if (const auto* a = std::get_if<StoreRecords>(&action)) saw_records(*a);
  if (const auto* a = std::get_if<StoreKernel>(&action)) saw_winner(*a);
  if (const auto* a = std::get_if<StoreKernel>(&action)) early_.stored(*a);
  if (const auto* a = std::get_if<ShareBinary>(&action)) early_.shared(*a);
  if (const auto* a = std::get_if<WithdrawKernel>(&action)) {
    early_.withdrawn(*a);
    reasons_.withdrawn(a->kernel);
  }
  if (const auto* a = std::get_if<EndDetached>(&action)) saw_end(*a);
  if (const auto* a = std::get_if<StoreProgram>(&action)) saw_choice(a->program);
  if (const auto* a = std::get_if<StoreProgram>(&action))
    for (const ProgramKernel& kernel : a->program.kernels)
      if (kernels_unstored_.contains(kernel.key) && !winners_.contains(kernel.key))
        fail(5, "a program is stored whose kernel is not");
  bounds_.saw(action);
}

void Checker::saw_answer(const Answer& answer) {
  const auto open = open_.find({answer.client, answer.reply.request});
  if (open == open_.end())
    return fail(2, fmt::format("{} is answered request {}, which is not open", answer.client,
                               answer.reply.request));
  CompileRequest request = open->second;
  open_.erase(open);
  fairness_.ended(answer.client, answer.reply.request);
  const TrueProgram& truth = truth_.by_graph(request.graph);
  // Whatever is wrong with a program that is to be had now is wrong with its tier 0.
  const bool has_tier0 =
      request.now && request.mode == Mode::kMaxAutotune && !request.check_only && !request.detach;
  if (!answer.reply.outcome) {
    if (has_tier0) request.mode = Mode::kDefault;
    return check_failure(answer.client, request, answer.reply.outcome.error());
  }
  if (answer.reply.tier0) {
    if (!has_tier0) return fail(2, "tier 0 is answered to a client that waits for the program");
    saw_tier0(request);
    request.mode = Mode::kDefault;
  } else if (has_tier0 && *answer.reply.outcome != CacheOutcome::kHit) {
    return fail(2, "a client that wants what there is now had to wait for the tuned program");
  }
  const Digest key = program_key(request.graph, request.target, request.mode);
  if (*answer.reply.outcome == CacheOutcome::kQueued) {
    if (!request.detach) return fail(2, "a client that waits is told that its program is queued");
    if (!detached_stored_.contains(key)) fail(6, "queued is answered before the task is stored");
    promised_[key] = request.target;
    return;
  }
  if (answer.reply.stale) return saw_stale(key, request, answer.reply);
  fail_if(2, early_.answered(request, answer));
  if (answer.is_early) {
    const auto early = program_from_json(answer.reply.program_json);
    if (!early || early->key != key || truth_.partition_of(truth, *early) == nullptr)
      fail(2, "the early answer is not the program that was asked for");
    return;
  }
  saw_program(key, *answer.reply.outcome, answer);

  const auto program = program_from_json(answer.reply.program_json);
  const TruePartition* partition =
      program && program->key == key ? truth_.partition_of(truth, *program) : nullptr;
  if (partition == nullptr) return fail(2, "the answer is not the program that was asked for");
  for (size_t i = 0; i < partition->kernels.size(); ++i) {
    const auto* candidate = truth_.kernel(partition->kernels[i]).find(program->kernels[i].schedule);
    if (candidate == nullptr || candidate->verdict != Verdict::kOk)
      return fail(2, fmt::format("the answer has a kernel that is wrong: {}",
                                 program->kernels[i].schedule));
  }
}

// The stored partition is the choice for good: the fastest whose kernels all have winners.
void Checker::saw_choice(const Program& program) {
  const TrueProgram& truth = truth_.by_graph(program.graph);
  const TruePartition* partition = truth_.partition_of(truth, program);
  if (partition == nullptr) return fail(2, "a program is stored that is not what was asked for");
  for (const ProgramKernel& kernel : program.kernels)
    if (kernel.templates != templates_)
      return fail(1, "a program is stored with a winner of other templates");
  if (program.mode == Mode::kDefault || scenario_.drifting()) return;
  const TruePartition& taken = *partition;
  double taken_us = 0;
  for (const int launch : taken.launches) {
    const auto position = static_cast<size_t>(launch);
    taken_us += truth_.kernel(taken.kernels[position]).find(program.kernels[position].schedule)->us;
  }
  for (const TruePartition& other : truth.partitions)
    if (const auto us = slowest_time(other, program); us && taken_us > *us * kPartitionSlack)
      fail(1,
           fmt::format("a partition of {} us is stored, and another takes {} us", taken_us, *us));
}

// By its winners; the slowest of each kernel that won more than once. Nothing while one has none,
// or may have lost it: a store that failed made it be tuned again, and it killed its runners then.
std::optional<double> Checker::slowest_time(const TruePartition& partition,
                                            const Program& like) const {
  double us = 0;
  for (const int launch : partition.launches) {
    const int kernel = partition.kernels[static_cast<size_t>(launch)];
    const Digest key = truth_.kernel_key(kernel, like.target, like.mode);
    const auto won = won_.find(key);
    if (won == won_.end()) return std::nullopt;
    if (!winners_.contains(key) && troubled_.contains(key)) return std::nullopt;
    double slowest = 0;
    for (const std::string& schedule : won->second)
      slowest = std::max(slowest, truth_.kernel(kernel).find(schedule)->us);
    us += slowest;
  }
  return us;
}

void Checker::check_refusal(const ClientId& client, const CompileRequest& request,
                            const Error& error) {
  const bool of_requests = error.message.find("requests are waiting") != std::string::npos;
  const bool of_queue = error.message.find("are queued already") != std::string::npos;
  if ((of_requests && !bounds_.may_refuse(client, request.request)) ||
      (of_queue && !bounds_.may_refuse_detached()))
    fail(2, fmt::format("{} is refused though there is room: {}", client, error.message));
}

// A program fails for a reason, and for a kernel without survivors only when every partition needs
// such a one.
void Checker::check_failure(const ClientId& client, const CompileRequest& request,
                            const Error& error) {
  check_refusal(client, request, error);
  fail_if(2, reasons_.refused(now_ms_, client, request, error));
  if (error.message.find("survived") == std::string::npos) return;
  const TrueProgram& truth = truth_.by_graph(request.graph);
  for (const TruePartition& partition : truth.partitions) {
    if (request.mode == Mode::kDefault && &partition != &truth.partitions.front()) return;
    if (std::ranges::all_of(partition.kernels, [&](int kernel) {
          return winners_.contains(truth_.kernel_key(kernel, request.target, request.mode));
        }))
      fail(2, "a program fails, and every kernel of one partition has its winner");
  }
}

// Served as it is, to whoever takes it; its successor is owed to everybody.
void Checker::saw_stale(const Digest& key, const CompileRequest& request,
                        const CompileReply& reply) {
  const auto found = stale_found_.find(key);
  if (request.strict) return fail(2, "a client that refuses stale programs is given one");
  if (found == stale_found_.end() || found->second != reply.program_json)
    return fail(2, "a program is answered as stale that the store does not have");
  if (!request.check_only) owed_successors_.try_emplace(key, request);
}

// The program that was asked for is owed, but for one that has no right candidate.
void Checker::saw_tier0(const CompileRequest& request) {
  const TrueProgram& truth = truth_.by_graph(request.graph);
  const bool can_be_made =
      truth.supported && std::ranges::all_of(truth.partitions.front().kernels, [&](int kernel) {
        return std::ranges::any_of(truth_.kernel(kernel).candidates, [](const TrueCandidate& c) {
          return c.verdict == Verdict::kOk;
        });
      });
  const Digest key = program_key(request.graph, request.target, request.mode);
  if (can_be_made && !programs_stored_.contains(key)) owed_successors_.try_emplace(key, request);
}

void Checker::saw_program(const Digest& key, CacheOutcome outcome, const Answer& answer) {
  if (outcome == CacheOutcome::kHit) {
    if (!programs_found_.contains(key)) fail(5, "a hit that the store does not have");
    return;
  }
  if (answer.reply.memory_only == programs_stored_.contains(key))
    fail(5, answer.reply.memory_only ? "a stored program is called one that only memory has"
                                     : "a program that only memory has is not called so");
  if (programs_settled_.contains(key)) return;
  const auto program = program_from_json(answer.reply.program_json);
  const bool unstored =
      program && std::any_of(program->kernels.begin(), program->kernels.end(),
                             [&](const auto& k) { return kernels_unstored_.contains(k.key); });
  if (!unstored && !(program && may_lack_an_alternative(*program)))
    fail(5, "answered before the store said anything");
}

// Not all of its ways have winners, perhaps for want of a worker: then none is stored. Nor had
// they, perhaps, when this program needed them, where another one tuned a troubled kernel afresh
// since.
bool Checker::may_lack_an_alternative(const Program& program) const {
  const TrueProgram& truth = truth_.by_graph(program.graph);
  return (program.mode == Mode::kMaxAutotune || scenario_.mixed) &&
         std::ranges::any_of(truth.partitions, [&](const TruePartition& partition) {
           return std::ranges::any_of(partition.kernels, [&](int kernel) {
             const Digest key = truth_.kernel_key(kernel, program.target, program.mode);
             return !winners_.contains(key) || reasons_.was_troubled(key);
           });
         });
}

void Checker::saw_orders(const SendOrders& orders) {
  const std::set<uint64_t> held(orders.orders.leases.begin(), orders.orders.leases.end());
  std::erase_if(leases_, [&](const auto& entry) {
    const bool ended = entry.second.worker == orders.worker && !held.contains(entry.first);
    if (ended) trouble(entry.second);
    return ended;
  });
  if (slots_held(orders, false) > workers_[orders.worker].slots) fail(4, "more leases than slots");
  if (slots_held(orders, true) > kBuildsACompiler * workers_[orders.worker].compilers)
    fail(4, "more builds than compilers have room for");
  fail_if(7, fleet_.ordered(orders));
  for (const Job& job : orders.orders.jobs) saw_job(orders.worker, job);
  for (const ResultAck& ack : orders.orders.acks) {
    const ResultId id{ack.lease, ack.index};
    owed_.erase(id);
    if (accepted_.contains(id) && !durable_.contains(id))
      fail(5, "a result is acknowledged before its record is durable");
  }
}

int Checker::slots_held(const SendOrders& orders, bool builds) const {
  const auto is_meant = [&](uint64_t id) {
    const auto job = std::ranges::find(orders.orders.jobs, id, &Job::lease);
    const auto known = leases_.find(id);
    const bool is_build = job != orders.orders.jobs.end() ? job->kind == Job::Kind::kBuild
                          : known != leases_.end()        ? known->second.kind == Job::Kind::kBuild
                                                          : false;
    return is_build == builds;
  };
  return static_cast<int>(std::ranges::count_if(orders.orders.leases, is_meant));
}

void Checker::saw_job(const WorkerId& worker, const Job& job) {
  if (leases_.contains(job.lease)) return;  // sent again
  if (!lease_ids_.insert(job.lease).second) fail(1, "a lease id is used twice");
  check_place(workers_[worker], job);
  if (job.lease <= last_lease_of_earlier_incarnations_)
    fail(1, "a lease has an id that an earlier life may have used");
  last_lease_ = std::max(last_lease_, job.lease);
  fail_if(7, fleet_.leased(now_ms_, worker));
  fail_if(4, early_.leased(workers_[worker], job));
  if (scenario_.crowded()) fail_if(4, fairness_.leased(job));
  KnownLease lease{worker, job.epoch, job.kind, job.kernel_key, {}};
  for (const CandidateJob& candidate : job.candidates) {
    const std::string schedule = candidate.schedule.to_string();
    lease.outstanding.emplace(candidate.index, candidate.schedule);
    if (job.kind != Job::Kind::kFinal && !has_template(worker, candidate.schedule))
      fail(4, "a candidate goes to a worker that does not have its template");
    const auto known = finished_.find({job.kernel_key, schedule});
    if (known != finished_.end() &&
        (job.kind == Job::Kind::kScreen || known->second != Verdict::kOk))
      fail(3, fmt::format("{} is taken again", schedule));
    check_hedge(lease, candidate);
    if (job.kind == Job::Kind::kFinal &&
        candidate.binary != Truth::binary(job.kernel_key, candidate.schedule))
      fail(1, "a final with the wrong binary");
  }
  fail_if(3, finals_.again(job));
  finals_.leased(job);
  leases_.emplace(job.lease, std::move(lease));
}

// Who only builds has no device, and builds nothing that no device waits for.
void Checker::check_place(const WorkerReport& worker, const Job& job) {
  const auto can_run = [&](const Target& target) { return target.can_run(job.target); };
  const bool fits = worker.only_builds() ? job.kind == Job::Kind::kBuild &&
                                               std::ranges::any_of(worker.builds_for, can_run)
                                         : can_run(worker.target);
  if (!fits) fail(4, "a job goes where it cannot run");
  const bool somebody_tries = std::ranges::any_of(
      workers_, [&](const auto& other) { return can_run(other.second.target); });
  if (!somebody_tries) fail(4, "it is built, and no worker can try it");
}

bool Checker::has_template(const WorkerId& worker, const Schedule& schedule) const {
  const int version = find_version(templates_, schedule.template_name);
  const auto& theirs = worker_templates_.at(worker);
  return version == 0 ||
         (theirs != nullptr && find_version(*theirs, schedule.template_name) == version);
}

// Leased twice under one epoch: only to help a straggler, and only once.
void Checker::check_hedge(const KnownLease& lease, const CandidateJob& candidate) {
  int others = 0;
  for (const auto& [id, other] : leases_) {
    if (other.kernel != lease.kernel || other.epoch != lease.epoch ||
        !other.outstanding.contains(candidate.index))
      continue;
    ++others;
    if (lease.kind == Job::Kind::kBuild)
      fail(1, fmt::format("{} is built twice at once", candidate.schedule.to_string()));
    if (other.worker == lease.worker || lease.kind == Job::Kind::kFinal)
      fail(1, fmt::format("{} is leased twice under one epoch", candidate.schedule.to_string()));
  }
  if (others > 1) fail(1, fmt::format("{} is leased three times", candidate.schedule.to_string()));
}

// Candidates that failed in a final themselves, and have completed none since.
void Checker::saw_final(const CandidateResult& result) {
  const auto lease = leases_.find(result.lease);
  if (lease == leases_.end() || lease->second.kind != Job::Kind::kFinal) return;
  const auto raced = lease->second.outstanding.find(result.index);
  if (raced == lease->second.outstanding.end()) return;
  const CandidateId candidate = {lease->second.kernel, raced->second.to_string()};
  if (result.verdict == Verdict::kOk)
    failed_in_final_.erase(candidate);
  else
    failed_in_final_.insert(candidate);
}

void Checker::saw_records(const StoreRecords& store) {
  for (size_t i = 0; i < store.acks.size(); ++i) {
    const ResultAck& ack = store.acks[i];
    const auto lease = leases_.find(ack.lease);
    if (lease == leases_.end() || lease->second.worker != store.worker ||
        !lease->second.outstanding.contains(ack.index))
      return fail(1, "a result is accepted that is under no open lease");
    if (!reported_.contains({ack.lease, lease->second.epoch, ack.index}))
      return fail(1, "a result is accepted under an epoch that it does not have");
    lease->second.outstanding.erase(ack.index);
    accepted_.emplace(ack.lease, ack.index);
    ++accepted_count_;
    const TuningRecord& record = store.records.at(i);
    check_record(record);
    early_.recorded(record, lease->second.kind);
    fail_if(8, fleet_.recorded(record));
    finals_.recorded(ack, record);
    const CandidateId candidate = {record.kernel_key, record.schedule.to_string()};
    if (!is_terminal(record.verdict)) {
      troubled_.insert(record.kernel_key);
      reasons_.troubled(record.kernel_key, record.schedule.to_string());
    }
    if (!is_terminal(record.verdict)) continue;
    if (record.verdict != Verdict::kOk || lease->second.kind == Job::Kind::kScreen)
      finished_[candidate] = record.verdict;
    // Nobody else's result of it counts any more; a hedged duplicate may be older, or newer, than
    // the lease.
    for (auto& [id, other] : leases_)
      if (other.kernel == record.kernel_key) other.outstanding.erase(ack.index);
  }
}

// The record of a schedule must be true.
void Checker::check_record(const TuningRecord& record) {
  const TrueCandidate* truth = truth_.by_key(record.kernel_key).find(record.schedule);
  if (truth == nullptr) return fail(1, "a record of a schedule that there is not");
  if (is_terminal(record.verdict) && record.verdict != truth->verdict)
    fail(1, fmt::format("a record says {} of {}, which is {}", to_string(record.verdict),
                        record.schedule.to_string(), to_string(truth->verdict)));
  for (double us : record.measurement.samples_us)
    if (us < truth->us * (1 - 2 * kNoise) ||
        us > truth->us * (1 + 2 * kNoise) * (scenario_.uneven() ? kSlowestDevice : 1))
      return fail(1, "a record has the times of another schedule");
}

void Checker::saw_winner(const StoreKernel& store) {
  const Digest& key = store.kernel.key;
  // Without the candidates of a template that no worker had, it is tuned again for the next plan.
  const bool is_final = store.kernel.templates == templates_;
  if (is_final && !winners_.insert(key).second) return fail(1, "a second winner of one kernel");
  won_[key].insert(store.kernel.schedule);
  troubled_.erase(key);
  const TrueKernel& kernel = truth_.by_key(key);
  const TrueCandidate* winner = kernel.find(store.kernel.schedule);
  if (winner == nullptr || winner->verdict != Verdict::kOk) return fail(1, "the winner is wrong");
  if (store.binary != Truth::binary(key, winner->schedule) ||
      store.kernel.blob != Digest::of(store.binary))
    return fail(1, "the winner's binary is another one");
  if (store.kernel.report.best_us == 0 || set_aside(store)) return;  // default mode
  if (scenario_.drifting()) return;
  for (const TrueCandidate& other : kernel.candidates) {
    const CandidateId candidate = {key, other.schedule.to_string()};
    const auto known = finished_.find(candidate);
    // Finals that are given up pass over who never ended one.
    if (failed_in_final_.contains(candidate)) continue;
    if (known != finished_.end() && known->second == Verdict::kOk &&
        winner->us > other.us * kWinnerSlack)
      fail(1, fmt::format("{} us wins over {} us", winner->us, other.us));
  }
}

// ---- A pool ----

void Checker::saw_write(uint64_t epoch, uint64_t current) {
  if (epoch != current)
    fail(1, fmt::format("written under term {:x} when {:x} had begun", epoch, current));
}

void Checker::saw_objects(const Store& store) {
  for (const auto& [blob, object] : store.blobs)
    if (!store.objects.contains(object))
      fail(5, "a binary that the index has is gone: " + object.substr(0, 12));
}

void Checker::saw_program_forgotten(bool whole) {
  if (whole) fail(5, "a stored program is forgotten though its binaries are there");
}

// Forgotten, it must be stored; failed, there must be a reason in the program itself.
void Checker::saw_end(const EndDetached& end) {
  const DetachedTask& task = end.task;
  const Digest key = program_key(task.graph, task.target, task.mode);
  const bool was_stored = detached_stored_.erase(key) > 0;
  if (end.outcome && was_stored && !programs_stored_.contains(key))
    fail(6, "a queued program is forgotten and not stored");
  if (!end.outcome) fail_if(6, reasons_.failed(task, end.outcome.error()));
  if (!end.outcome) promised_.erase(key);
}

// Some candidate was given up for transient failures: the best one may be missing.
bool Checker::set_aside(const StoreKernel& store) const {
  const auto terminal = std::count_if(finished_.begin(), finished_.end(), [&](const auto& entry) {
    return entry.first.first == store.kernel.key && entry.second != Verdict::kOk;
  });
  return store.kernel.report.rejected > terminal;
}

}  // namespace kiln::simulation
