#include "client/exported_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/bundle.h"
#include "client/exported_binding.h"
#include "compiler_core/compile/local.h"

namespace kiln {
namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 30;

// Reads a file of a directory that nobody vouches for yet. Pipes and devices, which may never end, are
// refused.
Result<std::string> read_bounded(const Path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && (!std::filesystem::is_regular_file(status) ||
                                          std::filesystem::file_size(file, error) > kMaxFileBytes))
    return fail(Code::kCorruption, fmt::format("{} is no regular file of at most {} bytes, and the "
                                               "program was not loaded",
                                               file.string(), kMaxFileBytes));
  return read_file(file);
}

// A file that is absent says as much as an empty one.
Result<std::string> read_if_there(const Path& file) {
  auto text = read_bounded(file);
  if (!text && text.error().code == Code::kNotFound) return std::string();
  return text;
}

std::string binary_name(const Digest& digest, bool is_cuda) {
  return digest.hex() + (is_cuda ? ".cubin" : ".so");
}

Result<Artifact> read_artifact(const Path& directory, const ProgramKernel& kernel, bool is_cuda) {
  const Path file = directory / binary_name(kernel.blob, is_cuda);
  auto binary = read_bounded(file);
  if (!binary && binary.error().code == Code::kNotFound)
    return fail(Code::kCorruption, file.string() + " is missing, and the program was not loaded");
  if (!binary) return fail(std::move(binary).error());
  if (Digest::of(*binary) != kernel.blob)
    return fail(Code::kCorruption, file.string() +
                                       " was altered: its digest is another than the signed "
                                       "manifest says, and the program was not loaded");
  return artifact_of(kernel, *std::move(binary));
}

}  // namespace

Status write_exported(const CompiledProgram& program, std::string_view binding,
                      const Path& directory) {
  TRY_STATUS(make_directories(directory));
  const bool is_cuda = program.program().target.backend == Backend::kCuda;
  for (const Artifact& artifact : program.artifacts())
    TRY_STATUS(publish_file(directory / binary_name(artifact.digest, is_cuda), artifact.binary));
  // Signatures of an earlier program in this directory would not be this one's.
  const Path signature_file = directory / "manifest.sig";
  std::error_code ignored;
  for (const Path& earlier : {signature_file, directory / "binding.sig"})
    std::filesystem::remove(earlier, ignored);
  TRY_STATUS(publish_file(directory / "binding.json", binding));
  if (const std::string signature = program.signature(); !signature.empty())
    TRY_STATUS(publish_file(signature_file, signature + "\n"));
  return publish_file(directory / "manifest.json", program.manifest());
}

namespace {

Result<std::string> read_manifest(const Path& directory) {
  TRY(std::string manifest, read_if_there(directory / "manifest.json"));
  if (!manifest.empty()) return manifest;
  return fail(Code::kNotFound, directory.string() +
                                   " holds no manifest.json: `kiln compile FILE --out DIR` "
                                   "writes one");
}

// What `files.manifest` names.
Status read_program(const Path& directory, ProgramFiles& files) {
  TRY(files.program, program_from_json(files.manifest));
  const bool is_cuda = files.program.target.backend == Backend::kCuda;
  for (const ProgramKernel& kernel : files.program.kernels) {
    TRY(Artifact artifact, read_artifact(directory, kernel, is_cuda));
    files.artifacts.push_back(std::move(artifact));
  }
  return {};
}

// The model's input for each of the program's.
Result<std::vector<int>> read_input_order(const Path& file, const Program& program) {
  constexpr int kMostInputs = 1 << 20;
  TRY(const std::string binding, read_if_there(file));
  const auto json = nlohmann::json::parse(binding, nullptr, false);
  const auto list =
      json.is_object() ? json.value("input_order", nlohmann::json()) : nlohmann::json();
  std::vector<int> order;
  for (const auto& each : list.is_array() ? list : nlohmann::json::array()) {
    const bool is_place =
        each.is_number_integer() && each.get<int64_t>() >= 0 && each.get<int64_t>() < kMostInputs;
    order.push_back(is_place ? each.get<int>() : -1);
  }
  std::vector<int> sorted = order;
  std::ranges::sort(sorted);
  const bool is_distinct = std::ranges::adjacent_find(sorted) == sorted.end();
  const auto inputs = std::ranges::count(program.buffers, Buffer::Kind::kInput, &Buffer::kind);
  if (list.is_array() && std::ssize(order) == inputs && is_distinct &&
      (sorted.empty() || sorted[0] >= 0))
    return order;
  return fail(Code::kCorruption,
              file.string() + " does not say which input of the model each of the program's is");
}

}  // namespace

Result<ProgramFiles> read_exported(const Path& directory, std::string_view trusted) {
  const std::string what = "the program in " + directory.string();
  ProgramFiles files;
  TRY(files.manifest, read_manifest(directory));
  if (trusted.empty())
    return fail(Code::kInvalidArgument,
                what +
                    " is code: say whose signature is good with --signer (the coordinator's "
                    "signing/ed25519.pub) or --key");
  TRY(const std::string line, read_if_there(directory / "manifest.sig"));
  TRY(files.signature, Signature::parse(first_line(line)));
  TRY_STATUS(verify_signature(signed_program(files.manifest), files.signature, trusted, what));
  TRY(const std::string binding_line, read_if_there(directory / "binding.sig"));
  if (!binding_line.empty()) {
    TRY(const std::string binding, read_if_there(directory / "binding.json"));
    TRY(const Signature signature, Signature::parse(first_line(binding_line)));
    TRY_STATUS(verify_binding(binding, signature, files.manifest, trusted,
                              (directory / "binding.json").string()));
  }
  TRY_STATUS(read_program(directory, files));
  return files;
}

Result<BoundFiles> read_bound(const Path& directory, std::optional<std::string_view> trusted) {
  ProgramFiles files;
  if (trusted) {
    TRY(files, read_exported(directory, *trusted));
    TRY(const std::string signature, read_if_there(directory / "binding.sig"));
    if (signature.empty())
      return fail(Code::kPermissionDenied,
                  (directory / "binding.json").string() +
                      ", which says what input is which, is unsigned: give the model, or compile "
                      "it again with a coordinator that signs");
  } else {
    TRY(files.manifest, read_manifest(directory));
    TRY_STATUS(read_program(directory, files));
  }
  BoundFiles bound;
  TRY(bound.input_order, read_input_order(directory / "binding.json", files.program));
  for (const int input : bound.input_order)
    bound.inputs = std::max(bound.inputs, static_cast<size_t>(input) + 1);
  bound.files = std::make_shared<const ProgramFiles>(std::move(files));
  return bound;
}

Status check_runs_here(const Program& program, const Target& here, const Path& place) {
  if (here.can_run(program.target)) return {};
  return fail(Code::kUnsupported,
              fmt::format("the program in {} is for {}, and this machine is {}", place.string(),
                          program.target.to_string(), here.to_string()));
}

namespace {

Result<std::shared_ptr<const ProgramFiles>> read_from_bundle(const Path& file,
                                                             std::string_view trusted,
                                                             const Digest& graph,
                                                             const Target& wanted, Mode mode) {
  TRY(const std::string text, read_bundle(file));
  TRY(const auto programs, parse_bundle(text, file.string(), trusted));
  const Mode other = mode == Mode::kDefault ? Mode::kMaxAutotune : Mode::kDefault;
  for (const Mode each : {mode, other})
    if (auto found = find_in_bundle(programs, graph, wanted, each)) return found;
  const bool has_graph = std::ranges::any_of(
      programs, [&](const auto& files) { return files->program.graph == graph; });
  return fail(has_graph ? Code::kUnsupported : Code::kInvalidArgument,
              fmt::format("the bundle {} has no program of graph {} for {}: `kiln load {}` lists "
                          "what it has",
                          file.string(), graph.short_hex(), wanted.to_string(), file.string()));
}

}  // namespace

Result<std::shared_ptr<const ProgramFiles>> read_exported_for(const Path& place,
                                                              std::string_view trusted,
                                                              const Digest& graph,
                                                              const Target& wanted, Mode mode) {
  std::error_code none;
  if (std::filesystem::is_regular_file(place, none))
    return read_from_bundle(place, trusted, graph, wanted, mode);
  TRY(ProgramFiles files, read_exported(place, trusted));
  if (files.program.graph != graph)
    return fail(Code::kInvalidArgument,
                fmt::format("the program in {} is of graph {}, and this is graph {}",
                            place.string(), files.program.graph.short_hex(), graph.short_hex()));
  TRY_STATUS(check_runs_here(files.program, wanted, place));
  return std::make_shared<const ProgramFiles>(std::move(files));
}

Result<std::string> read_signer(const std::string& hex_or_file) {
  if (auto key = parse_public_key(hex_or_file)) return key;
  const auto text = read_file(hex_or_file);
  if (text)
    if (auto key = parse_public_key(first_line(*text))) return key;
  return fail(Code::kInvalidArgument, "--signer " + hex_or_file +
                                          " is neither a public signing key (64 hex digits) nor a "
                                          "file with one");
}

}  // namespace kiln
