// Times NVRTC on the candidates of programs, by kernel template: the work of a fleet's compilers when
// the programs are tuned from an empty cache. Needs no GPU.
//
//   builds FILE... [--target cuda:sm_90a] [--every N] [--texts DIR] [--each FILE]
//
// Each distinct text is built once, as a fleet builds it, which leaves out what is in reserve. --every N: only each N-th text of a template
// is built, and the sums are scaled up. --texts: writes DIR/<template>-<number>.cu and builds nothing. --each: writes
// a line of JSON for each text that was built: workload, schedule, ms of the processor (tests/gpu/replay_tuning.py).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "compiler_core/base/file.h"
#include "compiler_core/compile/nvrtc.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/alternatives.h"

namespace {

using namespace kiln;

// The candidates of one template in all programs.
struct Candidates {
  int count = 0;
  std::vector<Source> texts;       // distinct
  std::vector<std::string> names;  // of the candidate that each is of, in JSON
  int built = 0;
  double lines = 0, ms = 0;  // of those that were built
};
using ByTemplate = std::map<std::string, Candidates>;

// Adds the candidates of the kernels of `file`, of all its partitions, that `kernels` and `keys` lack.
Status add_candidates(const Path& file, const Target& target, const Nvrtc& nvrtc,
                      std::set<Digest>& kernels, std::set<Digest>& keys, ByTemplate& all) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(const NormalForm form, normalise(exported.graph));
  TRY(const std::vector<PlanAlternative> ways,
      plan_alternatives(form.graph, partition_rules(target)));
  for (const PlanAlternative& way : ways)
    for (const Workload& workload : way.plan.kernels) {
      if (!kernels.insert(workload.digest).second) continue;
      TRY(const SearchSpace space, ranked_space(workload, target));
      for (const Schedule& schedule : space.schedules) {
        if (space.far.contains(schedule.template_name)) continue;
        Candidates& same = all[schedule.template_name];
        ++same.count;
        auto source = lower_to_source(workload, schedule, target);
        if (source && keys.insert(nvrtc.candidate_key(*source, target)).second) {
          same.texts.push_back(*std::move(source));
          same.names.push_back(fmt::format("\"workload\":\"{}\",\"schedule\":\"{}\"",
                                           workload.digest.hex(), schedule.to_string()));
        }
      }
    }
  return {};
}

void build(Candidates& some, const Target& target, const Nvrtc& nvrtc, size_t every,
           std::string& each) {
  for (size_t i = 0; i < some.texts.size(); i += every) {
    const std::clock_t start = std::clock();
    if (const auto object = nvrtc.compile(some.texts[i], target); !object)
      fmt::print(stderr, "{}\n", object.error().message);
    const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    some.ms += ms;
    each += fmt::format("{{{},\"ms\":{:.1f}}}\n", some.names[i], ms);
    some.lines += static_cast<double>(std::ranges::count(some.texts[i].text, '\n'));
    ++some.built;
  }
}

Status write_texts(const Path& directory, const ByTemplate& all) {
  std::filesystem::create_directories(directory);
  for (const auto& [name, some] : all)
    for (size_t i = 0; i < some.texts.size(); ++i)
      TRY_STATUS(write_file(directory / fmt::format("{}-{:04}.cu", name, i), some.texts[i].text));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string texts, each_path, target_text = "cuda:sm_90a";
  size_t every = 1;
  CLI::App app("What NVRTC takes for the candidates of programs");
  app.add_option("FILE", files, "programs")->required();
  app.add_option("--target", target_text);
  app.add_option("--every", every, "build each N-th text alone")->check(CLI::PositiveNumber);
  app.add_option("--texts", texts, "write the texts there, and build nothing");
  app.add_option("--each", each_path, "write what each text took there");
  CLI11_PARSE(app, argc, argv);
  auto target = Target::parse(target_text);
  const auto nvrtc = Nvrtc::find();
  if (!target || !nvrtc) {
    fmt::print(stderr, "{}\n", (!target ? target.error() : nvrtc.error()).message);
    return 2;
  }
  if (target->isa == "sm_90a") target->units = 132;
  ByTemplate all;
  std::set<Digest> kernels, keys;
  for (const std::string& file : files)
    if (const Status added = add_candidates(file, *target, *nvrtc, kernels, keys, all); !added) {
      fmt::print(stderr, "{}: {}\n", file, added.error().message);
      return 1;
    }
  if (!texts.empty()) {
    const Status written = write_texts(texts, all);
    if (!written) fmt::print(stderr, "{}\n", written.error().message);
    return written ? 0 : 1;
  }
  fmt::print("{} kernels\n{:32} {:>10} {:>6} {:>6} {:>8} {:>8}\n", kernels.size(), "template",
             "candidates", "texts", "lines", "ms each", "core-s");
  std::string each_text;
  double seconds = 0;
  size_t count = 0;
  for (auto& [name, some] : all) {
    build(some, *target, *nvrtc, every, each_text);
    const double each = some.built > 0 ? some.ms / some.built : 0;
    const double lines = some.built > 0 ? some.lines / some.built : 0;
    fmt::print("{:32} {:>10} {:>6} {:>6.0f} {:>8.0f} {:>8.1f}\n", name, some.count,
               some.texts.size(), lines, each, each * static_cast<double>(some.texts.size()) / 1e3);
    std::fflush(stdout);
    seconds += each * static_cast<double>(some.texts.size()) / 1e3;
    count += some.texts.size();
  }
  fmt::print("{:32} {:>10} {:>6} {:>6} {:>8.0f} {:>8.1f}\n", "all", "", count, "",
             count > 0 ? 1e3 * seconds / static_cast<double>(count) : 0, seconds);
  if (const Status written = each_path.empty() ? Status() : write_file(each_path, each_text);
      !written) {
    fmt::print(stderr, "{}\n", written.error().message);
    return 1;
  }
  return 0;
}
