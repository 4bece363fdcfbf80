// Every schedule of every kernel of the test programs, through the real NVRTC: what no GPU is
// needed to notice. Skipped where there is no NVRTC. In shards, each a process of its own under
// ctest. A source that both targets have is compiled for each: registers differ. What compiled without
// a fault is not compiled again on this machine, as ccache has it for our own sources.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/compile/candidate_graphs.h"
#include "tests/compiler_core/compile/in_registers.h"

namespace kiln {
namespace {

struct Job {
  std::string name;  // "layernorm.pt2: row_reduction ..."
  Source source;
  size_t target = 0;  // of kTargets
};

constexpr int kShards = 4;
constexpr std::array<const char*, 2> kTargets = {"cuda:sm_80", "cuda:sm_90a"};

Target target_of(size_t index) {
  Target target = *Target::parse(kTargets[index]);
  target.units = target.isa == "sm_80" ? 108 : 132;
  return target;
}

class EveryCandidate : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<Job> jobs() {
    std::vector<Job> jobs;
    for (size_t t = 0; t < kTargets.size(); ++t)
      std::ranges::move(jobs_for(t), std::back_inserter(jobs));
    return jobs;
  }

  static std::vector<Job> jobs_for(size_t t) {
    const Target target = target_of(t);
    std::vector<Job> jobs;
    std::set<std::string> seen;
    for (const auto& [name, workload] : workloads(t)) {
      const auto space = search_space(workload, target);
      if (!space) {
        ADD_FAILURE() << name << ": " << space.error().message;
        continue;
      }
      for (const Schedule& schedule : *space) {
        auto source = lower_to_source(workload, schedule, target);
        if (!source && source.error().code == Code::kUnsupported) break;
        if (!source) {
          ADD_FAILURE() << name << " " << schedule.to_string() << ": " << source.error().message;
        } else if (seen.insert(source->text).second) {
          jobs.push_back({fmt::format("{} {}: {}", target.isa, name, schedule.to_string()),
                          std::move(*source), t});
        }
      }
    }
    return jobs;
  }

  static std::vector<std::pair<std::string, Workload>> workloads(size_t target) {
    const PartitionRules rules = partition_rules(target_of(target));
    std::vector<std::pair<std::string, Workload>> all;
    std::map<Digest, bool> seen;
    const auto add = [&](const std::string& name, const Graph& graph) {
      const auto form = normalise(graph);
      if (!form) return;
      const auto made = plan(form->graph, rules);
      if (!made) return;  // what the planner refuses is another test's business
      for (const Workload& kernel : made->kernels)
        if (seen.emplace(kernel.digest, true).second) all.emplace_back(name, kernel);
    };
    for (const char* folder : {"bench", "small"})
      for (const auto& file :
           std::filesystem::directory_iterator(Path(KILN_SOURCE_DIR) / "tests/graphs" / folder))
        if (file.path().extension() == ".pt2")
          if (const auto program = read_graph_file(file.path()))
            add(file.path().filename().string(), program->graph);
    for (const char* text : testing::kOddGraphs) add("odd", *parse_graph(text));
    for (const auto cache : testing::kEveryCache) add("a cache", testing::step_behind(cache));
    for (const Graph& graph : testing::products_behind_norms())
      all.emplace_back("behind a norm", make_workload(graph)->workload);
    for (const char* text : testing::kWeightGraphs)
      all.emplace_back("8-bit weights", make_workload(*parse_graph(text))->workload);
    if (target_of(target).isa == "sm_90a")
      for (const char* text : testing::kHopperGraphs)
        all.emplace_back("sm_90a alone", make_workload(*parse_graph(text))->workload);
    return all;
  }
};

TEST_P(EveryCandidate, CompilesAndStaysInRegisters) {
  const Result<Nvrtc> nvrtc = Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  const std::vector<Job> all = jobs();
  EXPECT_GT(all.size(), 100U * kShards);
  for (size_t i = static_cast<size_t>(GetParam()); i < all.size(); i += kShards)
    testing::expect_in_registers(*nvrtc, all[i].source, target_of(all[i].target), all[i].name);
  RecordProperty("candidates", static_cast<int>(all.size()));
}

INSTANTIATE_TEST_SUITE_P(Shards, EveryCandidate, ::testing::Range(0, kShards));

}  // namespace
}  // namespace kiln
