// The members of each message and of what messages hold, in the order of kiln.capnp: one list per
// struct, which the codec goes through to write and to read. codec.cc CHECKs each list against the
// compiled schema, so a list that does not match its struct ends the first test that encodes it.
#pragma once

#include <string>
#include <type_traits>

#include "schema/messages.h"

namespace kiln {

inline constexpr size_t kMaxBlobDigests = 4096;    // of one BlobRequest
inline constexpr size_t kMaxUrlBytes = 4096;       // of one BlobLink
inline constexpr size_t kMaxTemplates = 1024;      // of one worker
inline constexpr size_t kMaxLibraries = 16;        // likewise
inline constexpr size_t kMaxTargetsBuilt = 64;     // likewise
inline constexpr size_t kMaxSentenceBytes = 1024;  // for people
inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kMaxEndorsementBytes = 256;

// A member whose size has limits beyond the frame's. `or_nothing`: exactly `most`, or empty.
template <class T>
struct Sized {
  T& value;
  size_t most = kMaxLabelBytes;
  bool or_nothing = false;
};

template <class T, class U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

// The members of each struct. `f` is a Writer and `m` const, or a Reader.
struct Fields {
  static void of(auto& f, Is<Error> auto& m) { f(m.code, m.message, m.retry_after_ms); }
  static void of(auto& f, Is<Target> auto& m) {
    f(m.backend, Sized{m.isa}, Sized{m.device_model}, m.units, Sized{m.toolkit});
  }
  static void of(auto& f, Is<Decision> auto& m) { f(m.name, m.value); }
  static void of(auto& f, Is<Schedule> auto& m) { f(m.template_name, m.decisions); }
  static void of(auto& f, Is<MeasurementPolicy> auto& m) {
    f(m.screen_runs, m.screen_drop, m.race_runs, m.race_drop, m.finalists, m.final_runs, m.tie,
      m.launch_timeout_ms);
  }
  static void of(auto& f, Is<TemplateVersion> auto& m) { f(Sized{m.name}, m.version); }
  static void of(auto& f, Is<Hello> auto& m) {
    f(m.protocol, m.role, Sized{m.software}, Sized{m.token, kTokenBytes, true},
      Sized{m.templates, kMaxTemplates});
  }
  static void of(auto& f, Is<Welcome> auto& m) {
    f(m.protocol, m.software, m.template_stamp, Sized{m.session, kTokenBytes, true},
      Sized{m.signing_key, kPublicKeyBytes, true}, m.revocations,
      Sized{m.endorsement, kMaxEndorsementBytes}, m.follower);
  }
  static void of(auto& f, Is<CompileRequest> auto& m) {
    f(m.request, m.graph, m.target, m.mode, m.check_only, m.graph_text, m.priority, m.detach,
      m.strict, m.early, Sized{m.traceparent}, m.now);
  }
  static void of(auto& f, Is<Progress> auto& m) {
    f(m.request, m.kernels, m.kernels_done, m.candidates, m.candidates_done, m.elapsed_s,
      Sized{m.waiting, kMaxSentenceBytes});
  }
  static void of(auto& f, Is<CompileReply> auto& m) {
    f(m.request, m.outcome, m.program_json, Sized{m.signature, kSignatureBytes, true},
      m.memory_only, m.revocations, m.stale, m.tier0);
  }
  static void of(auto& f, Is<BlobRequest> auto& m) {
    f(m.request, Sized{m.digests, kMaxBlobDigests}, m.credit, m.links_ok);
  }
  static void of(auto& f, Is<BlobChunk> auto& m) {
    f(m.digest, m.offset, m.total, m.bytes);
    f.require(m.total <= static_cast<int64_t>(kMaxBlobBytes) && m.offset <= m.total &&
                  static_cast<int64_t>(m.bytes.size()) <= m.total - m.offset,
              "a chunk beyond its blob");
  }
  static void of(auto& f, Is<BlobLink> auto& m) { f(m.digest, Sized{m.url, kMaxUrlBytes}); }
  static void of(auto& f, Is<BlobReply> auto& m) {
    f(m.request, m.chunks, m.missing, m.last, m.links, Sized{m.why, kMaxSentenceBytes});
  }
  static void of(auto& f, Is<BlobCredit> auto& m) { f(m.request, m.bytes); }
  static void of(auto& f, Is<WorkerStats> auto& m) {
    f(m.name, m.target, m.toolkit, m.leases, m.compiled, m.measured, m.idle_s, m.state, m.reason,
      m.sentinel_us, Sized{m.sandbox, kMaxSentenceBytes}, Sized{m.waiting, kMaxSentenceBytes},
      m.trust, m.role, Sized{m.builds_for, kMaxSentenceBytes}, m.built);
  }
  static void of(auto& f, Is<DetachedStats> auto& m) {
    f(m.program, m.graph, m.target, m.mode, m.state, m.reason, m.lost);
  }
  static void of(auto& f, Is<RefusedStats> auto& m) { f(m.user, m.count); }
  static void of(auto& f, Is<ArtifactStats> auto& m) {
    f(m.kind, m.entries, m.bytes, m.hits, m.misses, m.joined, m.stored, m.evicted, m.damaged);
  }
  static void of(auto& f, Is<StatsReply> auto& m) {
    auto& s = m.stats;
    f(m.request, s.hits, s.misses, s.joined, s.candidates_compiled, s.candidates_measured,
      s.flights_open, s.retries, s.entries, s.bytes, s.corrupt_blobs, s.malformed_messages,
      s.store_failures, s.uptime_s, s.workers, s.requests_open, s.candidates_queued, s.overloaded,
      s.hedged, s.set_aside, s.evicted, s.connections, s.detached_queued, s.detached_running,
      s.detached_failed, s.detached, s.programs_stale, s.refused, s.artifacts, s.answered_early,
      s.withdrawn, s.answered_tier0, s.spooled, s.spooled_bytes, s.blob_links);
  }
  static void of(auto& f, Is<LeaseState> auto& m) { f(m.lease, m.epoch, m.done); }
  static void of(auto& f, Is<CandidateResult> auto& m) {
    f(m.lease, m.epoch, m.kernel_key, m.index, m.verdict, m.compiled, m.log,
      m.measurement.samples_us, m.recipe_json, m.binary, m.compile_ms, m.verify_ms, m.measure_ms,
      m.local_bytes);
  }
  static void of(auto& f, Is<WorkerReport> auto& m) {
    f(Sized{m.worker}, m.target, Sized{m.toolkit}, m.slots, m.leases, m.results, m.draining,
      m.sentinel_us, m.device_errors, m.compiled, Sized{m.libraries, kMaxLibraries},
      Sized{m.sandbox, kMaxSentenceBytes}, Sized{m.waiting, kMaxSentenceBytes}, m.builds,
      m.compilers, Sized{m.builds_for, kMaxTargetsBuilt});
  }
  static void of(auto& f, Is<LibraryVersion> auto& m) { f(Sized{m.name}, Sized{m.version}); }
  static void of(auto& f, Is<CandidateJob> auto& m) {
    f(m.index, m.schedule, m.recipe_json, m.binary, Sized{m.signature, kSignatureBytes, true},
      m.local_bytes);
  }
  static void of(auto& f, Is<Job> auto& m) {
    f(m.lease, m.epoch, m.kind, m.kernel_key, m.target, m.family, m.workload_text, m.policy, m.seed,
      m.incumbent_us, m.candidates, Sized{m.traceparent});
  }
  static void of(auto& f, Is<ResultAck> auto& m) { f(m.lease, m.index); }
  static void of(auto& f, Is<WorkerOrders> auto& m) { f(m.jobs, m.leases, m.acks, m.drain); }
  static void of(auto& f, Is<AdminRequest> auto& m) {
    f(m.request, m.kind, Sized{m.worker}, m.key, m.amount, m.kernel, m.since_ms, m.dry_run,
      Sized{m.template_name});
  }
  static void of(auto& f, Is<AdminReply> auto& m) { f(m.request, m.outcome); }
  static void of(auto& f, Is<MessagePart> auto& m) { f(m.bytes, m.last); }
  static void of(auto& f, Is<RevocationsReply> auto& m) {
    f(m.request, m.list, Sized{m.signature, kSignatureBytes, true});
  }
  static void of(auto& f, Is<ArtifactGet> auto& m) {
    f(m.request, Sized{m.kind}, Sized{m.key, kMaxArtifactKeyBytes}, m.wait_ms, m.lease_ms);
  }
  static void of(auto& f, Is<ArtifactReply> auto& m) {
    f(m.request, m.outcome, Sized{m.signature, kSignatureBytes, true}, m.lease, m.leased);
  }
  static void of(auto& f, Is<ArtifactPut> auto& m) {
    f(m.request, Sized{m.kind}, Sized{m.key, kMaxArtifactKeyBytes},
      Sized{m.value, kMaxArtifactBytes});
  }
};

// The part of a message that the envelope's union holds: its only member, or all of it.
auto& payload(auto& message) {
  using T = std::remove_cvref_t<decltype(message)>;
  if constexpr (Is<T, Refusal>)
    return message.error;
  else if constexpr (Is<T, NeedGraph> || Is<T, Cancel> || Is<T, StatsRequest> ||
                     Is<T, RevocationsRequest>)
    return message.request;
  else if constexpr (Is<T, ArtifactRelease>)
    return message.lease;
  else
    return message;
}

}  // namespace kiln
