#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/command_trace.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "client/exported_binding.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {
namespace {

// Gets the program of one graph, with a progress line. Loads nothing, so code for a GPU needs none
// here.
SpecialisedProgram::Compile getter(Client& client, const Options& options,
                                   const CompileOptions& compile, const std::string& file) {
  return [&, wanted = compile](const Graph& graph) mutable {
    ProgressLine line(file, options);
    wanted.on_progress = [&line](const CompileProgress& progress) { line.show(progress); };
    return options.check ? client.look_up(graph, wanted) : client.fetch(graph, wanted);
  };
}

// One program for each part of the sizes that the hints make.
Result<std::string> compile_parts(Client& client, const Options& options,
                                  const CompileOptions& compile, const std::string& file) {
  if (!options.out.empty())
    return fail(Code::kInvalidArgument, "--out takes one program; --hint may make several");
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(const Hints hints, parse_hints(options.hints, exported));
  TRY(auto parts, parts_of_hints(exported.graph.symbols(), hints));
  TRY(const auto set, SpecialisedProgram::make(exported.graph, std::move(parts),
                                               getter(client, options, compile, file)));
  return options.json ? specialised_json(file, *set).dump() + "\n" : specialised_text(file, *set);
}

Result<std::string> compile_one(Client& client, const Options& options,
                                const CompileOptions& compile, const std::string& file) {
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(const auto program, getter(client, options, compile, file)(exported.graph));
  if (!options.out.empty())
    if (const Status written = export_program(*program, file, options.out,
                                              {options.coordinator, options.key, {}}, say);
        !written)
      return fail(written.error().within("--out"));
  note_memory_only(file, *program);
  note_libraries(file, *program);
  note_kept_nowhere(options, file, *program);
  return options.json ? program_json(file, *program).dump() + "\n" : program_text(file, *program);
}

// Compiles one file and prints the outcome.
int compile_file(Client& client, const Options& options, const CompileOptions& compile,
                 const std::string& file) {
  const auto text = options.hints.empty() ? compile_one(client, options, compile, file)
                                          : compile_parts(client, options, compile, file);
  if (text) {
    std::fputs(text->c_str(), stdout);
    std::fflush(stdout);
    return kDone;
  }
  const bool miss =
      options.check && text.error().code == Code::kNotFound && std::filesystem::exists(file);
  if (!miss) return report_failure(options, file, text.error());
  if (options.json) std::printf("%s\n", error_json(file, text.error()).dump().c_str());
  std::fprintf(stderr, "kiln: %s: not in the cache\n", file.c_str());
  return kMiss;
}

}  // namespace

int compile_command(const Options& options) {
  auto compile = compile_options(options);
  if (!compile) {
    print_error("", compile.error());
    return exit_code_of(compile.error());
  }
  if (!options.out.empty() && options.files.size() > 1) {
    print_error("", {Code::kInvalidArgument, "--out takes the program of one FILE", 0});
    return kBadInput;
  }
  if (std::error_code none; std::filesystem::is_regular_file(options.out, none)) {
    print_error("",
                {Code::kInvalidArgument, "--out: " + options.out + " is a file, no directory", 0});
    return kBadInput;
  }
  if (options.locked) return compile_locked(options);
  CommandTrace trace(options, options.warm_up ? "warm" : "compile");
  trace.follow(*compile);
  auto client = make_client(options);
  if (!client) {
    print_error("", client.error());
    return exit_code_of(client.error());
  }
  // Every file is tried; the first failure decides the exit code.
  int code = kDone;
  for (const std::string& file : options.files) {
    compile->on_message = [&file](const std::string& message) {
      std::fprintf(stderr, "kiln: %s: %s\n", file.c_str(), message.c_str());
    };
    const int one = compile_file(**client, options, *compile, file);
    if (code == kDone) code = one;
  }
  trace.ended(code);
  return code;
}

}  // namespace kiln::cli
