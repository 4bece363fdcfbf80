#include "coordinator/service/follower.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

#include "cache/postgres/postgres_reader.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/program/revocations.h"
#include "coordinator/event_loop.h"
#include "coordinator/service/access.h"
#include "coordinator/service/loop_turn.h"
#include "coordinator/service/session_table.h"
#include "coordinator/storage/blob_sender.h"
#include "coordinator/storage/known_requests.h"
#include "coordinator/storage/manifest_table.h"
#include "coordinator/storage/open_store.h"
#include "coordinator/storage/revocation_list.h"
#include "coordinator/storage/vouching.h"

namespace kiln {
namespace {

constexpr char kFollowerSoftware[] = "kiln 0.1.0";
constexpr int kFollowerTickMs = 100;
constexpr int64_t kFollowerKeysMs = 500;
constexpr int64_t kSecondMs = 1'000;
constexpr int64_t kFreshMs = 900;  // less than a second with the way to the store
constexpr size_t kMostWaiting = 100'000;
constexpr std::chrono::milliseconds kAskEvery{500};
constexpr std::chrono::seconds kTouchEvery{60};

using Clock = std::chrono::steady_clock;

}  // namespace

struct Follower::Loop final : JobQueue {
  Loop(const ServiceOptions& given, std::unique_ptr<ObjectStore> objects, SigningKey signing_key,
       std::unique_ptr<Listener> bound)
      : options(given),
        stamp(template_stamp(template_versions())),
        listener(std::move(bound)),
        store(options.store, std::move(objects), options.data_dir / kCopiesFolder,
              options.copies_bytes),
        signer(std::move(signing_key)),
        manifests(options.manifest_bytes),
        blob_memory(options.blob_bytes) {}
  ~Loop();

  void post(Job job) override { inbox.post(std::move(job)); }
  int64_t now_ms() const {
    return 1 +
           std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
  }

  void run();
  void tick();
  void watch_store();
  void send(const PeerId& peer, const Message& message) { listener->send(peer, message); }
  // Whoever asks for a program of it next is answered from the store.
  void blob_is_missing(const Digest& blob) { (void)manifests.take_users_of(blob); }
  void close(const PeerId& peer);
  void publish_status();

  void handle(const Arrival& arrival);
  void handle(const Received& received);
  void welcome(const PeerId& peer, const Hello& hello, const User& user);
  void look_up(const PeerId& peer, const CompileRequest& request);
  void looked_up(const Digest& key, Result<StoredProgram> stored);
  bool answer(const PeerId& peer, uint64_t request, const Digest& key, bool at_any_age);
  bool keep(const Digest& key, Result<StoredProgram> stored);
  void ask_the_leader(const PeerId& peer, uint64_t request);
  void refuse(const PeerId& peer, Error error) { listener->send(peer, Refusal{std::move(error)}); }

  // Constant after construction.
  const ServiceOptions options;
  const Digest stamp;  // of this build's templates
  const Clock::time_point started = Clock::now();
  const std::unique_ptr<Listener> listener;

  Inbox inbox{[this] { listener->wake(); }};
  PostgresReader store;

  // The loop's own.
  Signer signer;
  SessionTable sessions{Listener::kMaxConnections};
  ManifestTable manifests;
  KnownRequests known;
  BlobMemoryCache blob_memory;
  BlobSender blobs{store, blob_memory, *this, options.blob_links};
  RevocationList revoked;
  std::string leader;  // for people; empty: not known
  struct Asked {
    PeerId peer;
    uint64_t request = 0;
  };
  std::unordered_map<Digest, std::vector<Asked>> asked;  // programs that the store is asked for
  size_t waiting = 0;                                    // in `asked`
  int64_t hits = 0, passed_on = 0, read_failures = 0;
  int64_t next_tick_ms = 0, next_second_ms = 0, next_keys_ms = 0;
  LoopTimes times;
  Clock::time_point message_start;  // of the one being handled

  std::atomic<bool> stopping{false};
  std::mutex mu;
  std::condition_variable stops;
  std::vector<Digest> used;  // guarded by mu; not yet written
  std::thread thread, watcher;
};

// ---- The loop ----

Follower::Loop::~Loop() {
  {
    const std::scoped_lock lock(mu);
    stopping = true;
  }
  stops.notify_all();
  listener->wake();
  if (thread.joinable()) thread.join();
  if (watcher.joinable()) watcher.join();
}

void Follower::Loop::run() {
  while (!stopping) take_turn(*this);
}

void Follower::Loop::tick() {
  const int64_t now = now_ms();
  next_tick_ms = now + kFollowerTickMs;
  if (options.status != nullptr) options.status->turned(Clock::now());
  for (const PeerId& peer : listener->take_gone()) close(peer);
  for (const PeerId& peer : blobs.take_stalled(now))
    refuse(peer, {Code::kUnavailable, "a request for blobs had no credit for 30 s: it ends", 0});
  if (now >= next_keys_ms) {
    next_keys_ms = now + kFollowerKeysMs;
    (void)listener->refresh_keys();
  }
  if (now < next_second_ms) return;
  next_second_ms = now + kSecondMs;
  {
    const std::scoped_lock lock(mu);
    for (const Digest& program : manifests.take_used()) used.push_back(program);
  }
  publish_status();
}

// Its own thread: the store is asked, and the loop told.
void Follower::Loop::watch_store() {
  auto next_touch = Clock::now() + kTouchEvery;
  std::unique_lock lock(mu);
  while (!stopping) {
    lock.unlock();
    const auto list = store.revocations();
    const auto leads = store.leader();
    post([this, list, leads] {
      if (leads) leader = *leads;
      if (!list || !revoked.update(*list, signer)) return;
      manifests.clear();
      store.drop_copies();
    });
    lock.lock();
    if (Clock::now() >= next_touch) {
      next_touch = Clock::now() + kTouchEvery;
      const auto programs = std::exchange(used, {});
      lock.unlock();
      if (!programs.empty()) (void)store.touch(programs);
      lock.lock();
    }
    stops.wait_for(lock, kAskEvery, [this] { return stopping.load(); });
  }
}

void Follower::Loop::close(const PeerId& peer) {
  if (sessions.find(peer) == nullptr) return;
  (void)sessions.close(peer);
  blobs.remove(peer);
}

void Follower::Loop::publish_status() {
  if (options.status == nullptr) return;
  StatusSnapshot now;
  now.stats.hits = hits;
  now.stats.misses = passed_on;
  now.stats.blob_links = blobs.links();
  now.stats.connections = static_cast<int64_t>(sessions.size());
  now.stats.malformed_messages = listener->malformed_count();
  now.stats.uptime_s = static_cast<double>(now_ms()) / 1000;
  now.loop = times;
  now.read_failures = read_failures;
  now.store_away = store.away();
  options.status->publish(std::move(now));
}

// ---- Messages ----

// As ServiceLoop::answer_known(): a request whose bytes were answered before is not decoded again.
void Follower::Loop::handle(const Arrival& arrival) {
  message_start = arrival.at;
  const auto found = arrival.several ? std::nullopt : known.find(arrival.frame);
  if (found) {
    Session* session = sessions.find(arrival.peer);
    const bool may_ask = session != nullptr && session->role == Role::kClient &&
                         session->user.name == arrival.user.name &&
                         covers(arrival.user.grant, Grant::kRead);
    if (may_ask && answer(arrival.peer, found->request, found->program, false)) return;
  }
  if (const auto received = listener->read(arrival)) handle(*received);
}

void Follower::Loop::handle(const Received& received) {
  const PeerId& peer = received.peer;
  if (const Grant needed = grant_needed(received.message); !covers(received.user.grant, needed))
    return refuse(peer, not_granted(received.user, needed));
  if (const auto* hello = std::get_if<Hello>(&received.message))
    return welcome(peer, *hello, received.user);
  Session* session = sessions.find(peer);
  if (session == nullptr || session->user.name != received.user.name)
    return refuse(peer, {Code::kInvalidArgument, "say Hello first", 0});
  session->heard_ms = now_ms();
  if (const auto* request = std::get_if<CompileRequest>(&received.message)) {
    look_up(peer, *request);
  } else if (const auto* wanted = std::get_if<BlobRequest>(&received.message)) {
    if (!blobs.add(peer, session->user.name, *wanted, now_ms()))
      refuse(peer, {Code::kOverloaded, fmt::format("request {}: too many at once", wanted->request),
                    options.core.retry_after_ms});
  } else if (const auto* credit = std::get_if<BlobCredit>(&received.message)) {
    blobs.add_credit(peer, *credit);
  } else if (const auto* list = std::get_if<RevocationsRequest>(&received.message)) {
    listener->send(peer, RevocationsReply{list->request, revoked.text(), revoked.signature()});
  } else if (!std::holds_alternative<Cancel>(received.message)) {
    refuse(peer, {Code::kUnavailable, "this coordinator follows, and answers only look-ups", 0});
  }
}

void Follower::Loop::welcome(const PeerId& peer, const Hello& hello, const User& user) {
  if (hello.protocol != kProtocolVersion)
    return refuse(peer,
                  {Code::kInvalidArgument,
                   fmt::format("this coordinator ({}) speaks protocol {}, you ({}) speak {}",
                               kFollowerSoftware, kProtocolVersion, hello.software, hello.protocol),
                   0});
  close(peer);
  Session opened;
  opened.role = hello.role;
  opened.heard_ms = now_ms();
  opened.user = user;
  const Session* session = sessions.open(peer, std::move(opened));
  if (session == nullptr)
    return refuse(peer, {Code::kOverloaded, "too many connections", options.core.retry_after_ms});
  listener->send(peer, Welcome{kProtocolVersion, kFollowerSoftware, stamp, session->token,
                               signer.public_key(), revoked.serial(), signer.endorsement(), true});
}

// ---- Look-ups ----

// A target that names no device means what the workers of the leader are; and who queues a program
// asks for more than a look-up.
void Follower::Loop::look_up(const PeerId& peer, const CompileRequest& request) {
  if (request.detach || names_no_device(request.target) || waiting >= kMostWaiting)
    return ask_the_leader(peer, request.request);
  const Digest key = program_key(request.graph, request.target, request.mode);
  if (answer(peer, request.request, key, false)) return known.remember(request, key);
  const auto [entry, is_new] = asked.try_emplace(key);
  entry->second.push_back({peer, request.request});
  ++waiting;
  if (!is_new) return;
  store.look_up_program(key, [this, key](Result<StoredProgram> stored) {
    post([this, key, stored = std::move(stored)]() mutable { looked_up(key, std::move(stored)); });
  });
}

void Follower::Loop::looked_up(const Digest& key, Result<StoredProgram> stored) {
  const bool is_kept = keep(key, std::move(stored));
  const auto entry = asked.find(key);
  const std::vector<Asked> waited = std::move(entry->second);
  asked.erase(entry);
  waiting -= waited.size();
  for (const auto& [peer, request] : waited)
    if (!is_kept || !answer(peer, request, key, true)) ask_the_leader(peer, request);
}

// Whether memory may answer with the program: a store that is away takes nothing from it.
bool Follower::Loop::keep(const Digest& key, Result<StoredProgram> stored) {
  if (!stored && stored.error().code != Code::kNotFound) {
    ++read_failures;
    HitReply* before = manifests.find(key);
    if (before != nullptr) before->as_of_ms = now_ms();
    return before != nullptr;
  }
  const auto program = stored ? program_from_json(stored->manifest) : fail(stored.error());
  const Vouching vouching{options.core.confirm, [this](const std::string& name) {
                            const auto owner = listener->user_named(name);
                            return owner && owner->trust == Trust::kAlone;
                          }};
  if (!program || program->template_stamp != stamp || !vouching.suffices(*program)) {
    manifests.remove(key);
    return false;
  }
  const std::string signature = signer.signature_of(stored->manifest);
  manifests.insert(*program, {std::move(stored->manifest), signature, false, revoked.serial(),
                              std::move(stored->audience), now_ms()});
  return true;
}

// False when memory does not have it, this peer may not have it, or the store is to be asked first.
bool Follower::Loop::answer(const PeerId& peer, uint64_t request, const Digest& key,
                            bool at_any_age) {
  Session* session = sessions.find(peer);
  HitReply* hit = manifests.find(key);
  if (hit == nullptr || session == nullptr || !session->may_have(hit->audience())) return false;
  const int64_t now = now_ms();
  if (!at_any_age && now - hit->as_of_ms > kFreshMs) return false;
  session->heard_ms = now;
  ++hits;
  listener->send_encoded(peer, hit->frame(request));
  if (!at_any_age)
    times.from_memory.observe(std::chrono::duration<double>(Clock::now() - message_start).count());
  return true;
}

void Follower::Loop::ask_the_leader(const PeerId& peer, uint64_t request) {
  ++passed_on;
  CompileReply reply;
  reply.request = request;
  reply.revocations = revoked.serial();
  reply.outcome = fail(Code::kUnavailable,
                       leader.empty() ? "this coordinator follows, and none leads now"
                                      : fmt::format("this coordinator follows, {} leads", leader));
  listener->send(peer, reply);
}

// ---- Life ----

Follower::Follower(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Follower::~Follower() = default;

const std::string& Follower::endpoint() const {
  return loop_->listener->endpoint();
}

Result<std::unique_ptr<Follower>> Follower::start(const ServiceOptions& options) {
  TRY_STATUS(make_directories(options.data_dir));
  TRY(auto signing_key, SigningKey::load_or_create(options.data_dir / kSigningFolder));
  TRY(auto objects, open_objects(options.blobs, options.objects));
  TRY(auto keyring, open_keyring(options.endpoint, options.keys, options.data_dir));
  TRY(auto listener, Listener::bind(options.endpoint, keyring));
  auto loop = std::make_unique<Loop>(options, std::move(objects), std::move(signing_key),
                                     std::move(listener));
  if (options.status != nullptr) options.status->set_phase(ServiceStatus::Phase::kFollowing);
  loop->thread = std::thread([running = loop.get()] { running->run(); });
  loop->watcher = std::thread([running = loop.get()] { running->watch_store(); });
  return std::unique_ptr<Follower>(new Follower(std::move(loop)));
}

}  // namespace kiln
