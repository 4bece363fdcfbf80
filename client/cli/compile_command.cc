#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/export_program.h"
#include "client/cli/hints.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "compiler_core/frontend/graph_file.h"

namespace kiln::cli {
namespace {

Result<std::unique_ptr<SpecialisedProgram>> specialised(Client& client, const Options& options,
                                                        CompileOptions compile,
                                                        const std::string& file) {
  if (!options.out.empty())
    return fail(Code::kInvalidArgument, "--out takes one program; --hint may make several");
  TRY(const ExportedProgram exported, read_graph_file(file));
  TRY(compile.hints, parse_hints(options.hints, exported));
  ProgressLine line(file);
  compile.on_progress = [&line](const CompileProgress& progress) { line.show(progress); };
  return client.compile_specialised(exported.graph, compile);  // every part is compiled here
}

// One program for each part of the sizes that the hints make.
int compile_parts(Client& client, const Options& options, CompileOptions compile,
                  const std::string& file) {
  const auto set = specialised(client, options, std::move(compile), file);
  if (!set) {
    if (options.json) std::printf("%s\n", error_json(file, set.error()).dump().c_str());
    print_error(file, set.error());
    return options.check && set.error().code == Code::kNotFound ? kMiss : exit_code_of(set.error());
  }
  std::fputs(
      (options.json ? specialised_json(file, **set).dump() + "\n" : specialised_text(file, **set))
          .c_str(),
      stdout);
  std::fflush(stdout);
  return kDone;
}

// Compiles one file and prints what came of it.
int compile_file(Client& client, const Options& options, CompileOptions compile,
                 const std::string& file) {
  if (!options.hints.empty()) return compile_parts(client, options, std::move(compile), file);
  Result<std::unique_ptr<CompiledProgram>> program = fail(Code::kInternal, "not asked");
  {
    ProgressLine line(file);
    compile.on_progress = [&line](const CompileProgress& progress) { line.show(progress); };
    program = client.compile_file(file, compile);
  }
  if (program && !options.out.empty())
    if (const Status written = export_program(**program, options.out); !written)
      program = fail(written.error().within("--out"));
  if (program) {
    note_fallback(file, compile.mode, **program);
    note_memory_only(file, **program);
    if (options.json)
      std::printf("%s\n", program_json(file, **program).dump().c_str());
    else
      std::fputs(program_text(file, **program).c_str(), stdout);
    std::fflush(stdout);
    return kDone;
  }
  const Error& error = program.error();
  const bool miss = options.check && error.code == Code::kNotFound && std::filesystem::exists(file);
  if (options.json) std::printf("%s\n", error_json(file, error).dump().c_str());
  if (miss)
    std::fprintf(stderr, "kiln: %s: not in the cache\n", file.c_str());
  else
    print_error(file, error);
  return miss ? kMiss : exit_code_of(error);
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
  // To get a program for a GPU takes none.
  compile->load = compile->target.backend == Backend::kCpu && !options.warm_up;
  compile->warm_up = options.warm_up;
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
  return code;
}

}  // namespace kiln::cli
