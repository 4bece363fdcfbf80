#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/cli/command_trace.h"
#include "client/cli/comparison.h"
#include "client/cli/exit_code.h"
#include "client/cli/gpu_run.h"
#include "client/cli/options.h"
#include "client/cli/profile.h"
#include "client/cli/report.h"
#include "client/cli/run_inputs.h"
#include "client/cli/session.h"
#include "client/compiled_program.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/runtime/cuda_device.h"
#include "compiler_core/tune/measurement.h"

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::map<std::string, Tensor>;

// From the start of the process to the first finished launch; what compile() took is its own.
struct Timings {
  double read_ms = 0;          // the graph
  double inputs_ms = 0;        // the tensors to run on: read, or made up
  double upload_ms = 0;        // to the GPU
  double first_launch_ms = 0;  // until it was done
  double total_ms = 0;         // from main to there, whatever ran side by side
};

// The program that serves these inputs.
using ChooseProgram = std::function<Result<const CompiledProgram*>(std::span<const Tensor* const>)>;

struct RunReport {
  const CompiledProgram* program = nullptr;  // which ran
  Comparison comparison;
  bool compared = false;
  double median_us = 0;
  int made_up = 0;
  Timings timings;
  std::optional<Profile> profile;
};

// Times a few runs.
Result<double> time_runs(const CompiledProgram& program, std::span<const Tensor* const> inputs,
                         std::span<Tensor* const> outputs, int wanted) {
  std::vector<double> samples_us;
  const auto stop = Clock::now() + std::chrono::milliseconds(200);
  while (wanted > 0 ? static_cast<int>(samples_us.size()) < wanted
                    : samples_us.size() < 3 || (samples_us.size() < 200 && Clock::now() < stop)) {
    const auto started = Clock::now();
    TRY_STATUS(program.run(inputs, outputs));
    samples_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count());
  }
  return Measurement{std::move(samples_us)}.median_us();
}

// Compares the model's results; inputs that it changes are not among the expected outputs.
Result<Comparison> compare_outputs(const ExportedProgram& exported,
                                   const std::vector<Tensor>& outputs, const Tensors& expected,
                                   const Options& options) {
  Comparison total;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (exported.outputs[i].kind != ExportedOutput::Kind::kUser) continue;
    const std::string name = fmt::format("out{}", i);
    const auto found = expected.find(name);
    if (found == expected.end())
      return fail(Code::kInvalidArgument,
                  "the file of expected outputs has no tensor '" + name + "'");
    total.merge(compare(outputs[i], found->second, options.rtol, options.atol, name));
  }
  return total;
}

// Runs once for the outputs, which it returns, then for timing.
Result<std::vector<Tensor>> run_and_time(const Options& options, const CompiledProgram& program,
                                         std::span<const Tensor* const> inputs, RunReport& report) {
  Timings& timings = report.timings;
  if (device_of(program) != nullptr) {
    TRY(GpuRun run, run_on_gpu(program, inputs, options.runs));
    timings.upload_ms = run.upload_ms;
    timings.first_launch_ms = run.first_launch_ms;
    timings.total_ms = ms_between(options.started, run.first_finished);
    report.median_us = run.median_us;
    return std::move(run.outputs);
  }
  const auto launching = Clock::now();
  TRY(std::vector<Tensor> outputs, program.run(inputs));
  timings.first_launch_ms = ms_since(launching);
  timings.total_ms = ms_since(options.started);
  TRY(const std::vector<int64_t> symbols, program.bind(inputs));
  TRY(std::vector<Tensor> timed, program.make_outputs(symbols));
  std::vector<Tensor*> targets;
  for (Tensor& tensor : timed) targets.push_back(&tensor);
  TRY(report.median_us, time_runs(program, inputs, targets, options.runs));
  return outputs;
}

Result<RunReport> run_from_file(const Options& options, const std::string& file,
                                const ExportedProgram& exported, const ChooseProgram& choose) {
  RunReport report;
  const auto reading = Clock::now();
  // One file may hold both in0.. and out0..: --expect then stands for --inputs too.
  Tensors given, expected;
  const std::string& inputs_file = options.inputs.empty() ? options.expect : options.inputs;
  if (!inputs_file.empty()) {
    TRY(given, read_safetensors(inputs_file));
  }
  TRY(const RunInputs inputs, gather_inputs(file, exported, inputs_file.empty() ? nullptr : &given,
                                            options.expect.empty(), options.seed));
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : inputs.tensors) pointers.push_back(&tensor);
  report.made_up = inputs.made_up;
  report.timings.inputs_ms = ms_since(reading);
  TRY(report.program, choose(pointers));
  TRY(const std::vector<Tensor> outputs, run_and_time(options, *report.program, pointers, report));
  if (!options.profile.empty()) {
    TRY(report.profile, take_profile(*report.program, exported, pointers));
    TRY_STATUS(write_file(options.profile, trace_json(file, *report.profile).dump() + "\n"));
  }
  if (options.expect.empty()) return report;
  TRY(expected, read_safetensors(options.expect));
  TRY(report.comparison, compare_outputs(exported, outputs, expected, options));
  report.compared = true;
  return report;
}

nlohmann::ordered_json timings_json(const Options& options, const CompiledProgram& program,
                                    const Timings& timings) {
  const StartUp& start_up = program.start_up();
  return {{"exec_ms", options.exec_ms},
          {"read_ms", timings.read_ms},
          {"context_ms", start_up.context_ms},
          {"context_wait_ms", start_up.context_wait_ms},
          {"fetch_ms", start_up.fetch_ms},
          {"load_ms", start_up.load_ms},
          {"inputs_ms", timings.inputs_ms},
          {"upload_ms", timings.upload_ms},
          {"first_launch_ms", timings.first_launch_ms},
          {"total_ms", timings.total_ms}};
}

void print_report(const Options& options, const std::string& file, const CompiledProgram& program,
                  const RunReport& report) {
  if (options.json) {
    nlohmann::ordered_json object = {{"file", file},
                                     {"ok", report.comparison.ok},
                                     {"compared", report.compared},
                                     {"max_abs_error", report.comparison.max_abs_error},
                                     {"max_rel_error", report.comparison.max_rel_error},
                                     {"median_us", report.median_us}};
    const auto compiled = program_json(file, program);
    for (const char* name : {"cache", "memory_only", "seconds", "graph_digest", "program_key",
                             "target", "launches", "kernels"})
      object[name] = compiled[name];
    if (const auto device = device_of(program)) object["device"] = device->facts().name;
    object["timings"] = timings_json(options, program, report.timings);
    if (report.profile) object["profile"] = profile_json(*report.profile);
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  const std::string verdict =
      !report.compared ? "ran"
      : report.comparison.ok
          ? fmt::format("ok, largest error {:.2g} absolute, {:.2g} relative",
                        report.comparison.max_abs_error, report.comparison.max_rel_error)
          : "WRONG: " + report.comparison.first_difference;
  std::fputs(fmt::format("{}  {}  {:.1f} us  {} ({:.3f} s)\n", file, verdict, report.median_us,
                         to_string(program.outcome()), program.seconds())
                 .c_str(),
             stdout);
  if (report.profile)
    std::fputs((profile_text(*report.profile) + "  timeline in " + options.profile +
                ": open it at ui.perfetto.dev\n")
                   .c_str(),
               stdout);
  if (report.made_up > 0)
    std::fputs(
        fmt::format("  {} inputs were not given: seeded random values stood in\n", report.made_up)
            .c_str(),
        stdout);
}

// One program, or with --hint several.
struct Programs {
  std::unique_ptr<CompiledProgram> one;
  std::unique_ptr<SpecialisedProgram> several;

  Result<const CompiledProgram*> choose(std::span<const Tensor* const> inputs) const {
    if (one != nullptr) return one.get();
    std::vector<std::span<const int64_t>> sizes;
    for (const Tensor* input : inputs) sizes.emplace_back(input->sizes());
    std::vector<int64_t> symbols;
    TRY_STATUS(several->bind(sizes, symbols));
    return several->program_for(symbols);
  }
};

Result<Programs> compile_programs(Client& client, const Options& options, CompileOptions compile,
                                  const ExportedProgram& exported, const std::string& file) {
  // A program that is compiled for a size later has no line to show.
  const auto line = std::make_shared<std::optional<ProgressLine>>(std::in_place, file, options);
  compile.on_progress = [line](const CompileProgress& progress) {
    if (*line) (*line)->show(progress);
  };
  compile.on_message = [file](const std::string& message) {
    std::fprintf(stderr, "kiln: %s: %s\n", file.c_str(), message.c_str());
  };
  const Graph& graph = exported.graph;
  const auto compile_graph = [&client, &options, compile](const Graph& part) {
    return options.exported.empty() ? client.compile(part, compile)
                                    : client.open_exported(part, options.exported, compile);
  };
  Programs programs;
  if (options.hints.empty()) {
    TRY(programs.one, compile_graph(graph));
  } else {
    TRY(const Hints hints, parse_hints(options.hints, exported));
    TRY(auto parts, parts_of_hints(graph.symbols(), hints));
    TRY(programs.several,
        SpecialisedProgram::make(graph, std::move(parts), compile_graph, compile.on_message));
  }
  line->reset();
  return programs;
}

Result<int> run_file(const Options& options, const std::string& file, CommandTrace& trace) {
  TRY(CompileOptions compile, compile_options(options));
  trace.follow(compile);
  // The GPU opens while the graph is read and the service is asked.
  const bool gpu = compile.target.backend == Backend::kCuda;
  TRY(const std::unique_ptr<Client> client, make_client(options, gpu));
  const auto reading = Clock::now();
  TRY(const ExportedProgram exported, read_graph_file(file));
  const double read_ms = ms_since(reading);
  TRY(const Programs programs, compile_programs(*client, options, compile, exported, file));
  const auto choose = [&](std::span<const Tensor* const> inputs) -> Result<const CompiledProgram*> {
    return programs.choose(inputs);
  };
  TRY(RunReport report, run_from_file(options, file, exported, choose));
  note_memory_only(file, *report.program);
  note_libraries(file, *report.program);
  report.timings.read_ms = read_ms;
  print_report(options, file, *report.program, report);
  return report.comparison.ok ? kDone : kAnswerIsNo;
}

}  // namespace

int run_command(const Options& options) {
  const std::string& file = options.files.front();
  CommandTrace trace(options, "run");
  const auto code = run_file(options, file, trace);
  const int exit_code = code ? *code : report_failure(options, file, code.error());
  trace.ended(exit_code);
  return exit_code;
}

}  // namespace kiln::cli
