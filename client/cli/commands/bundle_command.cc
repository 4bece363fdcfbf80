// `kiln bundle`: programs of a service as one file. `kiln load`: what is in such a file, and where
// it is kept.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/session.h"
#include "client/compiled_program.h"
#include "client/loaded_bundles.h"
#include "client/lock_file.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {
namespace {

using SharedFiles = std::shared_ptr<const ProgramFiles>;

// A program to bundle.
struct Listed {
  std::string file;
  Target target;
  Mode mode = Mode::kDefault;
  Digest digest{};  // pinned_digest(), of one from a lock file; else zero
};

bool is_model(std::string_view text) {
  return text.starts_with("PK\x03\x04") || text.starts_with("kiln.graph ");
}

// One line of a list: FILE [TARGET [MODE]], where FILE is as seen from the list's folder.
Result<Listed> listed_line(const Path& folder, std::string_view line, Options options) {
  std::vector<std::string> words;
  for (size_t start = 0; (start = line.find_first_not_of(" \t\r", start)) < line.size();) {
    const size_t end = std::min(line.find_first_of(" \t\r", start), line.size());
    words.emplace_back(line.substr(start, end - start));
    start = end;
  }
  if (words.size() > 3) return fail(Code::kInvalidArgument, "a line is FILE [TARGET [MODE]]");
  if (words.size() > 1) options.target = words[1];
  if (words.size() > 2) options.mode = words[2];
  TRY(const CompileOptions compile, compile_options(options));
  return Listed{(folder / words[0]).lexically_normal(), compile.target, compile.mode};
}

// A model stands for itself; a lock file or a list for what it names.
Status add_listed(const Options& options, const std::string& name, std::vector<Listed>& programs) {
  TRY(const std::string text, read_file(name));
  const Path folder = Path(name).parent_path();
  if (is_model(text)) {
    TRY(const CompileOptions compile, compile_options(options));
    programs.push_back({name, compile.target, compile.mode});
  } else if (is_lock(text)) {
    TRY(const auto locked, parse_lock(text, name));
    for (const LockedProgram& each : locked)
      programs.push_back(
          {(folder / each.file).lexically_normal(), each.target, each.mode, each.digest});
  } else {
    std::string_view rest = text;
    for (int number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      line = line.substr(0, line.find('#'));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      auto listed = listed_line(folder, line, options);
      if (!listed) return fail(listed.error().within(fmt::format("{}, line {}", name, number)));
      programs.push_back(*std::move(listed));
    }
  }
  return {};
}

// From a cache: a bundle starts no search.
Result<SharedFiles> files_of(Client& client, CompileOptions compile, const Listed& listed) {
  TRY(const ExportedProgram exported, read_graph_file(listed.file));
  compile.target = listed.target;
  compile.mode = listed.mode;
  TRY(const auto program, client.look_up(exported.graph, compile));
  if (!listed.digest.is_zero() && pinned_digest(program->program()) != listed.digest)
    return fail(Code::kInternal, "it is not as locked: `kiln compile --locked` says what changed");
  ProgramFiles files{program->program(), {}, program->manifest(), {}};
  files.artifacts.assign(program->artifacts().begin(), program->artifacts().end());
  TRY(files.signature, Signature::parse(program->signature()));
  return std::make_shared<const ProgramFiles>(std::move(files));
}

nlohmann::ordered_json bundled_json(const std::vector<SharedFiles>& programs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SharedFiles& files : programs) {
    const Program& program = files->program;
    size_t bytes = files->manifest.size();
    for (const Artifact& artifact : files->artifacts) bytes += artifact.binary.size();
    list.push_back({{"program_key", program.key.hex()},
                    {"graph_digest", program.graph.hex()},
                    {"target", program.target.to_string()},
                    {"device", program.target.device_model},
                    {"mode", to_string(program.mode)},
                    {"kernels", program.kernels.size()},
                    {"bytes", bytes}});
  }
  return list;
}

std::string bundled_text(const std::vector<SharedFiles>& programs) {
  std::string text;
  for (const SharedFiles& files : programs) {
    const Program& program = files->program;
    text += fmt::format("  graph {}  {} {}  kernels {}  {}\n", program.graph.short_hex(),
                        program.target.to_string(), to_string(program.mode), program.kernels.size(),
                        program.target.device_model);
  }
  return text;
}

std::string size_text(size_t bytes) {
  constexpr double kKiB = 1024;
  const double kib = static_cast<double>(bytes) / kKiB;
  return kib < kKiB ? fmt::format("{:.1f} KiB", kib) : fmt::format("{:.1f} MiB", kib / kKiB);
}

int report_bundle_failure(const Options& options, const std::string& file, const Error& error) {
  const int code = report_failure(options, file, error);
  return error.code == Code::kUnsupported ? static_cast<int>(kBadInput) : code;
}

}  // namespace

int bundle_command(const Options& options) {
  Options looking = options;
  looking.check = true;  // no fallback: what is compiled here is signed by nobody
  const auto compile = compile_options(looking);
  if (!compile) return report_failure(options, "", compile.error());
  std::vector<Listed> listed;
  for (const std::string& name : options.files)
    if (const Status added = add_listed(looking, name, listed); !added)
      return report_bundle_failure(options, "", added.error());
  const auto client = make_client(looking);
  if (!client) return report_failure(options, "", client.error());
  // Every program is looked for, so that all that is missing is named; then all or nothing.
  std::vector<SharedFiles> programs;
  int code = kDone;
  for (const Listed& each : listed) {
    auto files = files_of(**client, *compile, each);
    if (files) {
      programs.push_back(*std::move(files));
      continue;
    }
    const bool miss = files.error().code == Code::kNotFound && std::filesystem::exists(each.file);
    if (miss)
      files.error().message = fmt::format("not in the cache for {} {}: `kiln warm` tunes it",
                                          each.target.to_string(), to_string(each.mode));
    const int one = report_failure(options, each.file, files.error());
    if (code == kDone) code = miss ? static_cast<int>(kMiss) : one;
  }
  if (code != kDone) return code;
  const auto text = print_bundle(programs);
  if (!text) return report_failure(options, "", text.error());
  if (const Status written = publish_file(options.out, *text); !written)
    return report_failure(options, "", written.error());
  const std::string signer = to_hex(programs.front()->signature.signer);
  if (options.json) {
    const nlohmann::ordered_json object = {{"file", options.out},
                                           {"signer", signer},
                                           {"bytes", text->size()},
                                           {"programs", bundled_json(programs)}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    fmt::print("{}  {} programs, {}, signed by {}\n{}", options.out, programs.size(),
               size_text(text->size()), signer, bundled_text(programs));
  }
  return kDone;
}

int load_command(const Options& options) {
  const std::string& file = options.files.front();
  const auto signer = expected_signer(options);
  if (!signer) return report_failure(options, "", signer.error());
  const auto text = read_bundle(file);
  if (!text) return report_failure(options, "", text.error());
  const auto programs = parse_bundle(*text, file, *signer);
  if (!programs) return report_bundle_failure(options, "", programs.error());
  if (!options.cache_dir.empty())
    if (const Status kept = LoadedBundles::install(options.cache_dir, *text, *signer); !kept)
      return report_failure(options, "", kept.error().within("--cache-dir"));
  if (options.json) {
    const nlohmann::ordered_json object = {{"file", file},
                                           {"signer", to_hex(*signer)},
                                           {"bytes", text->size()},
                                           {"cache_dir", options.cache_dir},
                                           {"programs", bundled_json(*programs)}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    fmt::print("{}  {} programs, {}, every signature and digest is good{}\n{}", file,
               programs->size(), size_text(text->size()),
               options.cache_dir.empty() ? "" : "; kept in " + options.cache_dir,
               bundled_text(*programs));
  }
  return kDone;
}

}  // namespace kiln::cli
