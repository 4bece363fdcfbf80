// ServiceLoop: the one thread of a coordinator that decides. In the order of one turn (run()):
//
//   what other threads finished (Inbox)  -> events        | core -> actions -> perform()
//   a tenth of a second passed           -> Tick          |
//   a piece of a blob answer (BlobDesk)  -> sent          |
//   messages, a few dozen                -> events        |
//
// A request whose manifest is in memory is answered at once, without the core: hits never wait
// behind anything. Nothing in the loop waits for a disk beyond an indexed look-up or the read of a
// few blobs.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>

#include "coordinator/access.h"
#include "coordinator/admin_desk.h"
#include "coordinator/blob_desk.h"
#include "coordinator/core/core.h"
#include "coordinator/flight_log.h"
#include "coordinator/inbox.h"
#include "coordinator/known_requests.h"
#include "coordinator/manifest_table.h"
#include "coordinator/planner.h"
#include "coordinator/service.h"
#include "coordinator/session_table.h"
#include "coordinator/signer.h"
#include "coordinator/spare_memory.h"
#include "coordinator/store_desk.h"
#include "coordinator/worker_log.h"

namespace kiln {

inline constexpr size_t kMaxSessions = Listener::kMaxConnections;

struct ServiceLoop {
  ServiceLoop(ServiceOptions given, std::unique_ptr<KernelCache> opened,
              std::unique_ptr<PendingTaskStore> detached_flights, SigningKey signing_key,
              std::unique_ptr<Listener> bound);

  // ---- The loop ----
  void run();
  int64_t ms_at(std::chrono::steady_clock::time_point time) const;
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
  void on(const ForgetFlight& action) { store.forget(action); }
  void on(KeepProgram action) { store.keep(std::move(action)); }
  void on(const LogSetAside& action) const;

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
  BlobShelf shelf;
  FlightLog flights;
  WorkerLog workers;
  int64_t next_tick_ms = 0, next_probe_ms = 0;
  std::unordered_map<Digest, size_t> planning;  // bytes of the graph, by program
  size_t planning_bytes = 0;                    // their sum
  int64_t malformed_logged = 0;
  int64_t hits = 0;       // answered without the core
  int64_t overloads = 0;  // refused without the core
  LoopTimes times;
  SpareMemory spare;
  std::chrono::steady_clock::time_point message_start;  // of the one being handled

  // Shared with the threads below. They stop before it goes.
  Inbox inbox{[this] { listener->wake(); }};
  std::atomic<bool> stopping{false};
  std::unique_ptr<KernelCache> cache;
  std::unique_ptr<PendingTaskStore> detached;
  Signer signer;
  BlobDesk blobs{*cache, shelf};
  StoreDesk store;
  AdminDesk admin;
  std::unique_ptr<Planner> planner;
  std::thread thread;
};

}  // namespace kiln
