// Frame -> Message, on bytes from anybody. What bounds the work and memory of one frame:
//  1. its size (kMaxMessageBytes), before anything is copied;
//  2. Cap'n Proto's traversal limit, twice the frame: every getter is read once, so an honest frame
//     is walked once, and pointers that share a target soon run out;
//  3. the nesting limit;
//  4. kMaxItems list elements a frame: a list of zero-sized structs costs no bytes on the wire, but
//     each becomes a C++ object here.
// Received bytes are seldom aligned, so they are copied into words first.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/array.h>
#include <kj/exception.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "schema/codec.h"
#include "schema/kiln.capnp.h"

namespace kiln {
namespace {

constexpr size_t kMaxItems = 1 << 17;
constexpr size_t kMaxBlobDigests = 4096;  // of one BlobRequest
constexpr int kMaxNesting = 32;
constexpr size_t kTokenBytes = 16;
constexpr size_t kSigningKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;

// Thrown by the readers below, beside kj::Exception; both become an Error in decode().
struct Malformed {
  const char* what;
};

int count(uint32_t value) {
  if (value > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
    throw Malformed{"a count is out of range"};
  }
  return static_cast<int>(value);
}

int64_t amount(uint64_t value) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw Malformed{"an amount is out of range"};
  }
  return static_cast<int64_t>(value);
}

double quantity(double value) {
  if (!std::isfinite(value) || value < 0) throw Malformed{"a quantity is not finite or negative"};
  return value;
}

// A wire enum whose numbers are those of the C++ enum, 1 up to `Last`.
template <auto Last, class Wire>
auto enumerator(Wire value) {
  const auto number = static_cast<uint16_t>(value);
  if (number < 1 || number > static_cast<uint16_t>(Last)) {
    throw Malformed{"an enum has an unknown value"};
  }
  return static_cast<decltype(Last)>(number);
}

std::string text(capnp::Text::Reader in) {
  return {in.begin(), in.size()};
}

// What names something, and is kept by that name.
std::string label(capnp::Text::Reader in) {
  if (in.size() > kMaxLabelBytes) throw Malformed{"a name is too long"};
  return text(in);
}

std::string bytes(capnp::Data::Reader in) {
  return {reinterpret_cast<const char*>(in.begin()), in.size()};
}

Digest digest(capnp::Data::Reader in) {
  Digest out;
  if (in.size() != out.bytes.size()) throw Malformed{"a digest does not have 32 bytes"};
  std::memcpy(out.bytes.data(), in.begin(), out.bytes.size());
  return out;
}

// Of that many bytes, or empty where there is none.
std::string sized(capnp::Data::Reader in, size_t size) {
  if (in.size() != 0 && in.size() != size) throw Malformed{"bytes of another length than theirs"};
  return bytes(in);
}

Priority priority(wire::Priority in) {
  const auto number = static_cast<uint16_t>(in);
  if (number > static_cast<uint16_t>(Priority::kWarmUp)) {
    throw Malformed{"an enum has an unknown value"};
  }
  return static_cast<Priority>(number);
}

Error error(wire::Error::Reader in) {
  return {enumerator<Code::kInternal>(in.getCode()), text(in.getMessage()),
          amount(in.getRetryAfterMs())};
}

Target target(wire::Target::Reader in) {
  return {enumerator<Backend::kCuda>(in.getBackend()), label(in.getIsa()),
          label(in.getDeviceModel()), count(in.getUnits()), label(in.getToolkit())};
}

MeasurementPolicy policy(wire::MeasurementPolicy::Reader in) {
  MeasurementPolicy out;
  out.screen_runs = count(in.getScreenRuns());
  out.screen_drop = quantity(in.getScreenDrop());
  out.race_runs = count(in.getRaceRuns());
  out.race_drop = quantity(in.getRaceDrop());
  out.finalists = count(in.getFinalists());
  out.final_runs = count(in.getFinalRuns());
  out.tie = quantity(in.getTie());
  out.launch_timeout_ms = amount(in.getLaunchTimeoutMs());
  return out;
}

Hello hello(wire::Hello::Reader in) {
  return {in.getProtocol(), enumerator<Role::kWorker>(in.getRole()), label(in.getSoftware()),
          sized(in.getToken(), kTokenBytes)};
}

Welcome welcome(wire::Welcome::Reader in) {
  return {in.getProtocol(), text(in.getSoftware()), digest(in.getCodegen()),
          sized(in.getSession(), kTokenBytes), sized(in.getSigningKey(), kSigningKeyBytes)};
}

CompileRequest compile_request(wire::CompileRequest::Reader in) {
  CompileRequest out;
  out.request = in.getRequest();
  out.graph = digest(in.getGraph());
  out.target = target(in.getTarget());
  out.mode = enumerator<Mode::kMaxAutotune>(in.getMode());
  out.check_only = in.getCheckOnly();
  out.graph_text = text(in.getGraphText());
  out.priority = priority(in.getPriority());
  out.detach = in.getDetach();
  return out;
}

Progress progress(wire::Progress::Reader in) {
  Progress out;
  out.request = in.getRequest();
  out.kernels = count(in.getKernels());
  out.kernels_done = count(in.getKernelsDone());
  out.candidates = count(in.getCandidates());
  out.candidates_done = count(in.getCandidatesDone());
  out.elapsed_s = quantity(in.getElapsedS());
  return out;
}

CompileReply compile_reply(wire::CompileReply::Reader in) {
  CompileReply out;
  out.request = in.getRequest();
  switch (in.which()) {
    case wire::CompileReply::ERROR:
      out.outcome = fail(error(in.getError()));
      break;
    case wire::CompileReply::OUTCOME:
      out.outcome = enumerator<CacheOutcome::kQueued>(in.getOutcome());
      break;
    default:
      throw Malformed{"a compile reply of unknown kind"};
  }
  out.program_json = text(in.getProgramJson());
  out.signature = sized(in.getSignature(), kSignatureBytes);
  out.memory_only = in.getMemoryOnly();
  return out;
}

AdminRequest admin_request(wire::AdminRequest::Reader in) {
  AdminRequest out;
  out.request = in.getRequest();
  out.kind = enumerator<AdminRequest::Kind::kForgetFailed>(in.getKind());
  out.worker = label(in.getWorker());
  if (const auto key = in.getKey(); key.size() != 0) out.key = digest(key);
  out.amount = amount(in.getAmount());
  return out;
}

AdminReply admin_reply(wire::AdminReply::Reader in) {
  switch (in.which()) {
    case wire::AdminReply::ERROR:
      return {in.getRequest(), fail(error(in.getError()))};
    case wire::AdminReply::JSON:
      return {in.getRequest(), text(in.getJson())};
  }
  throw Malformed{"an admin reply of unknown kind"};
}

BlobChunk blob_chunk(wire::BlobReply::Chunk::Reader in) {
  BlobChunk out{digest(in.getDigest()), amount(in.getOffset()), amount(in.getTotal()),
                bytes(in.getBytes())};
  if (out.total > static_cast<int64_t>(kMaxBlobBytes) || out.offset > out.total ||
      static_cast<int64_t>(out.bytes.size()) > out.total - out.offset) {
    throw Malformed{"a chunk beyond its blob"};
  }
  return out;
}

// Turns lists into vectors, within the frame's allowance of items.
class ListReader {
 public:
  template <class List, class Read>
  auto read(const List& in, Read read_item, size_t limit = kMaxItems) {
    if (in.size() > limit || in.size() > items_left_) throw Malformed{"a list is too long"};
    items_left_ -= in.size();
    std::vector<decltype(read_item(in[0]))> out;
    out.reserve(in.size());
    for (unsigned i = 0; i < in.size(); ++i) out.push_back(read_item(in[i]));
    return out;
  }

  BlobRequest blob_request(wire::BlobRequest::Reader in) {
    return {in.getRequest(), read(in.getDigests(), digest, kMaxBlobDigests),
            amount(in.getCredit())};
  }

  BlobReply blob_reply(wire::BlobReply::Reader in) {
    return {in.getRequest(), read(in.getChunks(), blob_chunk), read(in.getMissing(), digest),
            in.getLast()};
  }

  StatsReply stats_reply(wire::StatsReply::Reader in) {
    StatsReply out;
    out.request = in.getRequest();
    Stats& stats = out.stats;
    stats.hits = amount(in.getHits());
    stats.misses = amount(in.getMisses());
    stats.joined = amount(in.getJoined());
    stats.candidates_compiled = amount(in.getCandidatesCompiled());
    stats.candidates_measured = amount(in.getCandidatesMeasured());
    stats.flights_open = amount(in.getFlightsOpen());
    stats.retries = amount(in.getRetries());
    stats.entries = amount(in.getEntries());
    stats.bytes = amount(in.getBytes());
    stats.corrupt_blobs = amount(in.getCorruptBlobs());
    stats.malformed_messages = amount(in.getMalformedMessages());
    stats.store_failures = amount(in.getStoreFailures());
    stats.uptime_s = quantity(in.getUptimeS());
    stats.workers = read(in.getWorkers(), [](wire::StatsReply::Worker::Reader worker) {
      return WorkerStats{text(worker.getName()),       target(worker.getTarget()),
                         text(worker.getToolkit()),    count(worker.getLeases()),
                         amount(worker.getCompiled()), amount(worker.getMeasured()),
                         quantity(worker.getIdleS()),  text(worker.getState()),
                         text(worker.getReason()),     quantity(worker.getSentinelUs())};
    });
    stats.requests_open = amount(in.getRequestsOpen());
    stats.candidates_queued = amount(in.getCandidatesQueued());
    stats.overloaded = amount(in.getOverloaded());
    stats.hedged = amount(in.getHedged());
    stats.set_aside = amount(in.getSetAside());
    stats.evicted = amount(in.getEvicted());
    stats.connections = amount(in.getConnections());
    stats.detached_queued = amount(in.getDetachedQueued());
    stats.detached_running = amount(in.getDetachedRunning());
    stats.detached_failed = amount(in.getDetachedFailed());
    stats.detached = read(in.getDetached(), [](wire::StatsReply::Detached::Reader flight) {
      return DetachedStats{
          digest(flight.getProgram()), digest(flight.getGraph()),
          target(flight.getTarget()),  enumerator<Mode::kMaxAutotune>(flight.getMode()),
          text(flight.getState()),     text(flight.getReason())};
    });
    return out;
  }

  WorkerReport worker_report(wire::WorkerReport::Reader in) {
    WorkerReport out;
    out.worker = label(in.getWorker());
    out.target = target(in.getTarget());
    out.toolkit = label(in.getToolkit());
    out.slots = count(in.getSlots());
    out.leases = read(in.getLeases(), [](wire::WorkerReport::Lease::Reader lease) {
      return LeaseState{lease.getLease(), lease.getEpoch(), count(lease.getDone())};
    });
    out.results = read(in.getResults(), [this](wire::CandidateResult::Reader result) {
      return candidate_result(result);
    });
    out.draining = in.getDraining();
    out.sentinel_us = quantity(in.getSentinelUs());
    out.device_errors = count(in.getDeviceErrors());
    out.compiled = amount(in.getCompiled());
    return out;
  }

  WorkerOrders worker_orders(wire::WorkerOrders::Reader in) {
    WorkerOrders out;
    out.jobs = read(in.getJobs(), [this](wire::Job::Reader item) { return job(item); });
    out.leases = read(in.getLeases(), [](uint64_t lease) { return lease; });
    out.acks = read(in.getAcks(), [](wire::WorkerOrders::Ack::Reader ack) {
      return ResultAck{ack.getLease(), count(ack.getIndex())};
    });
    out.drain = in.getDrain();
    return out;
  }

 private:
  Schedule schedule(wire::Schedule::Reader in) {
    return {enumerator<Family::kCustom>(in.getFamily()),
            read(in.getDecisions(), [](wire::Schedule::Decision::Reader decision) {
              return Decision{text(decision.getName()), decision.getValue()};
            })};
  }

  CandidateResult candidate_result(wire::CandidateResult::Reader in) {
    CandidateResult out;
    out.lease = in.getLease();
    out.epoch = in.getEpoch();
    out.kernel_key = digest(in.getKernelKey());
    out.index = count(in.getIndex());
    out.verdict = enumerator<Verdict::kDeviceLost>(in.getVerdict());
    out.compiled = in.getCompiled();
    out.log = text(in.getLog());
    out.measurement.samples_us = read(in.getSamplesUs(), quantity);
    out.recipe_json = text(in.getRecipeJson());
    out.binary = bytes(in.getBinary());
    out.compile_ms = quantity(in.getCompileMs());
    out.verify_ms = quantity(in.getVerifyMs());
    out.measure_ms = quantity(in.getMeasureMs());
    return out;
  }

  Job job(wire::Job::Reader in) {
    Job out;
    out.lease = in.getLease();
    out.epoch = in.getEpoch();
    out.kind = enumerator<Job::Kind::kFinal>(in.getKind());
    out.kernel_key = digest(in.getKernelKey());
    out.target = target(in.getTarget());
    out.family = enumerator<Family::kCustom>(in.getFamily());
    out.workload_text = text(in.getWorkloadText());
    out.policy = policy(in.getPolicy());
    out.seed = in.getSeed();
    out.incumbent_us = quantity(in.getIncumbentUs());
    out.candidates = read(in.getCandidates(), [this](wire::Job::Candidate::Reader candidate) {
      return CandidateJob{count(candidate.getIndex()), schedule(candidate.getSchedule()),
                          text(candidate.getRecipeJson()), bytes(candidate.getBinary()),
                          sized(candidate.getSignature(), kSignatureBytes)};
    });
    return out;
  }

  size_t items_left_ = kMaxItems;
};

Message read_envelope(wire::Envelope::Reader in) {
  ListReader lists;
  switch (in.which()) {
    case wire::Envelope::UNSET:
      break;
    case wire::Envelope::HELLO:
      return hello(in.getHello());
    case wire::Envelope::WELCOME:
      return welcome(in.getWelcome());
    case wire::Envelope::REFUSAL:
      return Refusal{error(in.getRefusal())};
    case wire::Envelope::COMPILE_REQUEST:
      return compile_request(in.getCompileRequest());
    case wire::Envelope::NEED_GRAPH:
      return NeedGraph{in.getNeedGraph()};
    case wire::Envelope::PROGRESS:
      return progress(in.getProgress());
    case wire::Envelope::COMPILE_REPLY:
      return compile_reply(in.getCompileReply());
    case wire::Envelope::BLOB_REQUEST:
      return lists.blob_request(in.getBlobRequest());
    case wire::Envelope::BLOB_REPLY:
      return lists.blob_reply(in.getBlobReply());
    case wire::Envelope::CANCEL:
      return Cancel{in.getCancel()};
    case wire::Envelope::STATS_REQUEST:
      return StatsRequest{in.getStatsRequest()};
    case wire::Envelope::STATS_REPLY:
      return lists.stats_reply(in.getStatsReply());
    case wire::Envelope::WORKER_REPORT:
      return lists.worker_report(in.getWorkerReport());
    case wire::Envelope::WORKER_ORDERS:
      return lists.worker_orders(in.getWorkerOrders());
    case wire::Envelope::ADMIN_REQUEST:
      return admin_request(in.getAdminRequest());
    case wire::Envelope::ADMIN_REPLY:
      return admin_reply(in.getAdminReply());
    case wire::Envelope::BLOB_CREDIT: {
      const auto credit = in.getBlobCredit();
      return BlobCredit{credit.getRequest(), amount(credit.getBytes())};
    }
    case wire::Envelope::PART: {
      const auto part = in.getPart();
      return MessagePart{bytes(part.getBytes()), part.getLast()};
    }
  }
  throw Malformed{"a message of unknown kind"};
}

}  // namespace

Result<Message> decode(std::string_view frame) {
  constexpr size_t kWord = sizeof(capnp::word);
  if (frame.empty() || frame.size() % kWord != 0) {
    return fail(Code::kInvalidArgument, "malformed message: not a whole number of words");
  }
  if (frame.size() > kMaxMessageBytes) {
    return fail(Code::kInvalidArgument, "malformed message: larger than a message may be");
  }
  auto words = kj::heapArray<capnp::word>(frame.size() / kWord);
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords = 2 * words.size();
  limits.nestingLimit = kMaxNesting;
  try {
    capnp::FlatArrayMessageReader reader(words, limits);
    if (reader.getEnd() != words.end()) {
      return fail(Code::kInvalidArgument, "malformed message: bytes after its end");
    }
    return read_envelope(reader.getRoot<wire::Envelope>());
  } catch (const Malformed& malformed) {
    return fail(Code::kInvalidArgument, std::string("malformed message: ") + malformed.what);
  } catch (const kj::Exception& e) {
    return fail(Code::kInvalidArgument,
                std::string("malformed message: ") + e.getDescription().cStr());
  }
}

}  // namespace kiln
