#include "client/cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/compiled_program.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {
namespace {

std::string_view advice(const Error& error) {
  switch (error.code) {
    case Code::kUnavailable:
      return "start a service with `kiln up`, name it with --coordinator or KILN_COORDINATOR, give "
             "it a\n      worker of this target, or allow the local fallback with --mode default";
    case Code::kOverloaded:
      return "try again a little later";
    case Code::kDeadlineExceeded:
      return "give it longer with --deadline";
    default:
      return "";
  }
}

nlohmann::ordered_json symbol_json(size_t id, int64_t min, int64_t max, int64_t hint) {
  return {{"name", fmt::format("s{}", id)}, {"min", min}, {"max", max}, {"hint", hint}};
}

// "  for 1 <= s0 <= 4096, tuned at 31"
std::string sizes_text(size_t id, int64_t min, int64_t max, int64_t hint) {
  const Guard guard{Dim::symbol(static_cast<SymbolId>(id)), min, max};
  const std::string tuned = hint > 0 ? fmt::format(", tuned at {}", hint) : "";
  return fmt::format("  for {}{}\n", guard.to_string(), tuned);
}

}  // namespace

nlohmann::ordered_json program_json(const std::string& file, const CompiledProgram& compiled) {
  const Program& program = compiled.program();
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const ProgramKernel& kernel : program.kernels)
    kernels.push_back({{"workload", kernel.workload.hex()},
                       {"family", kernel.family},
                       {"candidates", kernel.report.candidates},
                       {"measured", kernel.report.measured},
                       {"rejected", kernel.report.rejected},
                       {"best_us", kernel.report.best_us},
                       {"first_us", kernel.report.first_us},
                       {"schedule", kernel.schedule}});
  nlohmann::ordered_json object = {{"file", file},
                                   {"graph_digest", program.graph.hex()},
                                   {"program_key", program.key.hex()},
                                   {"cache", to_string(compiled.outcome())},
                                   {"memory_only", compiled.memory_only()},
                                   {"seconds", compiled.seconds()},
                                   {"target", program.target.to_string()},
                                   {"mode", to_string(program.mode)},
                                   {"launches", program.launches.size()},
                                   {"kernels", std::move(kernels)}};
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    const ProgramSymbol& symbol = program.symbols[i];
    object["symbols"].push_back(symbol_json(i, symbol.min, symbol.max, symbol.hint));
  }
  if (!program.symbols.empty()) object["guards"] = nlohmann::ordered_json::array();
  for (const Guard& guard : program.guards) object["guards"].push_back(guard.to_string());
  return object;
}

nlohmann::ordered_json specialised_json(const std::string& file, const SpecialisedProgram& set) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const SpecialisedProgram::Part& part : set.parts()) {
    nlohmann::ordered_json object = program_json(file, *part.program);
    object.erase("file");
    object["guards"] = nlohmann::ordered_json::array();
    for (const Guard& guard : part.guards) object["guards"].push_back(guard.to_string());
    object["symbols"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < part.sizes.size(); ++i)
      object["symbols"].push_back(
          symbol_json(i, part.sizes[i].range.min, part.sizes[i].range.max, part.sizes[i].hint));
    parts.push_back(std::move(object));
  }
  return {{"file", file}, {"specialisations", std::move(parts)}};
}

nlohmann::ordered_json error_json(const std::string& file, const Error& error) {
  return {{"file", file}, {"error", {{"code", to_string(error.code)}, {"message", error.message}}}};
}

std::string program_text(const std::string& file, const CompiledProgram& compiled) {
  const Program& program = compiled.program();
  std::string text = fmt::format("{}  {}  {}  {:.3f} s  {} {}\n", file, program.graph.short_hex(),
                                 to_string(compiled.outcome()), compiled.seconds(),
                                 program.target.to_string(), to_string(program.mode));
  for (size_t i = 0; i < program.symbols.size(); ++i)
    text += sizes_text(i, program.symbols[i].min, program.symbols[i].max, program.symbols[i].hint);
  for (const ProgramKernel& kernel : program.kernels) {
    const KernelReport& report = kernel.report;
    text += fmt::format("  {:<17} {}", kernel.family, kernel.workload.short_hex());
    if (report.best_us > 0)
      text +=
          fmt::format("  {:>9.1f} us  ({:.2f}x the first guess, {} candidates, {} rejected)",
                      report.best_us, report.best_us > 0 ? report.first_us / report.best_us : 0.0,
                      report.candidates, report.rejected);
    text += fmt::format("\n    {}\n", kernel.schedule);
  }
  return text;
}

std::string specialised_text(const std::string& file, const SpecialisedProgram& set) {
  std::string text;
  for (const SpecialisedProgram::Part& part : set.parts()) {
    std::string own = program_text(file, *part.program);
    // The graph's own symbols say it better than the program's.
    std::string sizes;
    for (size_t i = 0; i < part.sizes.size(); ++i)
      sizes += sizes_text(i, part.sizes[i].range.min, part.sizes[i].range.max, part.sizes[i].hint);
    const size_t line = own.find('\n') + 1;
    size_t rest = line;
    while (own.compare(rest, 6, "  for ") == 0) rest = own.find('\n', rest) + 1;
    text += own.substr(0, line) + sizes + own.substr(rest);
  }
  return text;
}

void print_error(const std::string& subject, const Error& error) {
  // Whoever read the file may have named it already.
  const bool named = subject.empty() || error.message.starts_with(subject);
  std::string text =
      fmt::format("kiln: {}{}{}\n", named ? "" : subject, named ? "" : ": ", error.message);
  if (const auto next = advice(error); !next.empty()) text += fmt::format("      {}\n", next);
  std::fputs(text.c_str(), stderr);
}

int report_failure(const Options& options, const std::string& file, const Error& error) {
  if (options.json) std::printf("%s\n", error_json(file, error).dump().c_str());
  print_error(file, error);
  return exit_code_of(error);
}

void note_fallback(const std::string& file, Mode wanted, const CompiledProgram& program) {
  if (wanted == Mode::kDefault || program.program().mode != Mode::kDefault) return;
  const std::string text =
      fmt::format("kiln: {}: no service to tune it; compiled here with the first guess\n", file);
  std::fputs(text.c_str(), stderr);
}

void note_libraries(const std::string& file, const CompiledProgram& program) {
  const std::string why = libraries_left_out(program);
  if (why.empty()) return;
  std::fputs(fmt::format("kiln: {}: {}\n", file, why).c_str(), stderr);
}

void note_memory_only(const std::string& file, const CompiledProgram& program) {
  if (!program.memory_only()) return;
  const std::string text = fmt::format(
      "kiln: {}: the service has it in memory only and may tune it again: its disk took nothing "
      "(its log says so), or no worker could try every way to cut it yet\n",
      file);
  std::fputs(text.c_str(), stderr);
}

ProgressLine::ProgressLine(std::string subject)
    : subject_(std::move(subject)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const CompileProgress& p) {
  if (!terminal_) return;
  const std::string line =
      fmt::format("\r\033[K{}  kernels {}/{}  candidates {}/{}  {:.1f} s", subject_, p.kernels_done,
                  p.kernels, p.candidates_done, p.candidates, p.elapsed_s);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace kiln::cli
