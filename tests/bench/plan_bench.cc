// From an archive to its manifest with every kernel cached: milliseconds of one core by stage, the
// median of RUNS. What a coordinator and a client do for a program that is new though its kernels
// are not.
//
//   plan_bench [--json] [RUNS] FILE...      default: 10 runs of
//   tests/graphs/large/llama_16x2048.pt2
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/tune/measurement.h"

namespace {

using kiln::Digest;

// CPU time of this thread: what a busy machine takes away does not count.
double now_ms() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
}

// Stages in the order in which they are first met, with the time of each run.
class Stages {
 public:
  void begin() { last_ = now_ms(); }
  void end(const std::string& stage) {
    const double now = now_ms();
    if (!ms_.contains(stage)) order_.push_back(stage);
    ms_[stage].push_back(now - last_);
    last_ = now_ms();
  }
  const std::vector<std::string>& order() const { return order_; }
  double median(const std::string& stage) const {
    std::vector<double> sorted = ms_.at(stage);
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  double last_ = 0;
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> ms_;
};

struct Counts {
  size_t nodes = 0, launches = 0, kernels = 0, manifest_bytes = 0;
};

// An error's message, or nothing.
std::string run_once(const std::string& file,
                     std::unordered_map<Digest, kiln::ProgramKernel>& cache, Stages& stages,
                     Counts& counts) {
  const kiln::Target target = kiln::host_cpu_target();
  const auto mode = kiln::Mode::kMaxAutotune;
  const auto after = [&stages](std::string_view pass, const kiln::Graph&) {
    stages.end(std::string(pass));
  };
  stages.begin();
  const auto program = kiln::read_graph_file(file);
  if (!program) return program.error().message;
  stages.end("read");
  auto form = kiln::normalise(program->graph, after);
  if (!form) return form.error().message;
  stages.end("digest");
  auto parts = kiln::partition(form->graph, {.fuse = true, .after = after});
  if (!parts) return parts.error().message;
  stages.end("cut");
  auto plan = kiln::plan(*std::move(parts));
  if (!plan) return plan.error().message;
  stages.end("memory");
  std::vector<kiln::ProgramKernel> kernels;
  for (const kiln::Workload& workload : plan->kernels) {
    kiln::ProgramKernel& known =
        cache[kiln::kernel_key(workload.digest, target, mode, kiln::MeasurementPolicy{})];
    known.workload = workload.digest;
    known.family = to_string(workload.family);
    known.schedule = "as it was tuned";
    kernels.push_back(known);
  }
  stages.end("look up");
  counts = {static_cast<size_t>(program->graph.size()), plan->launches.size(), kernels.size(), 0};
  kiln::Program manifest = kiln::program_of(*std::move(plan));
  manifest.kernels = std::move(kernels);
  manifest.target = target;
  manifest.graph = form->digest;
  counts.manifest_bytes = kiln::program_to_json(manifest).size();
  stages.end("manifest");
  return "";
}

int measure(const std::string& file, int runs, bool json) {
  Stages stages;
  Counts counts;
  std::unordered_map<Digest, kiln::ProgramKernel> cache;
  for (int i = 0; i < runs; ++i)
    if (const std::string error = run_once(file, cache, stages, counts); !error.empty()) {
      fmt::print(stderr, "{}: {}\n", file, error);
      return 2;
    }
  double total = 0;
  std::string parts;
  for (const std::string& stage : stages.order()) {
    total += stages.median(stage);
    parts += json ? fmt::format(R"({}"{}":{:.3f})", parts.empty() ? "" : ",", stage,
                                stages.median(stage))
                  : fmt::format("  {:<18}{:9.2f} ms\n", stage, stages.median(stage));
  }
  if (json)
    fmt::print(
        R"({{"file":"{}","nodes":{},"launches":{},"kernels":{},"total_ms":{:.3f},"ms":{{{}}}}})"
        "\n",
        file, counts.nodes, counts.launches, counts.kernels, total, parts);
  else
    fmt::print("{}  {} nodes, {} launches of {} kernels, manifest {} bytes: {:.1f} ms\n{}", file,
               counts.nodes, counts.launches, counts.kernels, counts.manifest_bytes, total, parts);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  int runs = 10;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json")
      json = true;
    else if (const int number = std::atoi(argv[i]); number > 0)
      runs = number;
    else
      files.push_back(argument);
  }
  if (files.empty()) files.emplace_back(KILN_GRAPHS_DIR "/large/llama_16x2048.pt2");
  for (const std::string& file : files)
    if (const int code = measure(file, runs, json); code != 0) return code;
  return 0;
}
