#include "coordinator/status/status_pages.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "compiler_core/base/file.h"
#include "tests/support/metric_types.h"

namespace kiln {
namespace {

// A status in which every number is another one.
StatusSnapshot busy() {
  StatusSnapshot status;
  Stats& s = status.stats;
  int64_t next = 100;
  for (int64_t* field : {&s.hits,
                         &s.misses,
                         &s.joined,
                         &s.candidates_compiled,
                         &s.candidates_measured,
                         &s.flights_open,
                         &s.retries,
                         &s.entries,
                         &s.bytes,
                         &s.corrupt_blobs,
                         &s.malformed_messages,
                         &s.store_failures,
                         &s.requests_open,
                         &s.candidates_queued,
                         &s.overloaded,
                         &s.hedged,
                         &s.set_aside,
                         &s.evicted,
                         &s.connections,
                         &status.graph_bytes_waiting,
                         &s.detached_queued,
                         &s.detached_running,
                         &s.detached_failed,
                         &status.read_failures,
                         &status.detached_damaged,
                         &s.spooled,
                         &s.spooled_bytes,
                         &s.blob_links})
    *field = ++next;
  s.workers.resize(3);
  s.workers[0].leases = 2;
  s.workers[1].state = "quarantined";
  s.workers[2].leases = 5;
  status.tasks.outcomes["tuned"] = 4;
  status.store_away = "PostgreSQL does not answer";
  return status;
}

TEST(Metrics, SayWhatTheSnapshotSays) {
  const std::string text = metrics_text(busy(), {1.5, 2e6, 12, 1024, 1e9}, 7);
  for (const char* line : {"kiln_lookup_hits_total 101",
                           "kiln_lookup_misses_total 102",
                           "kiln_requests_joined_total 103",
                           "kiln_candidates_compiled_total 104",
                           "kiln_candidates_measured_total 105",
                           "kiln_flights_open 106",
                           "kiln_candidates_retried_total 107",
                           "kiln_cache_entries 108",
                           "kiln_cache_bytes 109",
                           "kiln_cache_corrupt_blobs_total 110",
                           "kiln_malformed_messages_total 111",
                           "kiln_store_failures_total 112",
                           "kiln_requests_open 113",
                           "kiln_candidates_queued 114",
                           "kiln_requests_overloaded_total 115",
                           "kiln_batches_hedged_total 116",
                           "kiln_candidates_set_aside_total 117",
                           "kiln_cache_evictions_total 118",
                           "kiln_connections 119",
                           "kiln_graph_waiting_bytes 120",
                           "kiln_detached_programs{state=\"queued\"} 121",
                           "kiln_detached_programs{state=\"running\"} 122",
                           "kiln_detached_programs{state=\"failed\"} 123",
                           "kiln_store_read_failures_total 124",
                           "kiln_store_away 1",
                           "kiln_detached_damaged_total 125",
                           "kiln_spooled 126",
                           "kiln_spooled_bytes 127",
                           "kiln_blob_links_total 128",
                           "kiln_workers{state=\"serving\"} 2",
                           "kiln_workers{state=\"draining\"} 0",
                           "kiln_workers{state=\"quarantined\"} 1",
                           "kiln_leases_open 7",
                           "kiln_flights_total{outcome=\"tuned\"} 4",
                           "kiln_log_lines_dropped_total 7",
                           "process_resident_memory_bytes 2000000",
                           "process_open_fds 12"})
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << "\n"
                                                                             << text;
}

// https://prometheus.io/docs/practices/naming/
TEST(Metrics, NamesFollowTheConventions) {
  for (const auto& [name, type] : testing::types_in(metrics_text(busy(), {}, 0))) {
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    if (type == "histogram") {
      EXPECT_TRUE(name.ends_with("_seconds")) << name;
    }
    EXPECT_TRUE(name.starts_with("kiln_") || name.starts_with("process_")) << name;
  }
}

// docs/operations.md lists each family in a row "| `name` | type | ...", a worker's in a section of
// their own.
TEST(Metrics, AreTheOnesInTheManual) {
  const auto manual = read_file(Path(KILN_SOURCE_DIR) / "docs/operations.md");
  ASSERT_TRUE(manual.has_value());
  std::map<std::string, std::string> documented;
  static const std::regex kRow(R"(\| `([a-z0-9_]+)(\{[a-z]+\})?` \| (counter|gauge|histogram) \|)");
  const std::string ours = manual->substr(0, manual->find("\n## Metrics of a worker\n"));
  for (auto at = std::sregex_iterator(ours.begin(), ours.end(), kRow); at != std::sregex_iterator();
       ++at)
    documented[(*at)[1]] = (*at)[3];
  EXPECT_EQ(documented, testing::types_in(metrics_text(busy(), {}, 0)));
}

}  // namespace
}  // namespace kiln
