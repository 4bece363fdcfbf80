// The part of the C interface (kiln.h) that gets programs without their graphs.
#include <fmt/format.h>

#include <algorithm>

#include "client/c_call.h"
#include "client/c_program.h"
#include "compiler_core/base/file.h"

using namespace kiln;

namespace {

Result<CompileOptions> loading_options(const kiln_compile_options* given) {
  const kiln_compile_options options = known(given);
  if (options.now != 0 || options.fetch_only != 0)
    return fail(
        Code::kInvalidArgument,
        "now and fetch_only: a program without its graph is loaded as it is, or not at all");
  return compile_options(options);
}

Result<std::unique_ptr<kiln_program>> load(Client& client, const Digest& graph,
                                           const CompileOptions& options, const LockedCall& call) {
  std::vector<int> places;
  for (const LockedInput& input : call.inputs) places.push_back(input.place);
  TRY(std::shared_ptr<const CompiledProgram> compiled, client.load(graph, options, places));
  return described(std::move(compiled), call);
}

std::string list_of(const std::vector<LockedProgram>& programs) {
  std::string list;
  for (const LockedProgram& each : programs)
    list +=
        fmt::format("{}'{}' for {}", list.empty() ? "" : ", ", each.file, each.target.to_string());
  return list;
}

// The one program of a lock file that the caller names.
Result<LockedProgram> named(const Path& path, const std::string& name, const char* target) {
  TRY(const std::string text, read_file(path));
  TRY(std::vector<LockedProgram> programs, parse_lock(text, path.string()));
  const std::string all = list_of(programs);
  if (target != nullptr) {
    TRY(const Target wanted, Target::parse(target));
    std::erase_if(programs, [&](const LockedProgram& each) {
      return each.target.backend != wanted.backend ||
             (!wanted.isa.empty() && each.target.isa != wanted.isa);
    });
  }
  if (!name.empty())
    std::erase_if(programs, [&](const LockedProgram& each) {
      return each.file != name && Path(each.file).stem() != name;
    });
  if (programs.size() == 1) return programs.front();
  if (programs.empty())
    return fail(Code::kInvalidArgument,
                fmt::format("{} has no program '{}'{}; it has {}", path.string(), name,
                            target == nullptr ? "" : fmt::format(" for {}", target), all));
  return fail(Code::kInvalidArgument, fmt::format("say which program of {} is meant: {}",
                                                  path.string(), list_of(programs)));
}

Result<std::unique_ptr<kiln_program>> load_locked(Client& client, const Path& path,
                                                  const std::string& name,
                                                  const kiln_compile_options* given) {
  TRY(CompileOptions options, loading_options(given));
  TRY(const LockedProgram locked, named(path, name, known(given).target));
  options.target = locked.target;
  options.mode = locked.mode;
  TRY(auto loaded, load(client, locked.graph, options, locked.call));
  const auto found = changes(locked, lock_of(locked.file, loaded->program->program(), locked.call));
  if (found.empty()) return loaded;
  return fail(Code::kNotFound,
              fmt::format("{} is not as {} has it: {}; `kiln lock` takes what there is now, `kiln "
                          "bundle` keeps what was",
                          locked.file, path.string(), found.front()));
}

Result<std::unique_ptr<kiln_program>> open_exported(Client& client, const Path& directory,
                                                    const std::string& signer,
                                                    const kiln_compile_options* given) {
  TRY(const CompileOptions options, loading_options(given));
  TRY(std::shared_ptr<const CompiledProgram> compiled,
      client.open_exported(directory, options, signer));
  // Inputs that it does not read stand between the others.
  LockedCall call;
  const auto order = compiled->input_order();
  if (!order.empty()) call.inputs.resize(static_cast<size_t>(std::ranges::max(order)) + 1);
  for (size_t place = 0; place < order.size(); ++place)
    call.inputs[static_cast<size_t>(order[place])].place = static_cast<int>(place);
  return described(std::move(compiled), call);
}

kiln_code give(Result<std::unique_ptr<kiln_program>> loaded, kiln_program** program) {
  if (!loaded) return failed(std::move(loaded).error());
  *program = loaded->release();
  return KILN_OK;
}

}  // namespace

extern "C" {

kiln_code kiln_load_digest(kiln_client* client, const char* digest,
                           const kiln_compile_options* given, kiln_program** program) {
  if (client == nullptr || digest == nullptr || program == nullptr)
    return missing("the client, the digest or the place for the program");
  const auto graph = Digest::parse(digest);
  if (!graph) return failed(graph.error());
  const auto options = loading_options(given);
  if (!options) return failed(options.error());
  return give(load(*client->client, *graph, *options, {}), program);
}
kiln_code kiln_load_locked(kiln_client* client, const char* path, const char* name,
                           const kiln_compile_options* options, kiln_program** program) {
  if (client == nullptr || path == nullptr || program == nullptr)
    return missing("the client, the path or the place for the program");
  return give(load_locked(*client->client, path, text(name), options), program);
}

kiln_code kiln_open_exported(kiln_client* client, const char* directory, const char* signer,
                             const kiln_compile_options* options, kiln_program** program) {
  if (client == nullptr || directory == nullptr || program == nullptr)
    return missing("the client, the directory or the place for the program");
  return give(open_exported(*client->client, directory, text(signer), options), program);
}

}  // extern "C"
