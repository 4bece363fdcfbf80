#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/explain/explanation.h"
#include "client/cli/explain/why_miss.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "client/gpu_opening.h"
#include "client/toolchains.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"

namespace kiln::cli {
namespace {

using Graphs = std::vector<std::pair<std::string, Graph>>;

// The graph after every pass, in order, from the file to the partition.
Result<Graphs> graphs_after_passes(const Graph& graph, const Target& target) {
  Graphs graphs = {{"read", graph}};
  const auto keep = [&graphs](std::string_view pass, const Graph& after) {
    graphs.emplace_back(std::string(pass), after);
  };
  TRY(const NormalForm form, normalise(graph, keep));
  // A program that no family covers still has the graphs before it is partitioned.
  PartitionOptions options;
  options.after = keep;
  options.rules = partition_rules(target);
  (void)partition(form.graph, options);
  return graphs;
}

Result<std::string> graph_text(const Graph& graph, const Target& target, const std::string& pass) {
  TRY(const Graphs graphs, graphs_after_passes(graph, target));
  std::string names;
  for (const auto& [name, after] : graphs) {
    if (name == pass) return print(after);
    names += (names.empty() ? "" : ", ") + name;
  }
  return fail(Code::kInvalidArgument, "--graph: no pass '" + pass + "'; there are " + names);
}

Result<std::string> source_text(const Explanation& explanation, int launch) {
  std::string text;
  if (launch >= static_cast<int>(explanation.launches.size()))
    return fail(Code::kInvalidArgument, "--source: there are launches 0 to " +
                                            std::to_string(explanation.launches.size() - 1));
  for (size_t k = 0; k < explanation.kernels.size(); ++k) {
    const ExplainedKernel& kernel = explanation.kernels[k];
    if (launch >= 0 &&
        explanation.launches[static_cast<size_t>(launch)].kernel != static_cast<int>(k))
      continue;
    if (kernel.schedule.empty()) return fail(Code::kUnsupported, kernel.no_schedule);
    TRY(const Schedule schedule, Schedule::parse(kernel.schedule));
    TRY(const Source source, lower_to_source(kernel.workload, schedule, explanation.target));
    text += "// kernel " + kernel.workload.digest.short_hex() + ": " + kernel.schedule + "\n" +
            source.text + "\n";
  }
  return text;
}

// With what follows from this machine, which need not have such a GPU.
Result<Target> complete_target(const Options& options, const Target& asked) {
  const GpuOpening gpu(0, options.libcuda, false);
  auto complete = Toolchains(options.compiler, options.libnvrtc, gpu).complete(asked);
  return !complete && !asked.isa.empty() ? Result<Target>(asked) : complete;
}

// Looks the program up, without starting anything; `cache` becomes the outcome in words.
std::unique_ptr<CompiledProgram> look_up(const Options& options, const Graph& graph,
                                         const CompileOptions& wanted, std::string& cache) {
  if (options.coordinator.empty() && options.cache_dir.empty()) {
    cache = "not asked (no --coordinator, no --cache-dir)";
    return nullptr;
  }
  auto client = make_client(options);
  if (!client) {
    cache = client.error().message;
    return nullptr;
  }
  auto program = (*client)->look_up(graph, wanted);
  cache = program                                   ? std::string(to_string((*program)->outcome()))
          : program.error().code == Code::kNotFound ? "miss"
                                                    : program.error().message;
  return program ? *std::move(program) : nullptr;
}

// The program as a cache would name it.
Program identity_of(const Explanation& explanation) {
  Program wanted;
  wanted.graph = explanation.graph;
  wanted.target = explanation.target;
  wanted.mode = explanation.mode;
  const TemplateVersions versions = template_versions();
  wanted.template_stamp = template_stamp(versions);
  wanted.key = program_key(wanted.graph, wanted.target, wanted.mode);
  for (const ExplainedKernel& kernel : explanation.kernels) {
    wanted.kernels.emplace_back();
    wanted.kernels.back().workload = kernel.workload.digest;
    wanted.kernels.back().templates = covering_templates(versions, kernel.workload, wanted.target);
  }
  return wanted;
}

// "matmul at model.py:42 in forward (launches 3, 7)", of each distinct kernel.
std::vector<std::string> kernel_names(const Explanation& explanation) {
  std::vector<std::string> names;
  for (size_t k = 0; k < explanation.kernels.size(); ++k) {
    std::string launches, source;
    size_t count = 0;
    for (size_t i = 0; i < explanation.launches.size(); ++i) {
      const ExplainedLaunch& launch = explanation.launches[i];
      if (launch.kernel != static_cast<int>(k)) continue;
      if (count++ < 6) launches += (launches.empty() ? "" : ", ") + std::to_string(i);
      if (source.empty() && !launch.sources.empty()) source = " at " + launch.sources.front();
    }
    names.push_back(fmt::format("{}{} (launch{} {}{})",
                                to_string(explanation.kernels[k].workload.family), source,
                                count > 1 ? "es" : "", launches, count > 6 ? ", ..." : ""));
  }
  return names;
}

Result<std::string> miss_of(const Options& options, const std::string& file,
                            const Explanation& explanation) {
  if (options.cache_dir.empty() && options.coordinator.empty())
    return fail(Code::kInvalidArgument,
                "--why-miss compares with the programs that a cache has: name one with "
                "--coordinator, --cache-dir or both");
  const Program wanted = identity_of(explanation);
  std::vector<Program> entries;
  std::vector<std::string> asked;
  if (!options.cache_dir.empty()) {
    TRY(entries, cached_programs(options.cache_dir));
    asked.push_back(options.cache_dir);
  }
  if (!options.coordinator.empty()) {
    TRY(std::vector<Program> served, served_programs(options, wanted.graph, wanted.target));
    std::ranges::move(served, std::back_inserter(entries));
    asked.push_back(options.coordinator + ", this graph in both modes for the targets it serves");
  }
  MissReport report = why_miss(wanted, entries);
  report.asked = std::move(asked);
  const std::vector<std::string> names = kernel_names(explanation);
  if (!options.json) return miss_text(report, names);
  nlohmann::ordered_json object = miss_json(report, names);
  object["file"] = file;
  return object.dump() + "\n";
}

// Programs of this machine's cache that have kernels of this one, whether or not they are it.
std::vector<Program> sharing_programs(const Options& options, const Program& wanted) {
  if (options.cache_dir.empty()) return {};
  auto entries = cached_programs(options.cache_dir);
  if (!entries) return {};  // times are worth no error
  std::erase_if(*entries, [&](const Program& entry) {
    return !serves(entry, wanted) || entry.template_stamp != wanted.template_stamp;
  });
  return *std::move(entries);
}

Result<std::string> explain_file(const Options& options, const std::string& file) {
  TRY(const ExportedProgram program, read_graph_file(file));
  TRY(CompileOptions wanted, compile_options(options));
  if (!options.graph_pass.empty())
    return graph_text(program.graph, wanted.target, options.graph_pass);
  TRY(wanted.target, complete_target(options, wanted.target));
  std::string cache;
  const auto hit = look_up(options, program.graph, wanted, cache);
  Program identity;
  identity.target = wanted.target;
  identity.mode = wanted.mode;
  identity.template_stamp = template_stamp(template_versions());
  std::vector<Program> tuned;
  if (hit) tuned.push_back(hit->program());
  // A hit has its kernels; other programs may have times for the partitions that it did not take.
  if (!hit || wanted.mode == Mode::kMaxAutotune)
    std::ranges::move(sharing_programs(options, identity), std::back_inserter(tuned));
  const DevicePeak peak =
      wanted.target.backend == Backend::kCpu ? host_peak(wanted.target) : cuda_peak(wanted.target);
  TRY(Explanation explanation, explain(program, wanted.target, wanted.mode, tuned, peak));
  explanation.cache = cache;
  if (options.why_miss) return miss_of(options, file, explanation);
  if (!options.html.empty()) {
    TRY_STATUS(write_file(options.html, explanation_page(file, explanation)));
    return options.html + ": " + file + " on one page, for any browser\n";
  }
  if (options.candidates)
    return options.json ? candidates_json(file, explanation).dump() + "\n"
                        : candidates_text(explanation);
  if (options.source) return source_text(explanation, options.source_launch);
  if (options.json) return explanation_json(file, explanation).dump() + "\n";
  return explanation_text(file, explanation);
}

}  // namespace

int explain_command(const Options& options) {
  const std::string& file = options.files.front();
  const auto text = explain_file(options, file);
  if (text) {
    std::fputs(text->c_str(), stdout);
    return kDone;
  }
  return report_failure(options, file, text.error());
}

}  // namespace kiln::cli
