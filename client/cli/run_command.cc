#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/comparison.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/run_inputs.h"
#include "client/cli/session.h"
#include "compiler_core/frontend/graph_file.h"
#include "compiler_core/frontend/safetensors.h"

namespace kiln::cli {
namespace {

using Tensors = std::map<std::string, Tensor>;

struct RunReport {
  Comparison comparison;
  bool compared = false;
  double median_us = 0;
  int made_up = 0;
};

// Runs once for the answer, then a few times more for the clock.
Result<double> time_runs(const CompiledProgram& program, std::span<const Tensor* const> inputs,
                         std::span<Tensor* const> outputs, int wanted) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples_us;
  const auto stop = Clock::now() + std::chrono::milliseconds(200);
  while (wanted > 0 ? static_cast<int>(samples_us.size()) < wanted
                    : samples_us.size() < 3 || (samples_us.size() < 200 && Clock::now() < stop)) {
    const auto started = Clock::now();
    TRY_STATUS(program.run(inputs, outputs));
    samples_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count());
  }
  std::nth_element(samples_us.begin(),
                   samples_us.begin() + static_cast<int64_t>(samples_us.size() / 2),
                   samples_us.end());
  return samples_us[samples_us.size() / 2];
}

Result<Comparison> compare_outputs(const std::vector<Tensor>& outputs, const Tensors& expected,
                                   const Options& options) {
  Comparison total;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = fmt::format("out{}", i);
    const auto found = expected.find(name);
    if (found == expected.end())
      return fail(Code::kInvalidArgument,
                  "the file of expected outputs has no tensor '" + name + "'");
    total.merge(compare(outputs[i], found->second, options.rtol, options.atol, name));
  }
  return total;
}

Result<RunReport> run_program(const Options& options, const std::string& file,
                              const ExportedProgram& exported, const CompiledProgram& program) {
  // One file may hold both in0.. and out0..: --expect then stands for --inputs too.
  Tensors given, expected;
  const std::string& inputs_file = options.inputs.empty() ? options.expect : options.inputs;
  if (!inputs_file.empty()) {
    TRY(given, read_safetensors(inputs_file));
  }
  if (!options.expect.empty()) {
    TRY(expected, read_safetensors(options.expect));
  }
  TRY(const RunInputs inputs, gather_inputs(file, exported, inputs_file.empty() ? nullptr : &given,
                                            options.expect.empty()));
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : inputs.tensors) pointers.push_back(&tensor);
  TRY(std::vector<Tensor> outputs, program.run(pointers));
  RunReport report;
  report.made_up = inputs.made_up;
  if (!options.expect.empty()) {
    TRY(report.comparison, compare_outputs(outputs, expected, options));
    report.compared = true;
  }
  std::vector<Tensor*> targets;
  for (Tensor& tensor : outputs) targets.push_back(&tensor);
  TRY(report.median_us, time_runs(program, pointers, targets, options.runs));
  return report;
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
    for (const char* name :
         {"cache", "seconds", "graph_digest", "program_key", "launches", "kernels"})
      object[name] = compiled[name];
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
                         program.outcome(), program.seconds())
                 .c_str(),
             stdout);
  if (report.made_up > 0)
    std::fputs(
        fmt::format("  {} inputs were not given: seeded random values stood in\n", report.made_up)
            .c_str(),
        stdout);
}

Result<int> run_file(const Options& options, const std::string& file) {
  TRY(CompileOptions compile, compile_options(options));
  TRY(const std::unique_ptr<Client> client, make_client(options));
  TRY(const ExportedProgram exported, read_graph_file(file));
  Result<std::unique_ptr<CompiledProgram>> program = fail(Code::kInternal, "not asked");
  {
    ProgressLine line(file);
    compile.on_progress = [&line](const CompileProgress& progress) { line.show(progress); };
    program = client->compile(exported.graph, compile);
  }
  if (!program) return fail(std::move(program).error());
  note_fallback(file, compile.mode, **program);
  TRY(const RunReport report, run_program(options, file, exported, **program));
  print_report(options, file, **program, report);
  return report.comparison.ok ? kDone : kAnswerIsNo;
}

}  // namespace

int run_command(const Options& options) {
  const std::string& file = options.files.front();
  const auto code = run_file(options, file);
  if (code) return *code;
  if (options.json) std::printf("%s\n", error_json(file, code.error()).dump().c_str());
  print_error(file, code.error());
  return exit_code_of(code.error());
}

}  // namespace kiln::cli
