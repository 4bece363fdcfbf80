// Service: a serving coordinator. One thread runs the loop: it receives messages, turns them into
// events of the core, and carries out the core's actions; planner threads and the cache's writer
// post their results to it. Thread-safe; owns its threads, the data directory and the socket.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/objects/object_store.h"
#include "compiler_core/base/file.h"
#include "coordinator/core/events.h"
#include "coordinator/status/log_line.h"
#include "coordinator/status/service_status.h"
#include "schema/tracing/otlp/span_exporter.h"

namespace kiln {

struct ServiceOptions {
  Path data_dir;
  // Where programs and kernels are kept (storage/open_store.h); empty: in data_dir.
  std::string store{}, blobs{};
  ObjectStoreOptions objects{};
  // start() waits for another coordinator's end for as long as this says; empty: for ten seconds.
  std::function<bool()> stands_by{};
  // The store is this coordinator's, and its port is opened next. May be empty.
  std::function<void()> leads{};
  // Another coordinator writes the store by now: this one is of no use any more. On any thread.
  std::function<void()> lost{};
  std::string endpoint = "tcp://127.0.0.1:0";  // port 0 picks one
  // Folder of keys (schema/keys/key_file.h). Empty: data_dir/keys beyond loopback, else none.
  Path keys;
  int planner_threads = 1;
  // templates: those of this build when the list is empty. first_lease: by generation.h.
  CoreOptions core;
  size_t manifest_bytes = 256 << 20;          // manifests kept in memory
  size_t blob_bytes = 256 << 20;              // blobs kept in memory
  int64_t index_bytes = 64 << 20;             // pages of the index kept in memory
  int64_t cache_bytes = 0;                    // programs, kernels and blobs on disk; 0: unbounded
  int64_t copies_bytes = 0;                   // copies of a far store's binaries on disk; 0: none
  int64_t spool_bytes = 0;                    // what waits on disk for a far store; 0: nothing
  bool blob_links = false;                    // clients that can are sent to a far store's binaries
  int64_t artifact_bytes = int64_t{4} << 30;  // other compilers' artifacts on disk
  std::string redis;  // where Inductor's Redis client is answered, "127.0.0.1:6379"; empty: nowhere
  size_t graph_bytes = 512 << 20;   // graph texts that wait for a planner; beyond: overloaded
  int64_t hold_blobs_ms = 600'000;  // blobs that the disk would not take
  // Gets a line for each compile task and for what an operator should know. Called on the loop's
  // thread, so it must not block. May be empty.
  std::function<void(const LogLine& line)> log;
  std::shared_ptr<ServiceStatus> status;   // published to; may be null
  std::shared_ptr<SpanExporter> traces{};  // takes spans; null: nothing is traced
};

struct ServiceLoop;  // service_loop.h
class PageSource;    // page_source.h

class Service {
 public:
  // kUnavailable when another coordinator has the data directory or the store, the store does not
  // answer, or the port is taken;
  // kPermissionDenied when the endpoint takes keys and nobody has one.
  static Result<std::unique_ptr<Service>> start(ServiceOptions options);
  ~Service();  // stops

  const std::string& endpoint() const;  // with the port that was picked
  std::string redis_endpoint() const;   // "redis://127.0.0.1:6379"; empty: nowhere
  PageSource& page();                   // until this object goes; after stop() it answers nothing
  // Waits for the loop, the plans in progress and the writes that were begun. Clients and workers
  // see their connection end. Idempotent.
  void stop();

 private:
  explicit Service(std::unique_ptr<ServiceLoop> loop);
  std::unique_ptr<ServiceLoop> loop_;
};

}  // namespace kiln
