// The loop, in the order of one turn (run()):
//
//   what other threads finished (Inbox)  -> events        | core -> actions -> perform()
//   a tenth of a second passed           -> Tick          |
//   a piece of a blob answer (BlobDesk)  -> sent          |
//   messages, a few dozen                -> events        |
//
// A request whose manifest is in memory is answered at once, without the core: hits never wait
// behind anything. Nothing in the loop waits for a disk beyond an indexed look-up or the read of a
// few blobs.
#include "coordinator/service.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>

#include "compiler_core/codegen/lower.h"
#include "coordinator/access.h"
#include "coordinator/admin_desk.h"
#include "coordinator/blob_desk.h"
#include "coordinator/flight_log.h"
#include "coordinator/generation.h"
#include "coordinator/inbox.h"
#include "coordinator/manifest_table.h"
#include "coordinator/planner.h"
#include "coordinator/session_table.h"
#include "coordinator/signer.h"
#include "coordinator/store_desk.h"

namespace kiln {
namespace {

constexpr int kMessagesATurn = 64;
constexpr size_t kBlobBytesATurn = 1 << 20, kBytesAPiece = 16 << 10;  // even a small one costs
constexpr int64_t kTickMs = 100;
constexpr int64_t kWorkerProbeMs = 1'000;   // how soon a vanished worker is noticed
constexpr int64_t kClientProbeMs = 15'000;  // quiet for so long: is it still there?
constexpr size_t kProbesATurn = 256;
constexpr int kCongestedWaitMs = 5;
constexpr size_t kMaxSessions = 50'000;
constexpr char kSoftware[] = "kiln 0.1.0";

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}
double seconds_since(Clock::time_point start) {
  return seconds(Clock::now() - start);
}

}  // namespace

struct Service::Impl {
  Impl(ServiceOptions given, std::unique_ptr<KernelCache> opened,
       std::unique_ptr<FlightStore> detached_flights, SigningKey signing_key,
       std::unique_ptr<Listener> bound);

  // ---- The loop ----
  void run();
  int64_t now_ms() const;
  void step(Event event);
  void perform(Action action);
  void tick();
  void probe(const PeerId& peer);
  void refresh_keys();
  void close(const PeerId& peer);
  bool send_blob_pieces();
  void planned(PlanFinished plan);
  void publish_status();
  Stats stats();
  void log(const LogLine& line) const;

  // ---- Messages ----
  void handle(Received received);
  void on(const PeerId& peer, const Hello& hello, const User& user);
  void on(const PeerId& peer, CompileRequest request);
  void on(const PeerId& peer, BlobRequest request);
  void on(const PeerId& peer, const BlobCredit& credit) { blobs.add_credit(peer, credit); }
  void on(const PeerId& peer, const Cancel& cancel);
  void on(const PeerId& peer, const StatsRequest& request);
  void on(const PeerId& peer, WorkerReport report);
  void on(const PeerId& peer, const AdminRequest& request) { admin.handle(peer, request); }
  void overloaded(const PeerId& peer, uint64_t request);
  void refuse(const PeerId& peer, Code code, std::string message);
  void refuse(const PeerId& peer, Error error) { listener->send(peer, Refusal{std::move(error)}); }
  bool send(const PeerId& peer, const Message& message);
  void unsent(const PeerId& peer);

  // ---- Actions ----
  void on(const LookUpProgram& action);
  void on(const AskForGraph& action);
  void on(StartPlan action);
  void on(Answer action);
  void on(const SendProgress& action) { send(action.client, action.progress); }
  void on(SendOrders action);
  void on(StoreRecords action) { store.store(std::move(action)); }
  void on(StoreKernel action) { store.store(std::move(action)); }
  void on(const StoreProgram& action);
  void on(StoreFlight action) { store.store(std::move(action)); }
  void on(const EndFlight& action);
  void on(KeepProgram action) { store.keep(std::move(action)); }

  // Constant after construction.
  const ServiceOptions options;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  const std::unique_ptr<Listener> listener;

  // The loop's own.
  Core core;
  std::deque<Event> events;  // not yet stepped
  bool stepping = false;
  SessionTable sessions{kMaxSessions};
  ManifestTable manifests;
  BlobShelf shelf;
  FlightLog flights;
  int64_t next_tick_ms = 0, next_probe_ms = 0;
  std::unordered_map<Digest, size_t> planning;  // bytes of the graph, by program
  size_t planning_bytes = 0;                    // their sum
  int64_t malformed_logged = 0;
  int64_t hits = 0;       // answered without the core
  int64_t overloads = 0;  // refused without the core
  LoopTimes times;
  Clock::time_point message_start;  // of the one being handled

  // Shared with the threads below. They stop before it goes.
  Inbox inbox{[this] { listener->wake(); }};
  std::atomic<bool> stopping{false};
  std::unique_ptr<KernelCache> cache;
  std::unique_ptr<FlightStore> detached;
  Signer signer;
  BlobDesk blobs{*cache, shelf};
  StoreDesk store;
  AdminDesk admin;
  std::unique_ptr<Planner> planner;
  std::thread thread;
};

Service::Impl::Impl(ServiceOptions given, std::unique_ptr<KernelCache> opened,
                    std::unique_ptr<FlightStore> detached_flights, SigningKey signing_key,
                    std::unique_ptr<Listener> bound)
    : options(std::move(given)),
      listener(std::move(bound)),
      core(options.core),
      manifests(options.manifest_bytes),
      shelf(options.blob_bytes),
      flights(options.log),
      cache(std::move(opened)),
      detached(std::move(detached_flights)),
      signer(std::move(signing_key)),
      store(*cache, *detached, signer, manifests, shelf, options.hold_blobs_ms,
            {inbox, [this](Event event) { step(std::move(event)); }, [this] { return now_ms(); },
             [this](const LogLine& line) { log(line); }}),
      admin(*cache, {inbox, [this](Event event) { step(std::move(event)); },
                     [this] { return core.stats(now_ms()); },
                     [this](const PeerId& peer, const AdminReply& reply) { send(peer, reply); },
                     [this](const LogLine& line) { log(line); }}) {
  planner = std::make_unique<Planner>(
      PlanContext{options.core.codegen, options.core.policy, cache.get(), detached.get()},
      options.planner_threads, [this](PlanFinished plan) {
        inbox.post([this, plan = std::move(plan)]() mutable { planned(std::move(plan)); });
      });
}

// ---- The loop ----

void Service::Impl::run() {
  if (options.board != nullptr) options.board->set_phase(StatusBoard::Phase::kServing);
  while (!stopping) {
    const auto turn_start = Clock::now();
    for (Inbox::Task& task : inbox.take()) task();
    if (now_ms() >= next_tick_ms) tick();
    const bool more_pieces = send_blob_pieces();
    const int64_t until_tick_ms = std::max<int64_t>(next_tick_ms - now_ms(), 0);
    int wait_ms = static_cast<int>(until_tick_ms);
    if (!blobs.empty()) wait_ms = more_pieces ? 0 : std::min(wait_ms, kCongestedWaitMs);
    const auto wait_start = Clock::now();
    auto received = listener->receive(wait_ms);
    const auto wait_end = Clock::now();
    for (int i = 1; received; ++i) {
      handle(*std::move(received));
      if (i == kMessagesATurn) break;
      received = listener->receive(0);
    }
    times.turn.observe(seconds_since(wait_end) + seconds(wait_start - turn_start));
  }
}

int64_t Service::Impl::now_ms() const {
  const auto passed = std::chrono::steady_clock::now() - started;
  return 1 + std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
}

// Actions may cause events at once (a look-up is answered from memory): they wait their turn.
void Service::Impl::step(Event event) {
  events.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  while (!events.empty()) {
    Event next = std::move(events.front());
    events.pop_front();
    for (Action& action : core.step(now_ms(), std::move(next))) perform(std::move(action));
  }
  stepping = false;
}

void Service::Impl::perform(Action action) {
  std::visit([this](auto&& alternative) { on(std::forward<decltype(alternative)>(alternative)); },
             std::move(action));
}

void Service::Impl::tick() {
  const int64_t now = now_ms();
  next_tick_ms = now + kTickMs;
  shelf.expire(now);
  step(Tick{});
  if (options.board != nullptr) options.board->turned(Clock::now());
  for (const PeerId& peer : listener->take_gone()) close(peer);
  if (now < next_probe_ms) return;
  next_probe_ms = now + kWorkerProbeMs;
  store.write_uses();
  refresh_keys();
  publish_status();
  if (const int64_t malformed = listener->malformed_count(); malformed != malformed_logged) {
    malformed_logged = malformed;
    log(LogLine("peer", LogLine::Level::kWarning)
            .add("state", "malformed")
            .add("total", malformed));
  }
  for (const PeerId& peer : sessions.workers()) probe(peer);
  for (const PeerId& peer : sessions.quiet(now - kClientProbeMs, kProbesATurn)) probe(peer);
}

void Service::Impl::probe(const PeerId& peer) {
  if (!listener->alive(peer)) close(peer);
}

void Service::Impl::refresh_keys() {
  const auto changed = listener->refresh_keys();
  if (!changed) {
    log(LogLine("keys", LogLine::Level::kWarning)
            .add("state", "kept")
            .add("why", changed.error().message));
  } else if (*changed) {
    log(LogLine("keys").add("state", "read"));
  }
}

void Service::Impl::close(const PeerId& peer) {
  if (sessions.find(peer) == nullptr) return;
  const Session session = sessions.close(peer);
  blobs.remove(peer);
  if (session.role == Role::kWorker) {
    if (session.worker.empty()) return;
    log(LogLine("worker").add("name", session.worker).add("state", "gone"));
    step(WorkerGone{session.worker});
  } else {
    flights.gone(now_ms(), peer);
    step(ClientGone{peer});
  }
}

// True when it stopped because others want their turn, false when nobody takes more now.
bool Service::Impl::send_blob_pieces() {
  const auto can_take = [this](const PeerId& peer) { return !listener->congested(peer); };
  size_t bytes = 0;
  bool more = true;
  while (more && bytes < kBlobBytesATurn) {
    auto piece = blobs.next(now_ms(), can_take);
    more = piece.has_value();
    if (!more) break;
    bytes += kBytesAPiece;
    for (const BlobChunk& chunk : piece->reply.chunks) bytes += chunk.bytes.size();
    send(piece->peer, std::move(piece->reply));
  }
  for (const Digest& blob : blobs.take_missing()) store.blob_is_missing(blob);
  return more;
}

void Service::Impl::publish_status() {
  if (options.board == nullptr) return;
  options.board->publish({stats(), times, flights.times(), static_cast<int64_t>(planning_bytes)});
}

Stats Service::Impl::stats() {
  const KernelCache::Totals totals = store.totals();
  Stats stats = core.stats(now_ms());
  stats.hits += hits;
  stats.overloaded += overloads;
  stats.store_failures += store.record_failures();
  stats.entries = totals.programs + totals.kernels;
  stats.bytes = totals.bytes;
  stats.corrupt_blobs = totals.corrupt_blobs;
  stats.evicted = totals.evicted;
  stats.malformed_messages = listener->malformed_count();
  stats.connections = static_cast<int64_t>(sessions.size());
  stats.uptime_s = static_cast<double>(now_ms()) / 1000;
  return stats;
}

void Service::Impl::log(const LogLine& line) const {
  if (options.log) options.log(line);
}

// ---- Messages ----

namespace {

template <class T>
constexpr bool kFromClient = std::is_same_v<T, CompileRequest> || std::is_same_v<T, BlobRequest> ||
                             std::is_same_v<T, BlobCredit> || std::is_same_v<T, Cancel>;

}  // namespace

void Service::Impl::handle(Received received) {
  message_start = Clock::now();
  const PeerId& peer = received.peer;
  Session* session = sessions.find(peer);
  if (session != nullptr && session->user.name != received.user.name) session = nullptr;
  if (session != nullptr) session->heard_ms = now_ms();
  if (const Grant needed = grant_needed(received.message); !covers(received.user.grant, needed)) {
    return refuse(peer, not_granted(received.user, needed));
  }
  std::visit(
      [&](auto&& message) {
        using T = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<T, Hello>) {
          on(peer, message, received.user);
        } else if constexpr (kFromClient<T> || std::is_same_v<T, StatsRequest> ||
                             std::is_same_v<T, WorkerReport> || std::is_same_v<T, AdminRequest>) {
          const Role role = std::is_same_v<T, WorkerReport> ? Role::kWorker : Role::kClient;
          if (session == nullptr) {
            refuse(peer, Code::kInvalidArgument, "say Hello first");
          } else if (session->role != role && !std::is_same_v<T, StatsRequest>) {
            refuse(peer, Code::kInvalidArgument, "not a message of the role you said you have");
          } else {
            on(peer, std::forward<decltype(message)>(message));
          }
        } else {
          refuse(peer, Code::kInvalidArgument, "only a coordinator sends such a message");
        }
      },
      std::move(received.message));
}

void Service::Impl::on(const PeerId& peer, const Hello& hello, const User& user) {
  if (hello.protocol != kProtocolVersion) {
    return refuse(peer, Code::kInvalidArgument,
                  fmt::format("this coordinator ({}) speaks protocol {}, you ({}) speak {}",
                              kSoftware, kProtocolVersion, hello.software, hello.protocol));
  }
  close(peer);  // Hello again starts over
  const Session* session = sessions.open(peer, {hello.role, now_ms(), user, hello.token});
  if (session == nullptr) return refuse(peer, Code::kOverloaded, "too many connections");
  send(peer, Welcome{kProtocolVersion, kSoftware, options.core.codegen, session->token,
                     signer.public_key()});
}

void Service::Impl::on(const PeerId& peer, CompileRequest request) {
  Session& session = *sessions.find(peer);
  const Digest key = program_key(request.graph, request.target, request.mode, options.core.codegen);
  if (HitReply* hit = manifests.find(key)) {
    ++hits;
    if (!listener->send_encoded(peer, hit->frame(request.request))) unsent(peer);
    times.from_memory.observe(seconds_since(message_start));
    return;
  }
  if (!request.graph_text.empty() &&
      planning_bytes + request.graph_text.size() > options.graph_bytes) {
    return overloaded(peer, request.request);
  }
  session.look_only(request);
  flights.asked(now_ms(), key, peer, request);
  step(RequestReceived{peer, std::move(request), session.user.name});
}

// The core may know the request already, and wait for its graph.
void Service::Impl::overloaded(const PeerId& peer, uint64_t request) {
  ++overloads;
  flights.cancelled(now_ms(), peer, request);
  step(RequestCancelled{peer, request});
  CompileReply reply;
  reply.request = request;
  reply.outcome = fail(
      Error{Code::kOverloaded, "too many graphs wait to be planned", options.core.retry_after_ms});
  send(peer, reply);
}

void Service::Impl::on(const PeerId& peer, BlobRequest request) {
  const uint64_t number = request.request;
  if (!blobs.add(peer, std::move(request))) {
    refuse(peer, Code::kOverloaded, fmt::format("request {}: too many at once", number));
  }
}

void Service::Impl::on(const PeerId& peer, const Cancel& cancel) {
  sessions.find(peer)->looking.erase(cancel.request);
  flights.cancelled(now_ms(), peer, cancel.request);
  step(RequestCancelled{peer, cancel.request});
}

void Service::Impl::on(const PeerId& peer, const StatsRequest& request) {
  send(peer, StatsReply{request.request, stats()});
}

void Service::Impl::on(const PeerId& peer, WorkerReport report) {
  if (report.worker.empty()) return refuse(peer, Code::kInvalidArgument, "a worker has a name");
  if (sessions.peer_of(report.worker) == nullptr) {
    log(LogLine("worker")
            .add("name", report.worker)
            .add("state", "here")
            .add("target", report.target.to_string())
            .add("toolkit", report.toolkit)
            .add("slots", report.slots));
  }
  const auto connected = [this](const PeerId& other) { return listener->alive(other); };
  const auto claimed = sessions.claim_worker(peer, report.worker, connected, now_ms());
  if (!claimed) return refuse(peer, claimed.error());
  if (!claimed->empty()) listener->drop(*claimed);
  WorkerId worker = report.worker;
  step(ReportReceived{std::move(worker), std::move(report)});
}

void Service::Impl::refuse(const PeerId& peer, Code code, std::string message) {
  const int64_t retry_after_ms = code == Code::kOverloaded ? options.core.retry_after_ms : 0;
  refuse(peer, Error{code, std::move(message), retry_after_ms});
}

bool Service::Impl::send(const PeerId& peer, const Message& message) {
  if (listener->send(peer, message)) return true;
  unsent(peer);
  return false;
}

// Not from inside the loop over the core's actions: the end of a peer is an event of its own.
void Service::Impl::unsent(const PeerId& peer) {
  inbox.post([this, peer] { probe(peer); });
}

// ---- Actions ----

void Service::Impl::on(const LookUpProgram& action) {
  const auto start = Clock::now();
  store.look_up(action.key);
  times.from_index.observe(seconds_since(start));
}

void Service::Impl::on(const AskForGraph& action) {
  flights.waiting_for_graph(now_ms(), action.client, action.request);
  send(action.client, NeedGraph{action.request});
}

void Service::Impl::on(StartPlan action) {
  flights.planning(now_ms(), action.key);
  planning[action.key] += action.graph_text.size();
  planning_bytes += action.graph_text.size();
  planner->submit(std::move(action));
}

void Service::Impl::planned(PlanFinished plan) {
  if (const auto found = planning.find(plan.key); found != planning.end()) {
    planning_bytes -= found->second;
    planning.erase(found);
  }
  flights.planned(now_ms(), plan);
  step(std::move(plan));
}

void Service::Impl::on(Answer action) {
  if (Session* session = sessions.find(action.client)) session->judge(action.reply);
  signer.sign(action.reply);
  flights.answered(now_ms(), action.client, action.reply);
  send(action.client, action.reply);
}

void Service::Impl::on(SendOrders action) {
  signer.sign(action.orders);
  if (const PeerId* peer = sessions.peer_of(action.worker)) send(*peer, action.orders);
}

void Service::Impl::on(const EndFlight& action) {
  const DetachedFlight& flight = action.flight;
  flights.detached_ended(
      now_ms(), program_key(flight.graph, flight.target, flight.mode, options.core.codegen),
      action);
  store.end(action);
}

void Service::Impl::on(const StoreProgram& action) {
  flights.storing(now_ms(), action.program);
  store.store(action);
}

// ---- Service ----

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() {
  stop();
}
const std::string& Service::endpoint() const {
  return impl_->listener->endpoint();
}

Result<std::unique_ptr<Service>> Service::start(ServiceOptions options) {
  // The cache is opened first; who hears of it is there later, and has nothing in memory before.
  const auto hearer = std::make_shared<std::atomic<Impl*>>(nullptr);
  CacheOptions stored;
  stored.max_bytes = options.cache_bytes;
  stored.log = [hearer](std::string line) {
    if (Impl* impl = hearer->load())
      impl->inbox.post([impl, line] {
        impl->log(LogLine("cache", LogLine::Level::kWarning).add("warning", line));
      });
  };
  stored.evicted = [hearer](std::vector<Digest> programs) {
    if (Impl* impl = hearer->load())
      impl->inbox.post([impl, programs = std::move(programs)] { impl->store.evicted(programs); });
  };
  TRY(auto cache, KernelCache::open(options.data_dir, std::move(stored)));
  TRY(auto detached, FlightStore::open(options.data_dir / "flights.sqlite"));
  TRY(auto signing_key, SigningKey::load_or_create(options.data_dir / kSigningFolder));
  TRY(auto keyring, open_keyring(options.endpoint, options.keys, options.data_dir));
  TRY(auto listener, Listener::bind(options.endpoint, std::move(keyring)));
  if (options.core.codegen.is_zero()) options.core.codegen = codegen_identity();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto wall_us = std::chrono::duration_cast<std::chrono::microseconds>(wall).count();
  TRY(options.core.first_lease,
      first_lease_of_next_life(options.data_dir, static_cast<uint64_t>(wall_us)));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(cache), std::move(detached),
                                     std::move(signing_key), std::move(listener));
  for (const std::string& warning : {impl->cache->warning(), impl->detached->warning()})
    if (!warning.empty())
      impl->log(LogLine("cache", LogLine::Level::kWarning).add("warning", warning));
  hearer->store(impl.get());
  impl->store.recover_flights();
  impl->thread = std::thread([loop = impl.get()] { loop->run(); });
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

void Service::stop() {
  Impl& impl = *impl_;
  if (!impl.thread.joinable()) return;
  if (impl.options.board != nullptr) {
    impl.options.board->set_phase(StatusBoard::Phase::kStopping);
  }
  impl.stopping = true;
  impl.listener->wake();
  impl.thread.join();
  impl.planner.reset();
  impl.cache->flush();
  impl.detached->flush();
}

}  // namespace kiln
