#include "worker/build/candidate_lowering.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>

#include "compiler_core/base/file.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

const Workload& add_workload() {
  static const Workload workload{parse_graph(kAddGraph).value(), Family::kPointwise, {}};
  return workload;
}

TEST(CandidateLowering, GivesWhatTheTemplatesGiveHere) {
  CandidateLowering lowering({runner_path(), 1, {}});
  const auto space = search_space(add_workload(), host_cpu_target()).value();
  for (const Schedule& schedule : space) {
    const auto there = lowering.lower(add_job(), schedule);
    const auto here = lower(add_workload(), schedule, host_cpu_target());
    ASSERT_TRUE(there.has_value()) << there.error().message;
    ASSERT_TRUE(std::holds_alternative<Source>(*there));
    EXPECT_EQ(std::get<Source>(*there).text, std::get<Source>(*here).text);
    EXPECT_EQ(std::get<Source>(*there).recipe, std::get<Source>(*here).recipe);
  }
}

TEST(CandidateLowering, ARefusalKeepsItsCode) {
  CandidateLowering lowering({runner_path(), 1, {}});
  EXPECT_EQ(lowering.lower(add_job(), {"cpu.no_such", {}}).error().code, Code::kUnsupported);
  Job broken = add_job();
  broken.workload_text = "kiln.graph 1\n%0 = nonsense\n";
  EXPECT_FALSE(lowering.lower(broken, {"cpu.pointwise", {}}).has_value());
  const auto space = search_space(add_workload(), host_cpu_target()).value();
  EXPECT_TRUE(lowering.lower(add_job(), space.front()).has_value());
}

// /bin/false dies of everything that it is asked.
TEST(CandidateLowering, AWorkloadThatCostsItsProcessesIsRefusedFromThenOn) {
  CandidateLowering lowering({"/bin/false", 1, {}});
  for (int candidate = 0; candidate < 3; ++candidate) {
    const auto refused = lowering.lower(add_job(), {"cpu.pointwise", {{"lanes", candidate}}});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kUnsupported) << "the candidate's fault, and final";
    EXPECT_NE(refused.error().message.find("cost 2 processes"), std::string::npos)
        << refused.error().message;
  }
}

// Every other process dies at its start; whoever answered is killed, as by a machine that lacks
// memory. No workload has cost two in a row.
TEST(CandidateLowering, DeathsBetweenAnswersAreNotTheWorkloads) {
  const TempDir dir = TempDir::create("kiln-lowering").value();
  const Path script = dir.path() / "runner", odd = dir.path() / "odd", alive = dir.path() / "alive";
  ASSERT_TRUE(
      write_file(script, fmt::format("#!/bin/sh\nif [ ! -e {0} ]; then : > {0}; exit 1; fi\n"
                                     "rm {0}; echo $$ > {1}; exec {2} \"$@\"\n",
                                     odd.string(), alive.string(), runner_path().string())));
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CandidateLowering lowering({script, 1, {}});
  const auto space = search_space(add_workload(), host_cpu_target()).value();
  for (int i = 0; i < 4; ++i) {
    const auto lowered = lowering.lower(add_job(), space.front());
    ASSERT_TRUE(lowered.has_value()) << lowered.error().message;
    const pid_t pid = std::stoi(read_file(alive).value());
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    siginfo_t died;
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &died, WEXITED | WNOWAIT), 0);
  }
}

TEST(CandidateLowering, OneThatCannotBeStartedIsTheWorkersFault) {
  CandidateLowering lowering({"/no/such/runner", 1, {}});
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(lowering.lower(add_job(), {"cpu.pointwise", {}}).error().code, Code::kUnavailable);
}

TEST(CandidateLowering, AfterCloseNothingIsBlamed) {
  CandidateLowering lowering({runner_path(), 1, {}});
  lowering.close();
  EXPECT_EQ(lowering.lower(add_job(), {"cpu.pointwise", {}}).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
