// One message of every kind, with every field set to something that is not its default, for the
// tests of the codec and of the transport.
#pragma once

#include <string>
#include <vector>

#include "schema/messages.h"

namespace kiln {

inline Digest sample_digest(std::string_view seed) {
  return Digest::of(seed);
}

inline Target sample_target() {
  return {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
}

inline Schedule sample_schedule() {
  return {"cpu.matmul", {{"tile_m", 128}, {"stage", -1}, {"order", INT64_MIN}}};
}

inline MeasurementPolicy sample_policy() {
  MeasurementPolicy policy;
  policy.screen_runs = 4;
  policy.screen_drop = 2.5;
  policy.race_runs = 21;
  policy.race_drop = 1.25;
  policy.finalists = 5;
  policy.final_runs = 41;
  policy.tie = 0.02;
  policy.launch_timeout_ms = 9'999;
  return policy;
}

inline CandidateResult sample_result() {
  CandidateResult result;
  result.lease = 7;
  result.epoch = 3;
  result.kernel_key = sample_digest("kernel");
  result.index = 17;
  result.verdict = Verdict::kDeviceLost;
  result.compiled = true;
  result.log = "line one\nline two";
  result.measurement.samples_us = {1.5, 2.25, 0.125};
  result.recipe_json = "{\"phases\":[]}";
  result.binary = std::string(
      "\x7f"
      "ELF\0binary",
      11);
  result.compile_ms = 12.5;
  result.verify_ms = 0.5;
  result.measure_ms = 3.75;
  result.local_bytes = 96;
  return result;
}

inline Job sample_job() {
  Job job;
  job.lease = UINT64_MAX;
  job.epoch = 5;
  job.kind = Job::Kind::kFinal;
  job.kernel_key = sample_digest("kernel");
  job.target = sample_target();
  job.family = Family::kColumnReduction;
  job.workload_text = "kiln.graph 1\n";
  job.policy = sample_policy();
  job.seed = 0x123456789abcdef;
  job.incumbent_us = 42.5;
  job.candidates = {
      {3, sample_schedule(), "{}", std::string(1000, '\xff'), std::string(64, '\x5a')},
      {4, {"cpu.pointwise", {}}, "", "", ""}};
  job.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  return job;
}

inline Stats sample_stats() {
  Stats stats;
  stats.hits = 1;
  stats.misses = 2;
  stats.joined = 3;
  stats.candidates_compiled = 4;
  stats.candidates_measured = 5;
  stats.flights_open = 6;
  stats.retries = 7;
  stats.entries = 8;
  stats.bytes = INT64_MAX;
  stats.corrupt_blobs = 9;
  stats.malformed_messages = 10;
  stats.store_failures = 11;
  stats.uptime_s = 12.5;
  stats.workers = {
      {"host:1", sample_target(), "g++ 12.2", 1, 2, 3, 0.25, "quarantined", "drift", 7.5}, {}};
  stats.workers.back().trust = "screens";
  stats.workers.back().role = "build";
  stats.workers.back().builds_for = "cuda:sm_80, cuda:sm_90a";
  stats.workers.back().built = 19;
  stats.requests_open = 13;
  stats.candidates_queued = 14;
  stats.overloaded = 15;
  stats.hedged = 16;
  stats.set_aside = 17;
  stats.evicted = 18;
  stats.connections = 19;
  stats.detached_queued = 20;
  stats.detached_running = 21;
  stats.detached_failed = 22;
  stats.detached = {{Digest::of("program"), Digest::of("graph"), sample_target(),
                     Mode::kMaxAutotune, "failed", "an op", 3}};
  stats.refused = {{"ci", 7}};
  stats.artifacts = {{"inductor.gemm", 1, 2, 3, 4, 5, 6, 7, 8}};
  stats.spooled = 23;
  stats.spooled_bytes = 24;
  stats.blob_links = 25;
  return stats;
}

inline WorkerReport sample_report() {
  WorkerReport report;
  report.worker = "host:1";
  report.target = sample_target();
  report.toolkit = "g++ 12.2";
  report.slots = 3;
  report.leases = {{7, 3, 2}, {8, 3, 0}};
  report.results = {sample_result(), CandidateResult{}};
  report.draining = true;
  report.sentinel_us = 5.25;
  report.device_errors = 2;
  report.compiled = 17;
  report.libraries = {{"cublaslt", "130100"}};
  report.sandbox = "limits; without namespaces (why)";
  report.waiting = "the device's lock";
  report.builds_for = {sample_target(), Target{Backend::kCuda, "sm_80", "", 0, "cuda-13"}};
  return report;
}

inline std::vector<Message> sample_messages() {
  const Digest a = sample_digest("a"), b = sample_digest("b");
  const Error error{Code::kOverloaded, "too many requests", 250};
  CompileReply tuned{11, CacheOutcome::kTuned, "{\"kernels\":[]}", std::string(64, 's')};
  tuned.memory_only = true;
  tuned.revocations = 8;
  CompileReply refused{12, fail(error), "", ""};
  CompileRequest request{13, a, sample_target(), Mode::kMaxAutotune, true, "kiln.graph 1\n"};
  request.priority = Priority::kWarmUp;
  request.detach = request.strict = request.early = true;
  request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  return {
      Hello{2, Role::kWorker, "kiln 9", std::string(16, 'h'), {{"cpu.pointwise", 3}}},
      Welcome{3, "kiln 8", a, std::string(16, 't'), std::string(32, 'k'), 9, "ab 1 cd", true},
      Refusal{error},
      request,
      NeedGraph{14},
      Progress{15, 4, 3, 20, 10, 1.5, "w1 waits"},
      tuned,
      refused,
      BlobRequest{16, {a, b}, 4096, true},
      BlobReply{17,
                {{a, 0, 5, "first"}, {b, 3, 10, std::string("\0second", 7)}, {a, 0, 0, ""}},
                {b},
                false,
                {{b, "https://blobs.internal/b"}},
                "s3://binaries: nobody answers"},
      BlobCredit{26, 65536},
      MessagePart{std::string("a\0part", 6), true},
      Cancel{18},
      StatsRequest{19},
      StatsReply{20, sample_stats()},
      sample_report(),
      WorkerOrders{{sample_job(), Job{}}, {1, UINT64_MAX}, {{7, 17}, {8, 0}}, true},
      AdminRequest{21, AdminRequest::Kind::kPin, "host:1", a, 22},
      AdminRequest{23, AdminRequest::Kind::kCollect, "", std::nullopt, INT64_MAX},
      AdminRequest{25, AdminRequest::Kind::kForgetFailed, "", std::nullopt, 0},
      AdminRequest{26, AdminRequest::Kind::kForget, "w", std::nullopt, 0, b, 12'345, true},
      AdminRequest{27, AdminRequest::Kind::kCancelDetached, "", a, 0},
      AdminRequest{28, AdminRequest::Kind::kTuneLog, "w", a, 500, b, 12'345, false, "cpu.matmul"},
      RevocationsRequest{28},
      RevocationsReply{28, "kiln revocations", std::string(64, 'r')},
      AdminReply{24, std::string("{}")},
      AdminReply{25, fail(error)},
      ArtifactGet{29, "inductor.gemm", "a key", 30, 31},
      ArtifactReply{30, std::string("a\0value", 7), std::string(64, 'a'), 0, false},
      ArtifactReply{31, fail(error), "", 32, true},
      ArtifactPut{33, "inductor.fx_graph", "another", std::string("\0value", 6)},
      ArtifactRelease{34}};
}

}  // namespace kiln
