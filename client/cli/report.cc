#include "client/cli/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/compiled_program.h"
#include "compiler_core/base/terminal_text.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {
namespace {

// Otherwise kUnavailable is something of this machine, such as a full disk.
bool is_of_service(const Options& options, const Error& error) {
  return !options.coordinator.empty() || error.message.find("coordinator") != std::string::npos;
}

// The next step, by what went wrong; empty: the message says it.
std::string advice(const Options& options, const Error& error) {
  switch (error.code) {
    case Code::kUnavailable:
      if (!is_of_service(options, error)) return "";
      if (options.coordinator.empty())
        return "start a service with `kiln up`, or name one with --coordinator or KILN_COORDINATOR";
      if (error.message.find("worker") != std::string::npos)
        return fmt::format(
            "`kiln stats --coordinator {0}` lists its workers; `kiln-worker "
            "--coordinator {0}` starts one",
            options.coordinator);
      return fmt::format("`kiln doctor --coordinator {}` says what is in the way",
                         options.coordinator);
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
                                   {"verified", is_verified(program)},
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

std::string time_text(int64_t ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(ms / 1000)));
}

std::string program_text(const std::string& file, const CompiledProgram& compiled) {
  const Program& program = compiled.program();
  const bool is_pending = !compiled.verified() && compiled.outcome() != Outcome::kLocal;
  std::string text =
      fmt::format("{}  {}  {}  {:.3f} s  {} {}{}\n", file, program.graph.short_hex(),
                  to_string(compiled.outcome()), compiled.seconds(), program.target.to_string(),
                  to_string(program.mode), is_pending ? ", not verified yet" : "");
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

void say(const std::string& what) {
  std::fprintf(stderr, "kiln: %s\n", what.c_str());
}

void print_error(const std::string& subject, const Error& error) {
  // The message may name the file already.
  const bool named = subject.empty() || error.message.find(subject) != std::string::npos;
  const std::string line =
      fmt::format("kiln: {}{}{}\n", named ? "" : subject, named ? "" : ": ", error.message);
  std::fputs(terminal_text(line).c_str(), stderr);  // it may quote a file
}

void print_error(const Options& options, const std::string& subject, const Error& error) {
  print_error(subject, error);
  if (const std::string next = advice(options, error); !next.empty())
    std::fputs(fmt::format("      {}\n", next).c_str(), stderr);
}

int report_failure(const Options& options, const std::string& file, const Error& error) {
  if (options.json) std::printf("%s\n", error_json(file, error).dump().c_str());
  print_error(options, file, error);
  return exit_code_of(error);
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

void note_kept_nowhere(const Options& options, const std::string& file,
                       const CompiledProgram& program) {
  if (options.quiet || program.outcome() != Outcome::kLocal) return;
  if (!options.cache_dir.empty() || !options.out.empty()) return;
  std::fputs(
      fmt::format("kiln: {}: kept nowhere; --cache-dir or a service keeps it, --out writes it\n",
                  file)
          .c_str(),
      stderr);
}

std::string progress_text(const std::string& subject, Mode mode, const CompileProgress& p) {
  std::string text = fmt::format("{}  kernels {}/{}", subject, p.kernels_done, p.kernels);
  // Without a search only the first candidate of each kernel is compiled.
  if (mode == Mode::kMaxAutotune)
    text += fmt::format("  candidates {}/{}", p.candidates_done, p.candidates);
  text += fmt::format("  {:.1f} s", p.elapsed_s);
  const int done = mode == Mode::kMaxAutotune ? p.candidates_done : p.kernels_done;
  const int all = mode == Mode::kMaxAutotune ? p.candidates : p.kernels;
  constexpr int kEnoughToGuess = 10;  // hundredths
  if (done < all && done * 100 >= all * kEnoughToGuess)
    text += fmt::format(", about {:.0f} s left", p.elapsed_s * (all - done) / done);
  if (!p.waiting.empty()) text += "  waits: " + p.waiting;
  return text;
}

ProgressLine::ProgressLine(std::string subject, const Options& options)
    : subject_(std::move(subject)),
      mode_(options.mode == "max-autotune" ? Mode::kMaxAutotune : Mode::kDefault),
      quiet_(options.quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      interruption_(options.coordinator.empty()
                        ? "interrupted"
                        : "interrupted; a service keeps what was measured: ask again to go on") {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const CompileProgress& p) {
  if (quiet_) return;
  constexpr double kEveryS = 10;
  if (!terminal_ && p.elapsed_s < last_s_ + kEveryS) return;
  last_s_ = p.elapsed_s;
  const std::string text = progress_text(subject_, mode_, p);
  std::fputs((terminal_ ? "\r\033[K" + text : "kiln: " + text + "\n").c_str(), stderr);
  std::fflush(stderr);
  shown_ = terminal_;
}

}  // namespace kiln::cli
