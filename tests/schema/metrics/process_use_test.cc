#include "schema/metrics/metrics_text.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(ProcessUse, KnowsThisProcess) {
  const ProcessUse use = process_use();
  EXPECT_GT(use.resident_bytes, 1e6);
  EXPECT_GE(use.open_fds, 3);
  EXPECT_GE(use.max_fds, use.open_fds);
  EXPECT_GT(use.started_s, 1.7e9);
}

TEST(ProcessUse, HasTheNamesThatPrometheusKnows) {
  MetricsText out;
  process_families(out, {1.5, 2e6, 12, 1024, 1e9});
  const std::string text = out.take();
  for (const char* line :
       {"process_cpu_seconds_total 1.5", "process_resident_memory_bytes 2000000",
        "process_open_fds 12", "process_max_fds 1024", "process_start_time_seconds 1000000000"})
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << "\n"
                                                                             << text;
}

}  // namespace
}  // namespace kiln
