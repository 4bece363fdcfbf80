#include "coordinator/service/service_loop.h"

#include <fmt/format.h>

#include "cache/kernel_cache.h"
#include "compiler_core/base/clock.h"
#include "coordinator/service/loop_turn.h"

namespace kiln {
namespace {

constexpr int64_t kTickMs = 100;
constexpr int64_t kKeysMs = 500;            // a key that is revoked is out within a second
constexpr int64_t kWorkerProbeMs = 1'000;   // how soon a vanished worker is noticed
constexpr int64_t kClientProbeMs = 15'000;  // quiet for so long: is it still there?
constexpr size_t kProbesATurn = 256;
constexpr int64_t kTakeBackAgainMs = 10'000;  // where the store was away

using Clock = std::chrono::steady_clock;

TaskTraces::Options tracing_to(const std::shared_ptr<SpanExporter>& exporter) {
  if (exporter == nullptr) return {};
  TaskTraces::Options tracing;
  tracing.sink = [exporter](Span span) { exporter->add(std::move(span)); };
  tracing.samples = [exporter](const TraceContext& caller) {
    return exporter->settings().samples(caller);
  };
  return tracing;
}

}  // namespace

ServiceLoop::ServiceLoop(ServiceOptions given, OpenedStore opened,
                         std::unique_ptr<PendingTaskStore> pending_tasks,
                         std::unique_ptr<ArtifactStore> opened_artifacts, SigningKey signing_key,
                         std::unique_ptr<Listener> bound, std::shared_ptr<Keyring> keyring)
    : options(std::move(given)),
      listener(std::move(bound)),
      core(options.core),
      manifests(options.manifest_bytes),
      blob_memory(options.blob_bytes),
      tasks(options.log, tracing_to(options.traces)),
      directory_lock(std::move(opened.lock)),
      store(std::move(opened.store)),
      detached(std::move(pending_tasks)),
      artifact_store(std::move(opened_artifacts)),
      offers(opened.offers == nullptr ? own_offers : *opened.offers),
      signer(std::move(signing_key)),
      storage(*store, *detached, signer, manifests, blob_memory, options.hold_blobs_ms,
              template_stamp(options.core.templates), options.core, *this, vouching(), &offers),
      trail(*store, *this, listener->endpoint()),
      admin(*store, storage, core, *this, trail,
            [this](const PeerId& peer, const AdminReply& reply) { send(peer, reply); }),
      artifacts(
          *artifact_store, offers, *this,
          [this](const PeerId& peer, const ArtifactReply& reply) {
            if (!reply.outcome) count_refusal(peer, reply.outcome.error());
            send(peer, reply);
          },
          [this](const PeerId& peer) { return sessions.find(peer) != nullptr; },
          [this] { storage.offered(); }),
      page(*this, std::move(keyring)) {
  planner = std::make_unique<Planner>(
      PlanContext{options.core.templates, options.core.policy, store.get(), detached.get(),
                  vouching(), nullptr, &offers},
      options.planner_threads, [this](PlanFinished plan) {
        inbox.post([this, plan = std::move(plan)]() mutable { planned(std::move(plan)); });
      });
}

Vouching ServiceLoop::vouching() const {
  return {options.core.confirm, [this](const std::string& key) {
            const std::optional<User> owner = listener->user_named(key);
            return owner && owner->trust == Trust::kAlone;
          }};
}

// ---- The loop ----

void ServiceLoop::run() {
  if (listener->takes_keys()) {
    keys_noted = keys_let_in();
    take_back_revoked();
  }
  note_term();
  if (options.status != nullptr) options.status->set_phase(ServiceStatus::Phase::kServing);
  while (!stopping) take_turn(*this);
}

int64_t ServiceLoop::ms_at(Clock::time_point time) const {
  return 1 + std::chrono::duration_cast<std::chrono::milliseconds>(time - started).count();
}
int64_t ServiceLoop::now_ms() const {
  return ms_at(Clock::now());
}

// Actions may cause events at once (a look-up is answered from memory): they wait their turn.
void ServiceLoop::step(Event event) {
  events.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  while (!events.empty()) {
    Event next = std::move(events.front());
    events.pop_front();
    if (const auto* stored = std::get_if<KernelStored>(&next)) tasks.traces().stored(*stored);
    if (const auto* gone = std::get_if<WorkerGone>(&next)) tasks.traces().gone(gone->worker);
    for (Action& action : core.step(now_ms(), std::move(next))) perform(std::move(action));
  }
  stepping = false;
}

void ServiceLoop::perform(Action action) {
  std::visit([this](auto&& alternative) { on(std::forward<decltype(alternative)>(alternative)); },
             std::move(action));
}

void ServiceLoop::tick() {
  const int64_t now = now_ms();
  next_tick_ms = now + kTickMs;
  blob_memory.expire(now);
  step(Tick{});
  artifacts.tick();
  if (options.status != nullptr) options.status->turned(Clock::now());
  for (const PeerId& peer : listener->take_gone()) close(peer);
  for (const PeerId& peer : blobs.take_stalled(now))
    refuse(peer, Code::kUnavailable, "a request for blobs had no credit for 30 s: it ends");
  if (now >= next_keys_ms) {
    next_keys_ms = now + kKeysMs;
    refresh_keys();
  }
  if (now < next_probe_ms) return;
  next_probe_ms = now + kWorkerProbeMs;
  storage.tick();
  trail.tick();
  for (const LogLine& line : refusals.take_lines(now)) log(line);
  publish_status();
  spare.tick(times.turn.count());
  if (const int64_t malformed = listener->malformed_count(); malformed != malformed_logged) {
    malformed_logged = malformed;
    log(LogLine("peer", LogLine::Level::kWarning)
            .add("state", "malformed")
            .add("total", malformed));
  }
  for (const PeerId& peer : sessions.workers()) probe(peer);
  for (const PeerId& peer : sessions.quiet(now - kClientProbeMs, kProbesATurn)) probe(peer);
}

void ServiceLoop::probe(const PeerId& peer) {
  if (!listener->alive(peer)) close(peer);
}

void ServiceLoop::refresh_keys() {
  if (revoked_again_ms > 0 && now_ms() >= revoked_again_ms) {
    revoked_again_ms = 0;
    take_back_revoked();
  }
  const auto changed = listener->refresh_keys();
  if (!changed) {
    log(LogLine("keys", LogLine::Level::kWarning)
            .add("state", "kept")
            .add("why", changed.error().message));
  } else if (*changed) {
    log(LogLine("keys").add("state", "read"));
    note_keys();
    take_back_revoked();
  }
}

// The keys with their roles: "ann (submit)". The list as it was where it cannot be read.
std::set<std::string> ServiceLoop::keys_let_in() const {
  const auto keys = read_authorized_keys(keys_folder());
  if (!keys) return keys_noted;
  std::set<std::string> names;
  for (const AuthorizedKey& key : *keys)
    names.insert(fmt::format("{} ({})", key.name, to_string(key.grant)));
  return names;
}

// Notes what changed in the list of keys, without a name: anybody who may write its folder changes it.
void ServiceLoop::note_keys() {
  std::set<std::string> now = keys_let_in();
  std::string request;
  const auto add = [&request](const char* what, const std::set<std::string>& in,
                              const std::set<std::string>& not_in) {
    for (const std::string& name : in)
      if (!not_in.contains(name))
        request += fmt::format("{}{} {}", request.empty() ? "" : ", ", what, name);
  };
  add("let in", now, keys_noted);
  add("end", keys_noted, now);
  keys_noted = std::move(now);
  if (request.empty()) return;
  AdminAct act = trail.begin("", "keys: " + request);
  act.done = true;
  trail.note(std::move(act));
}

void ServiceLoop::note_term() {
  if (options.store.empty()) return;
  AdminAct act = trail.begin("", "lead");
  act.done = true;
  act.outcome = fmt::format("{{\"epoch\":{}}}", options.core.first_lease >> 32);
  trail.note(std::move(act));
}

// Reports of the key's sessions until they were ended are taken back too. Each coordinator that begins
// to lead does it again, since the last one may have died before it had.
void ServiceLoop::take_back_revoked() {
  constexpr int64_t kSessionsEndMs = 10'000;
  const auto revoked = read_revoked_keys(keys_folder());
  if (!revoked)
    return log(LogLine("keys", LogLine::Level::kWarning)
                   .add("state", "unreadable")
                   .add("why", revoked.error().message));
  for (const RevokedKey& key : *revoked) {
    if (key.keep_results || !keys_taken_back.emplace(key.name, key.at_ms).second) continue;
    TakeBack what;
    what.owner = key.name;
    what.until_ms = key.at_ms + kSessionsEndMs;
    artifacts.take_back(key.name, what.until_ms);
    take_back_offers(key, what.until_ms);
    const AdminAct act =
        trail.begin("", "take back what the revoked key " + key.name + " reported");
    storage.take_back(std::move(what), [this, key, act](const Result<TakenBack>& taken) {
      // Each start finds the keys of before again, mostly with nothing left.
      if (taken && (!taken->kernels.empty() || taken->records > 0))
        trail.note(came_to(act, *taken));
      LogLine line("keys", taken ? LogLine::Level::kInfo : LogLine::Level::kWarning);
      line.add("state", taken ? "taken_back" : "not_taken_back").add("key", key.name);
      if (taken)
        line.add("programs", taken->programs.size())
            .add("kernels", taken->kernels.size())
            .add("records", taken->records);
      else
        line.add("why", taken.error().message);
      log(line);
      if (!taken) take_back_again(key);
    });
  }
}

void ServiceLoop::take_back_again(const RevokedKey& key) {
  keys_taken_back.erase({key.name, key.at_ms});
  revoked_again_ms = now_ms() + kTakeBackAgainMs;
}

void ServiceLoop::close(const PeerId& peer) {
  if (sessions.find(peer) == nullptr) return;
  const Session session = sessions.close(peer);
  blobs.remove(peer);
  if (session.role == Role::kWorker) {
    if (session.worker.empty()) return;
    log(LogLine("worker").add("name", session.worker).add("state", "gone"));
    step(WorkerGone{session.worker});
  } else {
    artifacts.gone(peer);
    tasks.gone(now_ms(), peer);
    step(ClientGone{peer});
  }
}

void ServiceLoop::publish_status() {
  StatusSnapshot now = status_now();
  for (const LogLine& line : workers.changes(now.stats.workers)) log(line);
  history.add(unix_ms(), now.stats);
  if (options.status != nullptr) options.status->publish(std::move(now));
}

StatusSnapshot ServiceLoop::status_now() {
  return {stats(Viewer{}),  // the page shows what is everybody's
          times,
          tasks.times(),
          static_cast<int64_t>(planning_bytes),
          KernelCache::index_memory_bytes(),
          storage.read_failures(),
          store->away(),
          storage.detached_damaged(),
          refusals.by_reason(),
          options.traces == nullptr ? SpanExporter::Counts{} : options.traces->counts()};
}

Stats ServiceLoop::stats(const Viewer& viewer) {
  const Store::Totals totals = storage.totals();
  Stats stats = core.stats(now_ms(), viewer);
  stats.hits += hits;
  stats.overloaded += overloads;
  stats.store_failures += storage.write_failures();
  stats.entries = totals.programs + totals.kernels;
  stats.bytes = totals.bytes;
  stats.corrupt_blobs = totals.corrupt_blobs;
  stats.evicted = totals.evicted;
  stats.programs_stale = storage.programs_stale();
  stats.spooled = totals.spooled;
  stats.spooled_bytes = totals.spooled_bytes;
  stats.blob_links = blobs.links();
  stats.malformed_messages = listener->malformed_count();
  stats.connections = static_cast<int64_t>(sessions.size());
  stats.refused = viewer.sees_all ? refusals.stats() : refusals.stats_of(viewer.user);
  stats.artifacts = artifacts.stats();
  stats.uptime_s = static_cast<double>(now_ms()) / 1000;
  return stats;
}

void ServiceLoop::log(const LogLine& line) const {
  if (options.log) options.log(line);
}

// ---- Actions ----

void ServiceLoop::on(const LookUpProgram& action) {
  storage.look_up(action,
                  [this, start = Clock::now()] { times.from_index.observe(seconds_since(start)); });
}

void ServiceLoop::on(const AskForGraph& action) {
  tasks.waiting_for_graph(now_ms(), action.client, action.request);
  send(action.client, NeedGraph{action.request});
}

void ServiceLoop::on(StartPlan action) {
  tasks.planning(now_ms(), action.key);
  const size_t bytes = action.graph_text.size();
  Planning& graph = planning[action.key];
  graph = {graph.bytes + bytes, asking};
  planning_bytes += bytes;
  if (bytes > 0) planning_of_user[asking] += bytes;
  planner->submit(std::move(action), asking);
}

void ServiceLoop::planned(PlanFinished plan) {
  if (const auto found = planning.find(plan.key); found != planning.end()) {
    const auto& [bytes, user] = found->second;
    planning_bytes -= bytes;
    if (const auto theirs = planning_of_user.find(user); theirs != planning_of_user.end()) {
      theirs->second -= std::min(theirs->second, bytes);
      if (theirs->second == 0) planning_of_user.erase(theirs);
    }
    planning.erase(found);
  }
  tasks.planned(now_ms(), plan);
  storage.planned(plan);
  step(std::move(plan));
}

void ServiceLoop::on(Answer action) {
  if (Session* session = sessions.find(action.client)) session->judge(action.reply);
  if (!action.reply.outcome) count_refusal(action.client, action.reply.outcome.error());
  signer.sign(action.reply);
  action.reply.revocations = storage.revoked().serial();
  tasks.answered(now_ms(), action.client, action.reply, action.is_early);
  send(action.client, action.reply);
}

void ServiceLoop::on(SendOrders action) {
  tasks.traces().ordered(action);
  signer.sign(action.orders);
  if (const PeerId* peer = sessions.peer_of(action.worker)) send(*peer, action.orders);
}

void ServiceLoop::on(const EndDetached& action) {
  tasks.detached_ended(now_ms(), action);
  storage.end(action);
}

void ServiceLoop::on(const LogAbandoned& action) const {
  log(LogLine("kernel", LogLine::Level::kWarning)
          .add("key", action.kernel.short_hex())
          .add("state", "set_aside")
          .add("candidates", action.candidates)
          .add("family", to_string(action.family))
          .add("target", action.target.to_string())
          .add("worker", action.worker));
}

// Everything it ever reported: nobody knows since when it lies.
void ServiceLoop::on(const Distrust& action) {
  log(LogLine("worker", LogLine::Level::kWarning)
          .add("name", action.worker)
          .add("key", action.owner)
          .add("state", "distrusted")
          .add("kernel", action.kernel.short_hex())
          .add("why", action.why));
  TakeBack what;
  what.worker = action.worker;
  AdminAct act = trail.begin(
      "", fmt::format("take back what worker {} reported: {}", action.worker, action.why));
  const auto took = [this, name = action.worker, act](const Result<TakenBack>& taken) mutable {
    log(LogLine("worker", LogLine::Level::kWarning)
            .add("name", name)
            .add("state", taken ? "taken_back" : "not_taken_back")
            .add("programs", taken ? static_cast<int64_t>(taken->programs.size()) : 0)
            .add("records", taken ? taken->records : 0));
    if (taken) return trail.was_noted(came_to(act, *taken));
    act.outcome = taken.error().message;
    trail.note(act);
  };
  storage.take_back(std::move(what), took, act);
}

void ServiceLoop::on(const LogDisputed& action) const {
  log(LogLine("kernel", LogLine::Level::kWarning)
          .add("key", action.kernel.short_hex())
          .add("state", "disputed")
          .add("why", action.why));
}

void ServiceLoop::on(const StoreProgram& action) {
  tasks.storing(now_ms(), action);
  storage.store(action);
}

}  // namespace kiln
