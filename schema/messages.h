// The messages between client, coordinator and worker, as values. kiln.capnp is their form on
// the wire, codec.h converts; nothing else sees generated types.
//
// A connection: the peer sends Hello; the coordinator answers Welcome or Refusal. Then
//
//   client:  CompileRequest -> [NeedGraph -> CompileRequest with the graph] -> Progress* ->
//            CompileReply;  BlobRequest -> BlobReply* [<- BlobCredit];  StatsRequest -> StatsReply;
//            Cancel.  ArtifactGet, ArtifactPut -> ArtifactReply;  ArtifactRelease.
//   worker:  WorkerReport (what it has and does, results not yet acknowledged), at least once a
//            second and whenever something finishes -> WorkerOrders (what it should do, which
//            results are stored). Both are state, not deltas: a lost one heals with the next.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler_core/base/signature.h"
#include "compiler_core/plan/workload.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr size_t kMaxMessageBytes = 32 << 20;  // graphs of 100,000 nodes, batches of blobs
inline constexpr size_t kMaxBlobBytes = 16 << 20;
inline constexpr size_t kMaxLabelBytes = 256;         // a name, or one word of a target
inline constexpr int64_t kBlobWindowBytes = 1 << 20;  // most credit of one blob request

enum class Role : uint8_t { kClient = 1, kWorker = 2 };

struct Hello {
  uint32_t protocol = kProtocolVersion;
  Role role = Role::kClient;
  std::string software;  // "kiln 0.1.0", for logs
  // Welcome.session of this peer's last connection; empty: none. A worker shows it to take its name
  // from that connection when the coordinator does not know yet that it is dead.
  std::string token{};
  TemplateVersions templates{};  // a worker's: it gets candidates of these only
};
struct Welcome {
  uint32_t protocol = kProtocolVersion;
  std::string software;
  Digest template_stamp;      // of the coordinator's templates (program/template_versions.h)
  std::string session{};      // token: 16 random bytes
  std::string signing_key{};  // Ed25519 public key of the artifacts, 32 bytes; empty: unsigned
  uint64_t revocations = 0;   // serial of the list of what was taken back; 0: nothing was
  // The word for signing_key of the key that it replaced (base/signature.h,
  // Endorsement::to_string()); empty: none.
  std::string endorsement{};
  // It answers look-ups of what is stored, and nothing else: another coordinator leads.
  bool follower = false;
  // The coordinator's signature with these bytes. An endorsement that cannot be read is none.
  Signature signed_with(std::string bytes) const;
};
struct Refusal {  // of the connection or a message
  Error error;
};

enum class Priority : uint8_t { kInteractive = 0, kWarmUp = 1 };

struct CompileRequest {
  uint64_t request = 0;  // chosen by the client, unique on its connection
  Digest graph;          // GraphDigest
  Target target;
  Mode mode = Mode::kDefault;
  bool check_only = false;  // answer kNotFound on a miss and start nothing
  std::string graph_text;   // canonical graph; empty on the first try
  Priority priority = Priority::kInteractive;
  bool detach = false;  // answer kQueued once the task is durable; nobody waits for it
  bool strict = false;  // take no program that templates of another version made
  // kDefault: take a program whose kernels are built and not verified yet (ProgramKernel::verified).
  // That goes on, and one found wrong is taken back (program/revocations.h).
  bool early = false;
  std::string traceparent{};  // W3C Trace Context, of the client's span; empty: not traced
  // kMaxAutotune: where the program is not tuned yet, answer at once with what the same request has in
  // kDefault (CompileReply::tier0), taken as `early` says, and tune it though nobody waits. The same
  // request without `now` waits for it.
  bool now = false;
};
struct NeedGraph {
  uint64_t request = 0;
};
struct Progress {
  uint64_t request = 0;
  int kernels = 0, kernels_done = 0;
  int candidates = 0, candidates_done = 0;
  double elapsed_s = 0;
  std::string waiting{};  // what its worker waits for, for people; empty: nothing
};
// kQueued: the task of a detached request is durable and goes on without a client.
enum class CacheOutcome : uint8_t { kTuned = 1, kJoined = 2, kHit = 3, kLocal = 4, kQueued = 5 };
std::string_view to_string(CacheOutcome outcome);  // "tuned", "joined", "hit", "local", "queued"

struct CompileReply {
  uint64_t request = 0;
  Result<CacheOutcome> outcome = CacheOutcome::kHit;
  std::string program_json;  // manifest, when there is one
  std::string signature{};   // Ed25519 over the manifest, 64 bytes; empty: unsigned
  // The program is not stored, so it may be tuned again: the disk would not take it, or a partition
  // into kernels that may be faster waits for a worker.
  bool memory_only = false;
  uint64_t revocations = 0;  // as in Welcome
  // Templates of another version made the program; its successor is being tuned.
  bool stale = false;
  // The kDefault program stands in for the one that was asked for, which is being tuned.
  bool tier0 = false;
};
// The answer comes in several replies. Their bytes stay within the credit that the receiver gave:
// `credit` at first, plus each BlobCredit, up to kBlobWindowBytes.
struct BlobRequest {
  uint64_t request = 0;
  std::vector<Digest> digests;  // at most 4096
  int64_t credit = kBlobWindowBytes;
  bool links_ok = false;  // may be answered with links
};
struct BlobChunk {
  Digest digest;  // the whole blob's
  int64_t offset = 0, total = 0;
  std::string bytes;  // chunks of a blob come in order
};
// Where anybody may GET a blob, for some minutes: whoever cannot have it there asks again without
// links_ok. What comes is checked as chunks are.
struct BlobLink {
  Digest digest;
  std::string url;  // at most 4096 bytes
};
struct BlobReply {  // one or more per request; `last` ends it
  uint64_t request = 0;
  std::vector<BlobChunk> chunks;
  std::vector<Digest> missing;
  bool last = true;
  std::vector<BlobLink> links{};
  std::string why{};  // the missing cannot be read now; empty: they are lost
};
struct BlobCredit {
  uint64_t request = 0;
  int64_t bytes = 0;
};
struct Cancel {
  uint64_t request = 0;
};
struct StatsRequest {
  uint64_t request = 0;
};
struct WorkerStats {
  std::string name;
  Target target;
  std::string toolkit;
  int leases = 0;
  int64_t compiled = 0, measured = 0;
  double idle_s = 0;       // since its last report
  std::string state{};     // "serving", "draining" or "quarantined"
  std::string reason{};    // why quarantined
  double sentinel_us = 0;  // as last reported; 0: not measured
  std::string sandbox{};   // WorkerReport's
  std::string waiting{};
  std::string trust{};       // of its key, if it is not the usual one: "screens", "alone"
  std::string role{};        // "measure", or "build": it has no device and only builds
  std::string builds_for{};  // "cuda:sm_80, cuda:sm_90a": of a builder
  int64_t built = 0;         // candidates, by jobs of kBuild
};
// A program tuned without a waiting client (CompileRequest::detach).
struct DetachedStats {
  Digest program, graph;
  Target target;
  Mode mode = Mode::kDefault;
  std::string state;   // "queued", "running" or "failed"
  std::string reason;  // why it failed, or had to wait
  int64_t lost = 0;    // processes of workers that it has cost
};
// A user that was refused: overloaded, or without the grant.
struct RefusedStats {
  std::string user;
  int64_t count = 0;
};
// Artifacts of one kind; all but entries and bytes since the coordinator started.
struct ArtifactStats {
  std::string kind;
  int64_t entries = 0, bytes = 0;
  int64_t hits = 0, misses = 0;
  int64_t joined = 0;  // misses that waited for somebody else's lease
  int64_t stored = 0, evicted = 0;
  int64_t damaged = 0;  // did not have their signature when read back
};
struct Stats {
  int64_t hits = 0, misses = 0, joined = 0;
  int64_t candidates_compiled = 0, candidates_measured = 0;
  int64_t flights_open = 0, retries = 0;
  int64_t entries = 0, bytes = 0;  // programs + kernels stored; bytes of blobs
  int64_t corrupt_blobs = 0, malformed_messages = 0, store_failures = 0;
  double uptime_s = 0;
  std::vector<WorkerStats> workers;
  int64_t requests_open = 0, candidates_queued = 0;
  int64_t overloaded = 0;  // requests refused since the start
  int64_t hedged = 0;      // batches given to a second worker
  int64_t set_aside = 0;   // candidates abandoned after transient failures
  int64_t evicted = 0;     // entries
  int64_t connections = 0;
  int64_t detached_queued = 0, detached_running = 0, detached_failed = 0;
  std::vector<DetachedStats> detached{};  // the first hundred: failed, running, queued
  int64_t programs_stale = 0;             // stored, of other templates than the coordinator's
  std::vector<RefusedStats> refused{};    // the first hundred, most often refused first
  std::vector<ArtifactStats> artifacts{};
  int64_t answered_early = 0;              // replies before all kernels were verified
  int64_t withdrawn = 0;                   // kernels that were answered early and found wrong
  int64_t answered_tier0 = 0;              // replies with CompileReply::tier0
  int64_t spooled = 0, spooled_bytes = 0;  // Store::Totals
  int64_t blob_links = 0;                  // blobs answered with a link
};
struct StatsReply {
  uint64_t request = 0;
  Stats stats;
};

// ---- Artifacts of other compilers (artifact_kinds.h) ----

inline constexpr size_t kMaxArtifactBytes = 16 << 20;
inline constexpr size_t kMaxArtifactKeyBytes = 1024;

struct ArtifactGet {
  uint64_t request = 0;
  std::string kind, key;
  int64_t wait_ms = 0;   // for whoever has the lease; 0: none
  int64_t lease_ms = 0;  // of the lease that a miss takes; 0: none
};
struct ArtifactReply {
  uint64_t request = 0;
  Result<std::string> outcome = std::string();  // the value; of a put empty. kNotFound: a miss
  std::string signature{};                      // Ed25519 over kind, key and value; of a put empty
  uint64_t lease = 0;   // with a miss: the asker makes the value; 0: no lease
  bool leased = false;  // with a miss: somebody else makes it
};
struct ArtifactPut {
  uint64_t request = 0;
  std::string kind, key, value;
};
struct ArtifactRelease {
  uint64_t lease = 0;
};

// ---- Worker ----

struct CandidateJob {
  int index = 0;  // within the kernel's search space
  Schedule schedule;
  std::string recipe_json;  // kFinal, or what was built by a kBuild: the binary follows
  std::string binary;
  std::string signature{};  // the coordinator's, Ed25519 over recipe and binary; empty: unsigned
  int64_t local_bytes = 0;  // as its builder said, CandidateResult
};
struct Job {
  enum class Kind : uint8_t {
    kCompile = 1,  // verify, no timing (default mode); compile first, unless a binary is given
    kScreen = 2,   // compile unless a binary is given, verify, race against incumbent_us
    kFinal = 3,    // time the given binaries interleaved
    kBuild = 4,    // compile only, beside the leases that need the device
  };
  uint64_t lease = 0;  // unique for the coordinator's lifetime
  uint64_t epoch = 0;  // results under another epoch are dropped
  Kind kind = Kind::kScreen;
  Digest kernel_key;
  Target target;
  Family family = Family::kPointwise;
  std::string workload_text;  // the workload's graph
  MeasurementPolicy policy;
  uint64_t seed = 0;
  double incumbent_us = 0;  // best so far elsewhere; 0: none
  std::vector<CandidateJob> candidates;
  std::string traceparent{};  // W3C Trace Context, of the coordinator's span; empty: not traced
};

std::string_view to_string(Job::Kind kind);  // in traces: "verify", "screen", "final", "build"
struct CandidateResult {
  uint64_t lease = 0, epoch = 0;
  Digest kernel_key;
  int index = 0;
  Verdict verdict = Verdict::kOk;
  bool compiled = false;  // a compiler ran for it (false: found by candidate key)
  std::string log;
  Measurement measurement;  // empty when dropped before timing, or kCompile
  std::string recipe_json;  // with `binary`, for candidates still in the race
  std::string binary;
  double compile_ms = 0, verify_ms = 0, measure_ms = 0;
  int64_t local_bytes = 0;  // kBuild: of spilled registers and arrays in a GPU's local memory
};
struct LeaseState {
  uint64_t lease = 0, epoch = 0;
  int done = 0;  // candidates finished: progress, not a mere heartbeat
};
struct WorkerReport {
  std::string worker;  // stable name, unique per process
  Target target;
  std::string toolkit;                   // compiler build
  int slots = 1;                         // leases it wants at once
  std::vector<LeaseState> leases;        // what it works on
  std::vector<CandidateResult> results;  // finished and not yet acknowledged
  bool draining = false;                 // give it nothing new
  double sentinel_us = 0;                // the calibration kernel's latest median; 0: not measured
  int device_errors = 0;                 // device faults since the worker started
  // Compiles since the worker started, of leases taken back too. 0: none, or an older worker, whose
  // results' `compiled` are counted instead.
  int64_t compiled = 0;
  // Its device can call these; candidates that call another get no lease here.
  std::vector<LibraryVersion> libraries{};
  std::string sandbox{};  // Sandbox::describe() of its compilers and kernels, or "off"
  // Names what held it up for a second or longer: the device's lock, and who holds it.
  std::string waiting{};
  // Takes jobs of kBuild, and verifies binaries that are given (kCompile).
  bool builds = false;
  int compilers = 0;  // that it can run at once now; jobs of kBuild take no slot
  // Not empty: it has no device and only builds, for these (`kiln-worker --role build`). Then `target`
  // names no ISA, and nothing is verified or timed here.
  std::vector<Target> builds_for{};
  bool only_builds() const { return !builds_for.empty(); }
};
struct ResultAck {
  uint64_t lease = 0;
  int index = 0;
};
struct WorkerOrders {
  std::vector<Job> jobs;         // leases it should hold and does not report yet
  std::vector<uint64_t> leases;  // every lease it should hold; others are dropped
  std::vector<ResultAck> acks;   // results stored (or refused as stale): forget them
  bool drain = false;            // finish the leases, report, then exit
};

// ---- Operators ----

struct AdminRequest {
  enum class Kind : uint8_t {
    kDrain = 1,
    kPin = 2,
    kUnpin = 3,
    kCollect = 4,
    kForgetFailed = 5,
    kForget = 6,          // take results back
    kCancelDetached = 7,  // end what is tuned without a client
    kTuneLog = 8,         // a page of the tuning log
  };
  uint64_t request = 0;
  Kind kind = Kind::kDrain;
  std::string worker;         // kDrain: by name; kForget, kTuneLog: what it reported
  std::optional<Digest> key;  // kPin, kUnpin, kForget, kCancelDetached, kTuneLog: the program's
  int64_t amount = 0;         // kCollect: bytes to shrink the cache to; kTuneLog: last_id before
  std::optional<Digest> kernel{};  // kForget, kTuneLog: of that key
  int64_t since_ms = 0;  // kForget, kTuneLog: what was reported since then (Unix time); 0: any time
  bool dry_run = false;  // kForget: only say what would go
  std::string template_name{};  // kTuneLog: of this kernel template; empty: of all
};
// A client asks for the list that it sees a greater `revocations` of; older ones never ask.
struct RevocationsRequest {
  uint64_t request = 0;
};
struct RevocationsReply {
  uint64_t request = 0;
  std::string list;       // program/revocations.h
  std::string signature;  // Ed25519 over it, 64 bytes
};
struct AdminReply {
  uint64_t request = 0;
  Result<std::string> outcome;  // what was done, as `--json` prints it
};

// ---- The wire's own ----

// A piece of a larger message (codec.h); the transport takes it in.
struct MessagePart {
  std::string bytes;
  bool last = false;
};

using Message = std::variant<Hello, Welcome, Refusal, CompileRequest, NeedGraph, Progress,
                             CompileReply, BlobRequest, BlobReply, Cancel, StatsRequest, StatsReply,
                             WorkerReport, WorkerOrders, AdminRequest, AdminReply, BlobCredit,
                             MessagePart, RevocationsRequest, RevocationsReply, ArtifactGet,
                             ArtifactReply, ArtifactPut, ArtifactRelease>;

}  // namespace kiln
