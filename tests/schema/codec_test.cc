#include "schema/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/schema/sample_messages.h"

namespace kiln {

// Field-by-field equality, for the tests only: the messages themselves are never compared.
bool operator==(const Error& a, const Error& b) {
  return a.code == b.code && a.message == b.message && a.retry_after_ms == b.retry_after_ms;
}
bool operator==(const MeasurementPolicy& a, const MeasurementPolicy& b) {
  return a.screen_runs == b.screen_runs && a.screen_drop == b.screen_drop &&
         a.race_runs == b.race_runs && a.race_drop == b.race_drop && a.finalists == b.finalists &&
         a.final_runs == b.final_runs && a.tie == b.tie &&
         a.launch_timeout_ms == b.launch_timeout_ms;
}
bool operator==(const Hello& a, const Hello& b) {
  return a.protocol == b.protocol && a.role == b.role && a.software == b.software &&
         a.token == b.token && a.templates == b.templates;
}
bool operator==(const Welcome& a, const Welcome& b) {
  return a.protocol == b.protocol && a.software == b.software &&
         a.template_stamp == b.template_stamp && a.session == b.session &&
         a.signing_key == b.signing_key && a.revocations == b.revocations &&
         a.endorsement == b.endorsement && a.follower == b.follower;
}
bool operator==(const Refusal& a, const Refusal& b) {
  return a.error == b.error;
}
bool operator==(const CompileRequest& a, const CompileRequest& b) {
  return a.request == b.request && a.graph == b.graph && a.target == b.target && a.mode == b.mode &&
         a.check_only == b.check_only && a.graph_text == b.graph_text && a.priority == b.priority &&
         a.detach == b.detach && a.strict == b.strict && a.early == b.early &&
         a.traceparent == b.traceparent;
}
bool operator==(const NeedGraph& a, const NeedGraph& b) {
  return a.request == b.request;
}
bool operator==(const Progress& a, const Progress& b) {
  return a.request == b.request && a.kernels == b.kernels && a.kernels_done == b.kernels_done &&
         a.candidates == b.candidates && a.candidates_done == b.candidates_done &&
         a.elapsed_s == b.elapsed_s && a.waiting == b.waiting;
}
bool operator==(const CompileReply& a, const CompileReply& b) {
  return a.request == b.request && a.outcome == b.outcome && a.program_json == b.program_json &&
         a.signature == b.signature && a.memory_only == b.memory_only &&
         a.revocations == b.revocations;
}
bool operator==(const BlobRequest& a, const BlobRequest& b) {
  return a.request == b.request && a.digests == b.digests && a.credit == b.credit &&
         a.links_ok == b.links_ok;
}
bool operator==(const BlobLink& a, const BlobLink& b) {
  return a.digest == b.digest && a.url == b.url;
}
bool operator==(const BlobChunk& a, const BlobChunk& b) {
  return a.digest == b.digest && a.offset == b.offset && a.total == b.total && a.bytes == b.bytes;
}
bool operator==(const BlobCredit& a, const BlobCredit& b) {
  return a.request == b.request && a.bytes == b.bytes;
}
bool operator==(const MessagePart& a, const MessagePart& b) {
  return a.bytes == b.bytes && a.last == b.last;
}
bool operator==(const BlobReply& a, const BlobReply& b) {
  return a.request == b.request && a.chunks == b.chunks && a.missing == b.missing &&
         a.last == b.last && a.links == b.links;
}
bool operator==(const Cancel& a, const Cancel& b) {
  return a.request == b.request;
}
bool operator==(const StatsRequest& a, const StatsRequest& b) {
  return a.request == b.request;
}
bool operator==(const WorkerStats& a, const WorkerStats& b) {
  return a.name == b.name && a.target == b.target && a.toolkit == b.toolkit &&
         a.leases == b.leases && a.compiled == b.compiled && a.measured == b.measured &&
         a.idle_s == b.idle_s && a.state == b.state && a.reason == b.reason &&
         a.sentinel_us == b.sentinel_us && a.sandbox == b.sandbox && a.waiting == b.waiting &&
         a.trust == b.trust && a.role == b.role && a.builds_for == b.builds_for &&
         a.built == b.built;
}
bool operator==(const DetachedStats& a, const DetachedStats& b) {
  return a.program == b.program && a.graph == b.graph && a.target == b.target && a.mode == b.mode &&
         a.state == b.state && a.reason == b.reason && a.lost == b.lost;
}
bool operator==(const RefusedStats& a, const RefusedStats& b) {
  return a.user == b.user && a.count == b.count;
}
bool operator==(const ArtifactStats& a, const ArtifactStats& b) {
  return a.kind == b.kind && a.entries == b.entries && a.bytes == b.bytes && a.hits == b.hits &&
         a.misses == b.misses && a.joined == b.joined && a.stored == b.stored &&
         a.evicted == b.evicted && a.damaged == b.damaged;
}
bool operator==(const Stats& a, const Stats& b) {
  return a.hits == b.hits && a.misses == b.misses && a.joined == b.joined &&
         a.candidates_compiled == b.candidates_compiled &&
         a.candidates_measured == b.candidates_measured && a.flights_open == b.flights_open &&
         a.retries == b.retries && a.entries == b.entries && a.bytes == b.bytes &&
         a.corrupt_blobs == b.corrupt_blobs && a.malformed_messages == b.malformed_messages &&
         a.store_failures == b.store_failures && a.uptime_s == b.uptime_s &&
         a.workers == b.workers && a.requests_open == b.requests_open &&
         a.candidates_queued == b.candidates_queued && a.overloaded == b.overloaded &&
         a.hedged == b.hedged && a.set_aside == b.set_aside && a.evicted == b.evicted &&
         a.connections == b.connections && a.detached_queued == b.detached_queued &&
         a.detached_running == b.detached_running && a.detached_failed == b.detached_failed &&
         a.detached == b.detached && a.refused == b.refused && a.artifacts == b.artifacts &&
         a.spooled == b.spooled && a.spooled_bytes == b.spooled_bytes &&
         a.blob_links == b.blob_links;
}
bool operator==(const StatsReply& a, const StatsReply& b) {
  return a.request == b.request && a.stats == b.stats;
}
bool operator==(const CandidateJob& a, const CandidateJob& b) {
  return a.index == b.index && a.schedule == b.schedule && a.recipe_json == b.recipe_json &&
         a.binary == b.binary && a.signature == b.signature && a.local_bytes == b.local_bytes;
}
bool operator==(const Job& a, const Job& b) {
  return a.lease == b.lease && a.epoch == b.epoch && a.kind == b.kind &&
         a.kernel_key == b.kernel_key && a.target == b.target && a.family == b.family &&
         a.workload_text == b.workload_text && a.policy == b.policy && a.seed == b.seed &&
         a.incumbent_us == b.incumbent_us && a.candidates == b.candidates &&
         a.traceparent == b.traceparent;
}
bool operator==(const CandidateResult& a, const CandidateResult& b) {
  return a.lease == b.lease && a.epoch == b.epoch && a.kernel_key == b.kernel_key &&
         a.index == b.index && a.verdict == b.verdict && a.compiled == b.compiled &&
         a.log == b.log && a.measurement.samples_us == b.measurement.samples_us &&
         a.recipe_json == b.recipe_json && a.binary == b.binary && a.compile_ms == b.compile_ms &&
         a.verify_ms == b.verify_ms && a.measure_ms == b.measure_ms &&
         a.local_bytes == b.local_bytes;
}
bool operator==(const LeaseState& a, const LeaseState& b) {
  return a.lease == b.lease && a.epoch == b.epoch && a.done == b.done;
}
bool operator==(const WorkerReport& a, const WorkerReport& b) {
  return a.worker == b.worker && a.target == b.target && a.toolkit == b.toolkit &&
         a.slots == b.slots && a.leases == b.leases && a.results == b.results &&
         a.draining == b.draining && a.sentinel_us == b.sentinel_us &&
         a.device_errors == b.device_errors && a.compiled == b.compiled && a.sandbox == b.sandbox &&
         a.waiting == b.waiting && a.builds_for == b.builds_for;
}
bool operator==(const ResultAck& a, const ResultAck& b) {
  return a.lease == b.lease && a.index == b.index;
}
bool operator==(const WorkerOrders& a, const WorkerOrders& b) {
  return a.jobs == b.jobs && a.leases == b.leases && a.acks == b.acks && a.drain == b.drain;
}
bool operator==(const AdminRequest& a, const AdminRequest& b) {
  return a.request == b.request && a.kind == b.kind && a.worker == b.worker && a.key == b.key &&
         a.amount == b.amount && a.kernel == b.kernel && a.since_ms == b.since_ms &&
         a.dry_run == b.dry_run;
}
bool operator==(const RevocationsRequest& a, const RevocationsRequest& b) {
  return a.request == b.request;
}
bool operator==(const RevocationsReply& a, const RevocationsReply& b) {
  return a.request == b.request && a.list == b.list && a.signature == b.signature;
}
bool operator==(const ArtifactGet& a, const ArtifactGet& b) {
  return a.request == b.request && a.kind == b.kind && a.key == b.key && a.wait_ms == b.wait_ms &&
         a.lease_ms == b.lease_ms;
}
bool operator==(const ArtifactReply& a, const ArtifactReply& b) {
  return a.request == b.request && a.outcome == b.outcome && a.signature == b.signature &&
         a.lease == b.lease && a.leased == b.leased;
}
bool operator==(const ArtifactPut& a, const ArtifactPut& b) {
  return a.request == b.request && a.kind == b.kind && a.key == b.key && a.value == b.value;
}
bool operator==(const ArtifactRelease& a, const ArtifactRelease& b) {
  return a.lease == b.lease;
}
bool operator==(const AdminReply& a, const AdminReply& b) {
  return a.request == b.request && a.outcome == b.outcome;
}

namespace {

void expect_refused(const Message& message) {
  const auto decoded = decode(encode(message));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, Code::kInvalidArgument);
}

TEST(Codec, EveryMessageRoundTripsWithAllItsFields) {
  std::vector<bool> seen(std::variant_size_v<Message>, false);
  for (const Message& message : sample_messages()) {
    seen[message.index()] = true;
    const auto decoded = decode(encode(message));
    ASSERT_TRUE(decoded.has_value()) << message.index() << ": " << decoded.error().message;
    EXPECT_TRUE(*decoded == message) << message.index();
  }
  for (size_t kind = 0; kind < seen.size(); ++kind) EXPECT_TRUE(seen[kind]) << kind;
}

TEST(Codec, DefaultMessagesRoundTrip) {
  for (const Message& message :
       {Message(CompileRequest{}), Message(CompileReply{}), Message(BlobReply{}),
        Message(WorkerReport{}), Message(WorkerOrders{}), Message(StatsReply{})}) {
    const auto decoded = decode(encode(message));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    EXPECT_TRUE(*decoded == message);
  }
}

TEST(Codec, EveryErrorCodeAndOutcomeRoundTrips) {
  for (int code = 1; code <= static_cast<int>(Code::kInternal); ++code) {
    const Message message = Refusal{{static_cast<Code>(code), "why", 0}};
    EXPECT_TRUE(decode(encode(message)) == message);
  }
  for (int outcome = 1; outcome <= static_cast<int>(CacheOutcome::kLocal); ++outcome) {
    const Message message = CompileReply{1, static_cast<CacheOutcome>(outcome), "{}"};
    EXPECT_TRUE(decode(encode(message)) == message);
  }
}

TEST(Codec, JobsOfEveryFamilyArrive) {
  for (int family = 1; family <= static_cast<int>(Family::kRowUpdate); ++family) {
    Job job = sample_job();
    job.family = static_cast<Family>(family);
    const Message message = WorkerOrders{{job}, {}, {}};
    EXPECT_TRUE(decode(encode(message)) == message) << to_string(job.family);
  }
}

TEST(Codec, RefusesEnumsOutOfRange) {
  expect_refused(Hello{1, static_cast<Role>(0), ""});
  expect_refused(Hello{1, static_cast<Role>(3), ""});
  expect_refused(Refusal{{static_cast<Code>(10), "", 0}});
  expect_refused(CompileReply{1, static_cast<CacheOutcome>(9), ""});
  CompileRequest request;
  request.mode = static_cast<Mode>(200);
  expect_refused(request);
  request.mode = Mode::kDefault;
  request.target.backend = static_cast<Backend>(0);
  expect_refused(request);
  WorkerReport report = sample_report();
  report.results[0].verdict = static_cast<Verdict>(8);
  expect_refused(report);
  Job job = sample_job();
  job.kind = static_cast<Job::Kind>(5);
  expect_refused(WorkerOrders{{job}, {}, {}});
  job = sample_job();
  job.family = static_cast<Family>(77);
  expect_refused(WorkerOrders{{job}, {}, {}});
}

TEST(Codec, RefusesNegativeCountsAndAmounts) {
  Progress progress;
  progress.kernels_done = -1;
  expect_refused(progress);
  StatsReply stats;
  stats.stats.hits = -1;
  expect_refused(stats);
  WorkerReport report = sample_report();
  report.slots = -1;
  expect_refused(report);
  report = sample_report();
  report.results[0].index = std::numeric_limits<int>::min();
  expect_refused(report);
  expect_refused(Refusal{{Code::kOverloaded, "", -5}});
  CompileRequest request;
  request.target.units = -1;
  expect_refused(request);
}

TEST(Codec, RefusesQuantitiesThatAreNotFiniteOrNegative) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.5}) {
    WorkerReport report = sample_report();
    report.results[0].measurement.samples_us[1] = bad;
    expect_refused(report);
    Progress progress;
    progress.elapsed_s = bad;
    expect_refused(progress);
    Job job = sample_job();
    job.policy.tie = bad;
    expect_refused(WorkerOrders{{job}, {}, {}});
  }
}

TEST(Codec, RefusesTooManyBlobDigestsInOneRequest) {
  const BlobRequest most{1, std::vector<Digest>(4096)};
  EXPECT_TRUE(decode(encode(most)).has_value());
  expect_refused(BlobRequest{1, std::vector<Digest>(4097)});
}

TEST(Codec, RefusesNamesThatAreTooLong) {
  const std::string longest(kMaxLabelBytes, 'n'), longer(kMaxLabelBytes + 1, 'n');
  const auto decodes = [](auto message, auto set) {
    set(message);
    return decode(encode(message)).has_value();
  };
  for (const std::string& name : {longest, longer}) {
    const bool fits = name == longest;
    EXPECT_EQ(decodes(Hello{}, [&](Hello& hello) { hello.software = name; }), fits);
    const WorkerReport report = sample_report();
    EXPECT_EQ(decodes(report, [&](WorkerReport& r) { r.worker = name; }), fits);
    EXPECT_EQ(decodes(report, [&](WorkerReport& r) { r.toolkit = name; }), fits);
    EXPECT_EQ(decodes(report, [&](WorkerReport& r) { r.target.isa = name; }), fits);
    EXPECT_EQ(decodes(report, [&](WorkerReport& r) { r.target.device_model = name; }), fits);
    EXPECT_EQ(decodes(report, [&](WorkerReport& r) { r.target.toolkit = name; }), fits);
    const AdminRequest drain{1, AdminRequest::Kind::kPin, "", std::nullopt, 0};
    EXPECT_EQ(decodes(drain, [&](AdminRequest& r) { r.worker = name; }), fits);
  }
}

TEST(Codec, TextHasNoControlCharactersThatATerminalWouldObey) {
  WorkerReport report = sample_report();
  report.worker =
      "a\x1b[31m\x7f\xC2\x9B"
      "2J\rb";
  report.waiting = "one\n\ttwo \xC3\xBC \xC2\xB5\x07";
  const auto decoded = decode(encode(report));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(std::get<WorkerReport>(*decoded).worker, "a?[31m???2J?b");
  EXPECT_EQ(std::get<WorkerReport>(*decoded).waiting, "one\n\ttwo \xC3\xBC \xC2\xB5?");
  const Refusal refusal{{Code::kUnavailable, "it said \x1b]0;x\x07"}};
  EXPECT_EQ(std::get<Refusal>(decode(encode(refusal)).value()).error.message, "it said ?]0;x?");
}

TEST(Codec, RefusesMoreListItemsThanAFrameMayHold) {
  expect_refused(WorkerOrders{{}, std::vector<uint64_t>(200'000), {}});
}

TEST(Codec, RefusesFramesThatAreEmptyGarbageOrTruncated) {
  EXPECT_FALSE(decode("").has_value());
  EXPECT_FALSE(decode("hello").has_value());
  EXPECT_FALSE(decode(std::string(64, '\0')).has_value());
  EXPECT_FALSE(decode(std::string(64, '\xff')).has_value());
  for (const Message& message : sample_messages()) {
    const std::string frame = encode(message);
    for (size_t size = 0; size < frame.size(); size += size < 256 ? 1 : 61) {
      EXPECT_FALSE(decode(std::string_view(frame).substr(0, size)).has_value());
    }
    EXPECT_FALSE(decode(frame + std::string(8, '\0')).has_value());
  }
}

TEST(Codec, RefusesChunksBeyondTheirBlob) {
  const Digest a = sample_digest("a");
  expect_refused(BlobReply{1, {{a, 0, 2, "abc"}}, {}, true});
  expect_refused(BlobReply{1, {{a, 3, 2, ""}}, {}, true});
  expect_refused(BlobReply{1, {{a, INT64_MAX, 2, "abc"}}, {}, true});
  expect_refused(BlobReply{1, {{a, 0, kMaxBlobBytes + 1, "abc"}}, {}, true});
  expect_refused(BlobReply{1, {{a, -1, 2, "a"}}, {}, true});
}

TEST(Codec, RefusesFramesAboveTheLimit) {
  expect_refused(MessagePart{std::string(kMaxMessageBytes, 'x'), true});
  EXPECT_FALSE(decode(std::string(kMaxMessageBytes + 8, '\0')).has_value());
}

TEST(Codec, CarriesBlobsUpToTheirLimit) {
  const BlobReply reply{
      1, {{sample_digest("a"), 0, kMaxBlobBytes, std::string(kMaxBlobBytes, 'x')}}, {}, true};
  const auto decoded = decode(encode(reply));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  EXPECT_TRUE(std::get<BlobReply>(*decoded) == reply);
}

TEST(Codec, ReadsFramesAtAnyAlignment) {
  const Message message = sample_report();
  const std::string frame = encode(message);
  for (size_t offset = 0; offset < 8; ++offset) {
    const std::string shifted = std::string(offset, '#') + frame;
    EXPECT_TRUE(decode(std::string_view(shifted).substr(offset)) == message) << offset;
  }
}

// A list of structs of no size costs no bytes on the wire, whatever number of them it claims.
TEST(Codec, RefusesAListOfCountlessEmptyStructs) {
  int bombs = 0;
  for (const Message& message : sample_messages()) {
    const std::string frame = encode(message);
    for (size_t at = 8; at + 8 <= frame.size(); at += 8) {
      uint64_t pointer = 0;  // to a composite list: kind 1, element size 7
      std::memcpy(&pointer, frame.data() + at, sizeof pointer);
      if ((pointer & 3) != 1 || (pointer >> 32 & 7) != 7) continue;
      const int64_t tag_at =
          static_cast<int64_t>(at) + 8 + (static_cast<int32_t>(pointer) >> 2) * 8;
      if (tag_at < 8 || tag_at + 8 > static_cast<int64_t>(frame.size())) continue;
      std::string bomb = frame;
      const uint64_t no_words = pointer & 0x7ffffffff;
      const uint64_t tag = uint64_t{500'000'000} << 2;
      std::memcpy(bomb.data() + at, &no_words, sizeof no_words);
      std::memcpy(bomb.data() + tag_at, &tag, sizeof tag);
      EXPECT_FALSE(decode(bomb).has_value());
      ++bombs;
    }
  }
  EXPECT_GT(bombs, 5);
}

TEST(Codec, SurvivesEverySingleBitFlip) {
  int accepted = 0, refused = 0;
  for (const Message& message : sample_messages()) {
    const std::string frame = encode(message);
    const size_t bits = std::min<size_t>(frame.size(), 600) * 8;
    for (size_t bit = 0; bit < bits; ++bit) {
      std::string flipped = frame;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      const auto decoded = decode(flipped);
      decoded ? ++accepted : ++refused;
      if (decoded) {
        EXPECT_TRUE(decode(encode(*decoded)) == *decoded);
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Codec, SurvivesThousandsOfSeededMutations) {
  std::mt19937_64 random(20240607);
  const std::vector<Message> messages = sample_messages();
  std::vector<std::string> frames;
  for (const Message& message : messages) frames.push_back(encode(message));
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string frame = frames[random() % frames.size()];
    for (uint64_t edits = 1 + random() % 6; edits > 0; --edits) {
      const size_t at = random() % frame.size();
      switch (random() % 4) {
        case 0:
          frame[at] = static_cast<char>(random());
          break;
        case 1: {  // an interesting word: pointers and counts live in whole words
          const uint64_t words[] = {0, ~uint64_t{0}, 1, uint64_t{1} << 31, random()};
          const uint64_t word = words[random() % 5];
          std::memcpy(frame.data() + at / 8 * 8, &word, sizeof word);
          break;
        }
        case 2: {  // a piece of another message
          const std::string& other = frames[random() % frames.size()];
          const size_t size = std::min({other.size(), frame.size() - at / 8 * 8, size_t{16}});
          std::memcpy(frame.data() + at / 8 * 8, other.data(), size);
          break;
        }
        default:
          frame.resize(std::max<size_t>(8, random() % (frame.size() + 16) / 8 * 8));
          break;
      }
    }
    if (const auto decoded = decode(frame)) {
      ++accepted;
      EXPECT_TRUE(decode(encode(*decoded)) == *decoded);
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace kiln
