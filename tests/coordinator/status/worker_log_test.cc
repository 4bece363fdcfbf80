#include "coordinator/status/worker_log.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

WorkerStats worker(const std::string& name, const std::string& state,
                   const std::string& reason = "") {
  WorkerStats stats;
  stats.name = name;
  stats.state = state;
  stats.reason = reason;
  return stats;
}

std::vector<std::string> text(const std::vector<LogLine>& lines) {
  std::vector<std::string> text;
  for (const LogLine& line : lines) text.push_back(line.logfmt());
  return text;
}
using Lines = std::vector<std::string>;

TEST(WorkerLog, SaysWhoEntersQuarantineWhyAndWhoLeavesIt) {
  WorkerLog log;
  EXPECT_EQ(text(log.changes({worker("a", "serving"), worker("b", "")})), Lines());
  EXPECT_EQ(text(log.changes({worker("a", "quarantined", "its device erred"), worker("b", "")})),
            Lines{"worker name=a state=quarantined reason=\"its device erred\""});
  EXPECT_EQ(text(log.changes({worker("a", "quarantined", "its device erred"), worker("b", "")})),
            Lines())
      << "once";
  EXPECT_EQ(text(log.changes({worker("a", "serving"), worker("b", "draining")})),
            (Lines{"worker name=a state=serving", "worker name=b state=draining"}));
}

TEST(WorkerLog, OneThatIsGoneIsForgotten) {
  WorkerLog log;
  log.changes({worker("a", "draining")});
  EXPECT_EQ(text(log.changes({})), Lines()) << "its connection says that it is gone";
  EXPECT_EQ(text(log.changes({worker("a", "serving")})), Lines());
  EXPECT_EQ(log.changes({worker("b", "quarantined", "drifts")}).size(), 1u) << "found so";
}

}  // namespace
}  // namespace kiln
