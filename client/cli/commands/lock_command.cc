// `kiln lock`, and `kiln compile --locked`, which holds a build to what it wrote.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "client/exported_binding.h"
#include "client/lock_file.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {
namespace {

nlohmann::ordered_json lock_json(const LockedProgram& program) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const LockedKernel& kernel : program.kernels)
    kernels.push_back({{"workload", kernel.workload.hex()},
                       {"blob", kernel.blob.hex()},
                       {"schedule", kernel.schedule}});
  return {{"file", program.file},
          {"target", program.target.to_string()},
          {"device", program.target.device_model},
          {"mode", to_string(program.mode)},
          {"graph_digest", program.graph.hex()},
          {"digest", program.digest.hex()},
          {"kernels", std::move(kernels)}};
}

// Locks a program as a service gives it to every machine: never one that was compiled here.
Result<LockedProgram> lock_file(Client& client, const Options& options, CompileOptions compile,
                                const std::string& file) {
  if (file.find('\n') != std::string::npos)
    return fail(Code::kInvalidArgument, "a file's name with a line break cannot be locked");
  TRY(const ExportedProgram exported, read_graph_file(file));
  ProgressLine line(file, options);
  compile.on_progress = [&line](const CompileProgress& progress) { line.show(progress); };
  compile.verify = true;  // what is locked is to be what is stored
  TRY(const auto program, client.fetch(exported.graph, compile));
  LockedCall call = LockedCall::of(exported, program->input_order());
  if (std::ranges::any_of(call.inputs, [](const LockedInput& input) {
        return input.name.find('\n') != std::string::npos;
      }))
    return fail(Code::kInvalidArgument, "an input's name with a line break cannot be locked");
  return lock_of(file, program->program(), std::move(call));
}

int refuse(const Options& options, const std::string& file, const std::vector<std::string>& found) {
  if (options.json) {
    const nlohmann::ordered_json object = {{"file", file}, {"locked", false}, {"changes", found}};
    std::printf("%s\n", object.dump().c_str());
  }
  for (const std::string& change : found)
    std::fprintf(stderr, "kiln: %s: not as locked: %s\n", file.c_str(), change.c_str());
  std::fprintf(stderr,
               "kiln: %s: `kiln lock` takes what there is now; `kiln bundle` keeps what was\n",
               file.c_str());
  return kAnswerIsNo;
}

int compile_as_locked(Client& client, const Options& options, const CompileOptions& compile,
                      const LockedProgram& locked) {
  const std::string& file = locked.file;
  const auto exported = read_graph_file(file);
  if (!exported) return report_failure(options, file, exported.error());
  // Nothing is tuned for it: a new search could only find something else.
  CompileOptions wanted = compile;
  wanted.target = locked.target;
  wanted.mode = locked.mode;
  const auto program = client.look_up(exported->graph, wanted);
  if (!program && program.error().code == Code::kNotFound) {
    if (options.json) std::printf("%s\n", error_json(file, program.error()).dump().c_str());
    std::fprintf(stderr,
                 "kiln: %s: not in the cache any more, or the model changed; --locked "
                 "tunes nothing: `kiln lock` does\n",
                 file.c_str());
    return kMiss;
  }
  if (!program) return report_failure(options, file, program.error());
  const auto found = changes(locked, lock_of(file, (*program)->program(),
                                             LockedCall::of(*exported, (*program)->input_order())));
  if (!found.empty()) return refuse(options, file, found);
  if (!options.out.empty())
    if (const Status written = export_program(**program, file, options.out,
                                              {options.coordinator, options.key, {}}, say);
        !written)
      return report_failure(options, file, written.error().within("--out"));
  if (options.json) {
    auto object = program_json(file, **program);
    object["locked"] = true;
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::fputs(program_text(file, **program).c_str(), stdout);
  }
  return kDone;
}

}  // namespace

int lock_command(const Options& options) {
  Options from_service = options;
  from_service.no_fallback = true;
  const auto compile = compile_options(from_service);
  if (!compile) return report_failure(options, "", compile.error());
  const auto client = make_client(from_service);
  if (!client) return report_failure(options, "", client.error());
  // All or nothing: half a lock file would pass for a whole one.
  std::vector<LockedProgram> programs;
  int code = kDone;
  for (const std::string& file : options.files) {
    auto locked = lock_file(**client, options, *compile, file);
    if (locked) {
      programs.push_back(*std::move(locked));
    } else {
      const int one = report_failure(options, file, locked.error());
      if (code == kDone) code = one;
    }
  }
  if (code != kDone) return code;
  if (options.json)
    for (const LockedProgram& program : programs)
      std::printf("%s\n", lock_json(program).dump().c_str());
  else
    std::fputs(print_lock(programs).c_str(), stdout);
  return kDone;
}

int compile_locked(const Options& options) {
  const auto text = read_file(options.lock_file);
  if (!text) return report_failure(options, options.lock_file, text.error());
  const auto locked = parse_lock(*text, options.lock_file);
  if (!locked) {
    print_error("", locked.error());
    return kBadInput;
  }
  Options looking = options;
  looking.check = true;  // no fallback
  const auto compile = compile_options(looking);
  if (!compile) return report_failure(options, "", compile.error());
  const auto client = make_client(looking);
  if (!client) return report_failure(options, "", client.error());
  int code = kDone;
  for (const std::string& file : options.files) {
    bool named = false;
    for (const LockedProgram& program : *locked) {
      if (Path(program.file).lexically_normal() != Path(file).lexically_normal()) continue;
      named = true;
      const int one = compile_as_locked(**client, options, *compile, program);
      if (code == kDone) code = one;
    }
    if (named) continue;
    const int one = report_failure(
        options, file,
        {Code::kInvalidArgument,
         fmt::format("{} does not name it: `kiln lock` makes it anew", options.lock_file), 0});
    if (code == kDone) code = one;
  }
  return code;
}

}  // namespace kiln::cli
