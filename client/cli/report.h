// The output of `kiln`: tables for people, objects with stable field names for scripts, and one
// progress line on a terminal. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/cli/interruption.h"
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

// A Unix time: "2026-01-31T12:00:00Z".
std::string time_text(int64_t ms);

// One paragraph about a compiled program, for people.
std::string program_text(const std::string& file, const CompiledProgram& program);

std::string specialised_text(const std::string& file, const SpecialisedProgram& set);

// "kiln: WHAT" on stderr.
void say(const std::string& what);
// "kiln: FILE: message" on stderr.
void print_error(const std::string& subject, const Error& error);
// The same of what a service was asked, with what to do next.
void print_error(const Options& options, const std::string& subject, const Error& error);
// The same, and with --json its object on stdout. The exit code that it means.
int report_failure(const Options& options, const std::string& file, const Error& error);

// Says on stderr that Kiln's own kernels run where the program would call a library, and why.
void note_libraries(const std::string& file, const CompiledProgram& program);
// Says on stderr that the service has the program in memory only, if so.
void note_memory_only(const std::string& file, const CompiledProgram& program);

// Says on stderr that a program which was compiled here is gone when we end, if so.
void note_kept_nowhere(const Options& options, const std::string& file,
                       const CompiledProgram& program);

// "m.pt2  kernels 3/28  candidates 40/354  9.8 s, about 77 s left  waits: ...".
std::string progress_text(const std::string& subject, Mode mode, const CompileProgress& progress);

// Progress on stderr while a compile waits: on a terminal a line that overwrites itself, elsewhere
// one every ten seconds, and with --quiet none. A signal ends the line, and the work here.
class ProgressLine {
 public:
  ProgressLine(std::string subject, const Options& options);
  ~ProgressLine();  // wipes the line of a terminal
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const CompileProgress& progress);

 private:
  const std::string subject_;
  const Mode mode_;
  const bool quiet_, terminal_;
  const Interruption interruption_;
  bool shown_ = false;
  double last_s_ = 0;  // when a line was last shown, since the compile began
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
