// The output of `kiln`: tables for people, objects with stable field names for scripts, and one
// progress line on a terminal. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/cli/options.h"
#include "client/specialised_program.h"

namespace kiln {
struct Stats;  // schema/messages.h
}

namespace kiln::cli {

// The --json object of a compiled program: file, graph_digest, program_key, cache, seconds, target,
// mode, launches, kernels[]; of one whose sizes vary also symbols[] and guards[].
nlohmann::ordered_json program_json(const std::string& file, const CompiledProgram& program);
nlohmann::ordered_json error_json(const std::string& file, const Error& error);

// The same of programs side by side: file, specialisations[], each with symbols and what the
// program's own object has.
nlohmann::ordered_json specialised_json(const std::string& file, const SpecialisedProgram& set);

// One paragraph about a compiled program, for people.
std::string program_text(const std::string& file, const CompiledProgram& program);

std::string specialised_text(const std::string& file, const SpecialisedProgram& set);

// "kiln: FILE: message", with what to do next, on stderr.
void print_error(const std::string& subject, const Error& error);
// The same, and with --json its object on stdout. The exit code that it means.
int report_failure(const Options& options, const std::string& file, const Error& error);

// Says on stderr that `program` was compiled here untimed though `wanted` asked for a search.
void note_fallback(const std::string& file, Mode wanted, const CompiledProgram& program);
// Says on stderr that Kiln's own kernels run where the program would call a library, and why.
void note_libraries(const std::string& file, const CompiledProgram& program);
// Says on stderr that the service has the program in memory only, if so.
void note_memory_only(const std::string& file, const CompiledProgram& program);

// A line on stderr that overwrites itself while a compile waits; nothing when stderr is no
// terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string subject);
  ~ProgressLine();  // wipes the line
  void show(const CompileProgress& progress);

 private:
  const std::string subject_;
  const bool terminal_;
  bool shown_ = false;
};

// `kiln stats`: pure functions of what a coordinator says of itself. Field names are a promise to
// scripts: only ever added to.
nlohmann::ordered_json stats_json(const Stats& stats);
// For people. With `before`, the same coordinator's statistics a while ago, also the rates since.
std::string stats_text(const std::string& endpoint, const Stats& stats,
                       const Stats* before = nullptr);
// One line of name=value fields for logs: rates since `before`, and what is open now.
std::string stats_line(const Stats& stats, const Stats& before);

}  // namespace kiln::cli
