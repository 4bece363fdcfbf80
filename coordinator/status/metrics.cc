#include "coordinator/status/status_pages.h"

#include <algorithm>

#include "schema/metrics/metrics_text.h"

namespace kiln {
namespace {

void requests(MetricsText& out, const StatusSnapshot& status) {
  const Stats& s = status.stats;
  out.counter("kiln_lookup_hits_total", "Look-ups answered from the cache.", s.hits);
  out.counter("kiln_lookup_misses_total", "Look-ups of programs that the cache did not have.",
              s.misses);
  out.counter("kiln_requests_joined_total",
              "Requests that joined work which another request had begun.", s.joined);
  out.counter("kiln_requests_overloaded_total", "Requests refused: too much was waiting.",
              s.overloaded);
  out.family("kiln_refusals_total", "counter",
             "Requests and messages refused, by reason; kiln stats has them by user.");
  for (const auto& [reason, count] : status.refusals)
    out.sample(static_cast<double>(count), {{"reason", reason}});
  out.gauge("kiln_requests_open", "Requests that wait for an answer.",
            static_cast<double>(s.requests_open));
  out.gauge("kiln_connections", "Peers that said hello: clients and workers.",
            static_cast<double>(s.connections));
  out.counter("kiln_malformed_messages_total",
              "Messages that did not decode and handshakes that failed; each cost its sender the "
              "connection.",
              s.malformed_messages);
  out.family("kiln_lookup_duration_seconds", "histogram",
             "Time the coordinator takes over a look-up: in memory, from its receipt to its "
             "answer; in the index, the read.");
  out.histogram(status.loop.from_memory, {{"source", "memory"}});
  out.histogram(status.loop.from_index, {{"source", "index"}});
}

void tasks(MetricsText& out, const StatusSnapshot& status) {
  out.gauge("kiln_flights_open", "Programs being looked up, planned, tuned or stored.",
            static_cast<double>(status.stats.flights_open));
  out.family("kiln_flights_total", "counter", "Programs worked on, by how it ended.");
  for (const auto& [outcome, count] : status.tasks.outcomes) {
    out.sample(static_cast<double>(count), {{"outcome", outcome}});
  }
  out.family("kiln_flight_duration_seconds", "histogram",
             "From a program's first request to its last answer, look-ups alone left out.");
  out.histogram(status.tasks.total);
  out.family("kiln_flight_stage_duration_seconds", "histogram",
             "The same time, by what the program waited for.");
  for (size_t i = 0; i < kTaskStages; ++i) {
    out.histogram(status.tasks.stages[i], {{"stage", to_string(static_cast<TaskStage>(i))}});
  }
  out.family("kiln_detached_programs", "gauge",
             "Programs tuned without a client (kiln warm --detach), by state.");
  out.sample(static_cast<double>(status.stats.detached_queued), {{"state", "queued"}});
  out.sample(static_cast<double>(status.stats.detached_running), {{"state", "running"}});
  out.sample(static_cast<double>(status.stats.detached_failed), {{"state", "failed"}});
  out.counter("kiln_detached_damaged_total",
              "Queued programs whose rows in flights.sqlite could not be read: they are lost.",
              status.detached_damaged);
  out.gauge("kiln_graph_waiting_bytes", "Graphs that wait for a planner.",
            static_cast<double>(status.graph_bytes_waiting));
}

void tuning(MetricsText& out, const Stats& s) {
  out.gauge("kiln_candidates_queued", "Candidates that wait for a worker.",
            static_cast<double>(s.candidates_queued));
  out.counter("kiln_candidates_compiled_total", "Candidates that a compiler ran for.",
              s.candidates_compiled);
  out.counter("kiln_candidates_measured_total", "Candidates that were timed.",
              s.candidates_measured);
  out.counter("kiln_candidates_retried_total",
              "Candidates given out again after a failure that may pass.", s.retries);
  out.counter("kiln_candidates_set_aside_total",
              "Candidates given up after such failures came again and again.", s.set_aside);
  out.counter("kiln_batches_hedged_total",
              "Batches given to a second worker, since the first was "
              "slow.",
              s.hedged);
  const auto by_state = [&](bool builders) {
    for (const std::string_view state : {"serving", "draining", "quarantined"}) {
      const auto there = std::ranges::count_if(s.workers, [&](const WorkerStats& worker) {
        return (worker.role == "build") == builders &&
               (worker.state.empty() ? "serving" : worker.state) == state;
      });
      out.sample(static_cast<double>(there), {{"state", state}});
    }
  };
  out.family("kiln_workers", "gauge", "Workers that measure, by state.");
  by_state(false);
  out.family("kiln_builders", "gauge", "Workers that only build, by state.");
  by_state(true);
  int64_t leases = 0;
  for (const WorkerStats& worker : s.workers) leases += worker.leases;
  out.gauge("kiln_leases_open", "Batches that workers have.", static_cast<double>(leases));
}

void store(MetricsText& out, const StatusSnapshot& status) {
  const Stats& s = status.stats;
  out.gauge("kiln_cache_entries", "Programs and kernels in the cache.",
            static_cast<double>(s.entries));
  out.gauge("kiln_cache_bytes", "Binaries in the cache.", static_cast<double>(s.bytes));
  out.counter("kiln_answers_tier0_total",
              "Answers with the default program, while the one that was asked for is tuned.",
              s.answered_tier0);
  out.counter("kiln_answers_early_total",
              "Programs answered when they were built, to be verified behind the answer.",
              s.answered_early);
  out.counter("kiln_kernels_withdrawn_total",
              "Kernels that were answered so and found wrong: their programs are revoked.",
              s.withdrawn);
  out.gauge("kiln_programs_stale",
            "Programs in the cache that older templates made: served, and to be tuned again.",
            static_cast<double>(s.programs_stale));
  out.gauge("kiln_index_memory_bytes",
            "What SQLite has in memory: pages of the index, prepared statements.",
            static_cast<double>(status.index_memory_bytes));
  out.counter("kiln_cache_evictions_total", "Entries that had to make room.", s.evicted);
  out.counter("kiln_cache_corrupt_blobs_total",
              "Binaries that did not have their digest when read back; each is tuned again.",
              s.corrupt_blobs);
  out.counter("kiln_store_failures_total",
              "Writes that the disk did not take; the answers were given all the same.",
              s.store_failures);
  out.counter("kiln_store_read_failures_total",
              "Look-ups that the index did not answer, since the disk did not give it.",
              status.read_failures);
  out.gauge("kiln_store_away",
            "1 while the store, or the place of its binaries, does not answer: what is in memory "
            "is served.",
            status.store_away.empty() ? 0 : 1);
  out.gauge("kiln_spooled",
            "Programs and kernels on this machine's disk that wait for the store, which was away.",
            static_cast<double>(s.spooled));
  out.gauge("kiln_spooled_bytes", "What they take there, with their binaries.",
            static_cast<double>(s.spooled_bytes));
  out.counter("kiln_blob_links_total", "Binaries answered with a link to the object store.",
              s.blob_links);
}

void artifacts(MetricsText& out, const std::vector<ArtifactStats>& kinds) {
  const auto family = [&](const char* name, const char* type, const char* help,
                          int64_t ArtifactStats::*value) {
    out.family(name, type, help);
    for (const ArtifactStats& kind : kinds)
      out.sample(static_cast<double>(kind.*value), {{"kind", kind.kind}});
  };
  family("kiln_artifacts", "gauge", "Artifacts of other compilers that are kept, by kind.",
         &ArtifactStats::entries);
  family("kiln_artifact_bytes", "gauge", "What they count for.", &ArtifactStats::bytes);
  family("kiln_artifact_hits_total", "counter", "Look-ups of artifacts that were there.",
         &ArtifactStats::hits);
  family("kiln_artifact_misses_total", "counter", "Look-ups of artifacts that were not.",
         &ArtifactStats::misses);
  family("kiln_artifact_joined_total", "counter",
         "Look-ups that waited for whoever was making the artifact.", &ArtifactStats::joined);
  family("kiln_artifacts_stored_total", "counter", "Artifacts that were put.",
         &ArtifactStats::stored);
  family("kiln_artifact_evictions_total", "counter", "Artifacts that had to make room.",
         &ArtifactStats::evicted);
  family("kiln_artifacts_damaged_total", "counter",
         "Artifacts that did not have their signature when read back; each is a miss.",
         &ArtifactStats::damaged);
}

}  // namespace

std::string metrics_text(const StatusSnapshot& status, const ProcessUse& use,
                         int64_t log_lines_dropped) {
  MetricsText out;
  requests(out, status);
  tasks(out, status);
  tuning(out, status.stats);
  store(out, status);
  artifacts(out, status.stats.artifacts);
  out.family("kiln_loop_turn_duration_seconds", "histogram",
             "One turn of the coordinator's loop, without its waiting.");
  out.histogram(status.loop.turn);
  out.counter("kiln_log_lines_dropped_total",
              "Log lines that whoever reads the log was too slow for.", log_lines_dropped);
  trace_families(out, status.spans);
  out.family("kiln_build_info", "gauge", "Always 1; its labels say what runs.");
  out.sample(1, {{"version", "0.1.0"}, {"protocol", std::to_string(kProtocolVersion)}});
  process_families(out, use);
  return out.take();
}

}  // namespace kiln
