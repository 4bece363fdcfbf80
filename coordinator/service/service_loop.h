// ServiceLoop: the one thread of a coordinator that decides. One turn of run(), in order:
//
//   jobs that other threads posted (Inbox) -> events      | core -> actions -> perform()
//   a tenth of a second passed             -> Tick        |
//   pieces of blob replies (BlobSender)    -> sent        |
//   a few dozen messages                   -> events      |
//
// A request whose manifest is in memory is answered at once, without the core, so hits wait for
// nothing. The loop waits for no store but one on this machine's disk, which answers look-ups at once.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>

#include "coordinator/core/core.h"
#include "coordinator/event_loop.h"
#include "coordinator/redis/redis_port.h"
#include "coordinator/service/access.h"
#include "coordinator/service/admin_handler.h"
#include "coordinator/service/artifact_handler.h"
#include "coordinator/service/loop_page.h"
#include "coordinator/service/planner.h"
#include "coordinator/service/service.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/spare_memory.h"
#include "coordinator/status/history.h"
#include "coordinator/status/refusals.h"
#include "coordinator/status/task_log.h"
#include "coordinator/status/worker_log.h"
#include "coordinator/storage/artifact_offers.h"
#include "coordinator/storage/audit_trail.h"
#include "coordinator/storage/blob_sender.h"
#include "coordinator/storage/known_requests.h"
#include "coordinator/storage/manifest_table.h"
#include "coordinator/storage/open_store.h"
#include "coordinator/storage/signer.h"
#include "coordinator/storage/storage_executor.h"

namespace kiln {

inline constexpr size_t kMaxSessions = Listener::kMaxConnections;

struct ServiceLoop final : EventLoop {
  ServiceLoop(ServiceOptions given, OpenedStore opened,
              std::unique_ptr<PendingTaskStore> pending_tasks,
              std::unique_ptr<ArtifactStore> artifact_store, SigningKey signing_key,
              std::unique_ptr<Listener> bound, std::shared_ptr<Keyring> keyring);

  // ---- The loop ----
  void run();
  int64_t ms_at(std::chrono::steady_clock::time_point time) const;
  void post(Job job) override { inbox.post(std::move(job)); }
  int64_t now_ms() const override;
  void step(Event event) override;
  void perform(Action action);
  void tick();
  void probe(const PeerId& peer);
  void refresh_keys();
  // Takes back what revoked keys reported (`kiln keys revoke`), each once.
  void take_back_revoked();
  // Takes back the kernels that won of what the owner of a revoked key offered, and then the offers.
  void take_back_offers(const RevokedKey& key, int64_t until_ms);
  void take_back_again(const RevokedKey& key);  // in a while: the store did not take it
  std::set<std::string> keys_let_in() const;
  void note_keys();
  void note_term();
  Vouching vouching() const;
  Path keys_folder() const {
    return options.keys.empty() ? options.data_dir / "keys" : options.keys;
  }
  void close(const PeerId& peer);
  void blob_is_missing(const Digest& blob) { storage.blob_is_missing(blob); }
  void planned(PlanFinished plan);
  void publish_status();
  StatusSnapshot status_now();
  Stats stats(const Viewer& viewer = {.user = {}, .team = {}, .sees_all = true});
  void log(const LogLine& line) const override;

  // ---- Messages ----
  void handle(const Arrival& arrival);
  bool answer_known(const Arrival& arrival);
  void handle(Received received);
  void on(const PeerId& peer, const Hello& hello, const User& user);
  void on(const PeerId& peer, CompileRequest request);
  void answer(const PeerId& peer, uint64_t request, HitReply& hit);
  void on(const PeerId& peer, BlobRequest request);
  void on(const PeerId& peer, const BlobCredit& credit) { blobs.add_credit(peer, credit); }
  void on(const PeerId& peer, const Cancel& cancel);
  void on(const PeerId& peer, const StatsRequest& request);
  void on(const PeerId& peer, const RevocationsRequest& request);
  void on(const PeerId& peer, WorkerReport report);
  void on(const PeerId& peer, const AdminRequest& request) {
    admin.handle({peer, sessions.find(peer)->user.name, request});
  }
  void on(const PeerId& peer, const ArtifactGet& request) {
    artifacts.get(peer, *sessions.find(peer), request);
  }
  void on(const PeerId& peer, ArtifactPut request) {
    artifacts.put(peer, *sessions.find(peer), std::move(request));
  }
  void on(const PeerId& peer, const ArtifactRelease& request) {
    artifacts.release(*sessions.find(peer), request);
  }
  bool graphs_crowded(const std::string& user, size_t bytes) const;
  void overloaded(const PeerId& peer, uint64_t request);
  void refuse(const PeerId& peer, Code code, std::string message);
  void refuse(const PeerId& peer, Error error);
  void count_refusal(const PeerId& peer, const Error& error);
  bool send(const PeerId& peer, const Message& message);
  void unsent(const PeerId& peer);

  // ---- Actions ----
  void on(const LookUpProgram& action);
  void on(const AskForGraph& action);
  void on(StartPlan action);
  void on(Answer action);
  void on(const SendProgress& action) { send(action.client, action.progress); }
  void on(SendOrders action);
  void on(StoreRecords action) { storage.store(std::move(action)); }
  void on(StoreKernel action);
  void on(const StoreProgram& action);
  void on(StoreDetached action) { storage.store(std::move(action)); }
  void on(const EndDetached& action);
  void on(const ForgetDetached& action) { storage.forget(action); }
  void on(const StoreLost& action) { storage.store(action); }
  void on(KeepProgram action) { storage.keep(std::move(action)); }
  void on(ShareBinary action) { storage.share(std::move(action)); }
  void on(const WithdrawKernel& action) { storage.withdraw(action); }
  void on(const LogAbandoned& action) const;
  void on(const Distrust& action);
  void on(const LogDisputed& action) const;

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
  KnownRequests known;
  BlobMemoryCache blob_memory;
  TaskLog tasks;
  WorkerLog workers;
  History history;
  Refusals refusals;
  int64_t next_tick_ms = 0, next_probe_ms = 0, next_keys_ms = 0;
  struct Planning {
    size_t bytes = 0;  // of the graph
    std::string user;
  };
  std::unordered_map<Digest, Planning> planning;             // by task
  size_t planning_bytes = 0;                                 // their sum
  std::unordered_map<std::string, size_t> planning_of_user;  // the same; no zeros
  std::string asking;  // the user of the request that is being stepped
  int64_t malformed_logged = 0;
  std::set<std::pair<std::string, int64_t>> keys_taken_back;  // name, when it was revoked
  int64_t revoked_again_ms = 0;  // when what a revoked key reported is taken back again; 0: it is
  std::set<std::string> keys_noted;  // who may come in, as noted last
  int64_t hits = 0;                  // answered without the core
  int64_t overloads = 0;             // refused without the core
  LoopTimes times;
  SpareMemory spare;
  std::chrono::steady_clock::time_point message_start;  // of the one being handled

  // Shared with the threads below. They stop before it goes.
  Inbox inbox{[this] { listener->wake(); }};
  std::atomic<bool> stopping{false};
  std::optional<FileLock> directory_lock;
  std::unique_ptr<Store> store;
  std::unique_ptr<PendingTaskStore> detached;
  std::unique_ptr<ArtifactStore> artifact_store;
  ArtifactOffers own_offers{*artifact_store, options.data_dir / kArtifactsFile};
  Offers offers;
  Signer signer;
  BlobSender blobs{*store, blob_memory, *this, options.blob_links};
  StorageExecutor storage;
  AuditTrail trail;
  AdminHandler admin;
  ArtifactHandler artifacts;
  LoopPage page;
  std::unique_ptr<Planner> planner;
  std::unique_ptr<RedisPort> redis;  // null: there is none
  std::thread thread;
};

}  // namespace kiln
