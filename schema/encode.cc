// Message -> frame. One function a message, fields in the order of kiln.capnp. Values are not
// judged here: what is out of range (a negative count) is written as it is and refused by decode.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/io.h>

#include <vector>

#include "schema/codec.h"
#include "schema/kiln.capnp.h"

namespace kiln {
namespace {

constexpr size_t kScratchWords = (kMaxFrameBytes + 4096) / sizeof(uint64_t);

class FrameOutput : public kj::OutputStream {
 public:
  explicit FrameOutput(std::string& frame) : frame_(frame) {}
  void write(const void* bytes, size_t size) override {
    frame_.append(static_cast<const char*>(bytes), size);
  }

 private:
  std::string& frame_;
};

kj::StringPtr text(const std::string& s) {
  return {s.data(), s.size()};
}

capnp::Data::Reader bytes(std::string_view in) {
  return {reinterpret_cast<const kj::byte*>(in.data()), in.size()};
}

capnp::Data::Reader bytes(const Digest& in) {
  return {in.bytes.data(), in.bytes.size()};
}

unsigned list_size(size_t size) {
  return static_cast<unsigned>(size);
}

void put(wire::Error::Builder out, const Error& in) {
  out.setCode(static_cast<wire::Code>(in.code));
  out.setMessage(text(in.message));
  out.setRetryAfterMs(static_cast<uint64_t>(in.retry_after_ms));
}

void put(wire::Target::Builder out, const Target& in) {
  out.setBackend(static_cast<wire::Backend>(in.backend));
  out.setIsa(text(in.isa));
  out.setDeviceModel(text(in.device_model));
  out.setUnits(static_cast<uint32_t>(in.units));
  out.setToolkit(text(in.toolkit));
}

void put(wire::Schedule::Builder out, const Schedule& in) {
  out.setFamily(static_cast<wire::Family>(in.family));
  auto decisions = out.initDecisions(list_size(in.decisions.size()));
  for (unsigned i = 0; i < decisions.size(); ++i) {
    decisions[i].setName(text(in.decisions[i].name));
    decisions[i].setValue(in.decisions[i].value);
  }
}

void put(wire::MeasurementPolicy::Builder out, const MeasurementPolicy& in) {
  out.setScreenRuns(static_cast<uint32_t>(in.screen_runs));
  out.setScreenDrop(in.screen_drop);
  out.setRaceRuns(static_cast<uint32_t>(in.race_runs));
  out.setRaceDrop(in.race_drop);
  out.setFinalists(static_cast<uint32_t>(in.finalists));
  out.setFinalRuns(static_cast<uint32_t>(in.final_runs));
  out.setTie(in.tie);
  out.setLaunchTimeoutMs(static_cast<uint64_t>(in.launch_timeout_ms));
}

void put(wire::Envelope::Builder out, const Hello& in) {
  auto hello = out.initHello();
  hello.setProtocol(in.protocol);
  hello.setRole(static_cast<wire::Role>(in.role));
  hello.setSoftware(text(in.software));
  hello.setToken(bytes(in.token));
}

void put(wire::Envelope::Builder out, const Welcome& in) {
  auto welcome = out.initWelcome();
  welcome.setProtocol(in.protocol);
  welcome.setSoftware(text(in.software));
  welcome.setCodegen(bytes(in.codegen));
  welcome.setSession(bytes(in.session));
  welcome.setSigningKey(bytes(in.signing_key));
}

void put(wire::Envelope::Builder out, const Refusal& in) {
  put(out.initRefusal(), in.error);
}

void put(wire::Envelope::Builder out, const CompileRequest& in) {
  auto request = out.initCompileRequest();
  request.setRequest(in.request);
  request.setGraph(bytes(in.graph));
  put(request.initTarget(), in.target);
  request.setMode(static_cast<wire::Mode>(in.mode));
  request.setCheckOnly(in.check_only);
  request.setGraphText(text(in.graph_text));
  request.setPriority(static_cast<wire::Priority>(in.priority));
  request.setDetach(in.detach);
}

void put(wire::Envelope::Builder out, const NeedGraph& in) {
  out.setNeedGraph(in.request);
}

void put(wire::Envelope::Builder out, const Progress& in) {
  auto progress = out.initProgress();
  progress.setRequest(in.request);
  progress.setKernels(static_cast<uint32_t>(in.kernels));
  progress.setKernelsDone(static_cast<uint32_t>(in.kernels_done));
  progress.setCandidates(static_cast<uint32_t>(in.candidates));
  progress.setCandidatesDone(static_cast<uint32_t>(in.candidates_done));
  progress.setElapsedS(in.elapsed_s);
}

void put(wire::Envelope::Builder out, const CompileReply& in) {
  auto reply = out.initCompileReply();
  reply.setRequest(in.request);
  if (in.outcome) {
    reply.setOutcome(static_cast<wire::CacheOutcome>(*in.outcome));
  } else {
    put(reply.initError(), in.outcome.error());
  }
  reply.setProgramJson(text(in.program_json));
  reply.setSignature(bytes(in.signature));
  reply.setMemoryOnly(in.memory_only);
}

void put(wire::Envelope::Builder out, const BlobRequest& in) {
  auto request = out.initBlobRequest();
  request.setRequest(in.request);
  auto digests = request.initDigests(list_size(in.digests.size()));
  for (unsigned i = 0; i < digests.size(); ++i) digests.set(i, bytes(in.digests[i]));
  request.setCredit(static_cast<uint64_t>(in.credit));
}

void put(wire::Envelope::Builder out, const BlobReply& in) {
  auto reply = out.initBlobReply();
  reply.setRequest(in.request);
  auto chunks = reply.initChunks(list_size(in.chunks.size()));
  for (unsigned i = 0; i < chunks.size(); ++i) {
    chunks[i].setDigest(bytes(in.chunks[i].digest));
    chunks[i].setOffset(static_cast<uint64_t>(in.chunks[i].offset));
    chunks[i].setTotal(static_cast<uint64_t>(in.chunks[i].total));
    chunks[i].setBytes(bytes(in.chunks[i].bytes));
  }
  auto missing = reply.initMissing(list_size(in.missing.size()));
  for (unsigned i = 0; i < missing.size(); ++i) missing.set(i, bytes(in.missing[i]));
  reply.setLast(in.last);
}

void put(wire::Envelope::Builder out, const Cancel& in) {
  out.setCancel(in.request);
}

void put(wire::Envelope::Builder out, const StatsRequest& in) {
  out.setStatsRequest(in.request);
}

void put(wire::StatsReply::Worker::Builder out, const WorkerStats& in) {
  out.setName(text(in.name));
  put(out.initTarget(), in.target);
  out.setToolkit(text(in.toolkit));
  out.setLeases(static_cast<uint32_t>(in.leases));
  out.setCompiled(static_cast<uint64_t>(in.compiled));
  out.setMeasured(static_cast<uint64_t>(in.measured));
  out.setIdleS(in.idle_s);
  out.setState(text(in.state));
  out.setReason(text(in.reason));
  out.setSentinelUs(in.sentinel_us);
}

void put(wire::StatsReply::Detached::Builder out, const DetachedStats& in) {
  out.setProgram(bytes(in.program));
  out.setGraph(bytes(in.graph));
  put(out.initTarget(), in.target);
  out.setMode(static_cast<wire::Mode>(in.mode));
  out.setState(text(in.state));
  out.setReason(text(in.reason));
}

void put(wire::Envelope::Builder out, const StatsReply& in) {
  auto reply = out.initStatsReply();
  const Stats& stats = in.stats;
  reply.setRequest(in.request);
  reply.setHits(static_cast<uint64_t>(stats.hits));
  reply.setMisses(static_cast<uint64_t>(stats.misses));
  reply.setJoined(static_cast<uint64_t>(stats.joined));
  reply.setCandidatesCompiled(static_cast<uint64_t>(stats.candidates_compiled));
  reply.setCandidatesMeasured(static_cast<uint64_t>(stats.candidates_measured));
  reply.setFlightsOpen(static_cast<uint64_t>(stats.flights_open));
  reply.setRetries(static_cast<uint64_t>(stats.retries));
  reply.setEntries(static_cast<uint64_t>(stats.entries));
  reply.setBytes(static_cast<uint64_t>(stats.bytes));
  reply.setCorruptBlobs(static_cast<uint64_t>(stats.corrupt_blobs));
  reply.setMalformedMessages(static_cast<uint64_t>(stats.malformed_messages));
  reply.setStoreFailures(static_cast<uint64_t>(stats.store_failures));
  reply.setUptimeS(stats.uptime_s);
  auto workers = reply.initWorkers(list_size(stats.workers.size()));
  for (unsigned i = 0; i < workers.size(); ++i) put(workers[i], stats.workers[i]);
  reply.setRequestsOpen(static_cast<uint64_t>(stats.requests_open));
  reply.setCandidatesQueued(static_cast<uint64_t>(stats.candidates_queued));
  reply.setOverloaded(static_cast<uint64_t>(stats.overloaded));
  reply.setHedged(static_cast<uint64_t>(stats.hedged));
  reply.setSetAside(static_cast<uint64_t>(stats.set_aside));
  reply.setEvicted(static_cast<uint64_t>(stats.evicted));
  reply.setConnections(static_cast<uint64_t>(stats.connections));
  reply.setDetachedQueued(static_cast<uint64_t>(stats.detached_queued));
  reply.setDetachedRunning(static_cast<uint64_t>(stats.detached_running));
  reply.setDetachedFailed(static_cast<uint64_t>(stats.detached_failed));
  auto detached = reply.initDetached(list_size(stats.detached.size()));
  for (unsigned i = 0; i < detached.size(); ++i) put(detached[i], stats.detached[i]);
}

void put(wire::CandidateResult::Builder out, const CandidateResult& in) {
  out.setLease(in.lease);
  out.setEpoch(in.epoch);
  out.setKernelKey(bytes(in.kernel_key));
  out.setIndex(static_cast<uint32_t>(in.index));
  out.setVerdict(static_cast<wire::Verdict>(in.verdict));
  out.setCompiled(in.compiled);
  out.setLog(text(in.log));
  const std::vector<double>& from = in.measurement.samples_us;
  auto samples = out.initSamplesUs(list_size(from.size()));
  for (unsigned i = 0; i < samples.size(); ++i) samples.set(i, from[i]);
  out.setRecipeJson(text(in.recipe_json));
  out.setBinary(bytes(in.binary));
  out.setCompileMs(in.compile_ms);
  out.setVerifyMs(in.verify_ms);
  out.setMeasureMs(in.measure_ms);
}

void put(wire::Envelope::Builder out, const WorkerReport& in) {
  auto report = out.initWorkerReport();
  report.setWorker(text(in.worker));
  put(report.initTarget(), in.target);
  report.setToolkit(text(in.toolkit));
  report.setSlots(static_cast<uint32_t>(in.slots));
  auto leases = report.initLeases(list_size(in.leases.size()));
  for (unsigned i = 0; i < leases.size(); ++i) {
    leases[i].setLease(in.leases[i].lease);
    leases[i].setEpoch(in.leases[i].epoch);
    leases[i].setDone(static_cast<uint32_t>(in.leases[i].done));
  }
  auto results = report.initResults(list_size(in.results.size()));
  for (unsigned i = 0; i < results.size(); ++i) put(results[i], in.results[i]);
  report.setDraining(in.draining);
  report.setSentinelUs(in.sentinel_us);
  report.setDeviceErrors(static_cast<uint32_t>(in.device_errors));
  report.setCompiled(static_cast<uint64_t>(in.compiled));
}

void put(wire::Job::Builder out, const Job& in) {
  out.setLease(in.lease);
  out.setEpoch(in.epoch);
  out.setKind(static_cast<wire::JobKind>(in.kind));
  out.setKernelKey(bytes(in.kernel_key));
  put(out.initTarget(), in.target);
  out.setFamily(static_cast<wire::Family>(in.family));
  out.setWorkloadText(text(in.workload_text));
  put(out.initPolicy(), in.policy);
  out.setSeed(in.seed);
  out.setIncumbentUs(in.incumbent_us);
  auto candidates = out.initCandidates(list_size(in.candidates.size()));
  for (unsigned i = 0; i < candidates.size(); ++i) {
    const CandidateJob& from = in.candidates[i];
    candidates[i].setIndex(static_cast<uint32_t>(from.index));
    put(candidates[i].initSchedule(), from.schedule);
    candidates[i].setRecipeJson(text(from.recipe_json));
    candidates[i].setBinary(bytes(from.binary));
    candidates[i].setSignature(bytes(from.signature));
  }
}

void put(wire::Envelope::Builder out, const WorkerOrders& in) {
  auto orders = out.initWorkerOrders();
  auto jobs = orders.initJobs(list_size(in.jobs.size()));
  for (unsigned i = 0; i < jobs.size(); ++i) put(jobs[i], in.jobs[i]);
  auto leases = orders.initLeases(list_size(in.leases.size()));
  for (unsigned i = 0; i < leases.size(); ++i) leases.set(i, in.leases[i]);
  auto acks = orders.initAcks(list_size(in.acks.size()));
  for (unsigned i = 0; i < acks.size(); ++i) {
    acks[i].setLease(in.acks[i].lease);
    acks[i].setIndex(static_cast<uint32_t>(in.acks[i].index));
  }
  orders.setDrain(in.drain);
}

void put(wire::Envelope::Builder out, const AdminRequest& in) {
  auto request = out.initAdminRequest();
  request.setRequest(in.request);
  request.setKind(static_cast<wire::AdminKind>(in.kind));
  request.setWorker(text(in.worker));
  if (in.key) request.setKey(bytes(*in.key));
  request.setAmount(static_cast<uint64_t>(in.amount));
}

void put(wire::Envelope::Builder out, const AdminReply& in) {
  auto reply = out.initAdminReply();
  reply.setRequest(in.request);
  if (in.outcome) {
    reply.setJson(text(*in.outcome));
  } else {
    put(reply.initError(), in.outcome.error());
  }
}

void put(wire::Envelope::Builder out, const BlobCredit& in) {
  auto credit = out.initBlobCredit();
  credit.setRequest(in.request);
  credit.setBytes(static_cast<uint64_t>(in.bytes));
}

void put(wire::Envelope::Builder out, const MessagePart& in) {
  auto part = out.initPart();
  part.setBytes(bytes(in.bytes));
  part.setLast(in.last);
}

}  // namespace

// The builder's first words lie in a buffer that is used again and again: no allocation, no fresh
// pages, for any message but the largest. The builder leaves it zeroed, as it must be given.
std::string encode(const Message& message) {
  thread_local std::vector<uint64_t> scratch(kScratchWords);
  std::string frame;
  capnp::MallocMessageBuilder builder(
      {reinterpret_cast<capnp::word*>(scratch.data()), scratch.size()});
  auto envelope = builder.initRoot<wire::Envelope>();
  std::visit([&](const auto& alternative) { put(envelope, alternative); }, message);
  frame.reserve(capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word));
  FrameOutput output(frame);
  capnp::writeMessage(output, builder);
  return frame;
}

}  // namespace kiln
