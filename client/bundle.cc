#include "client/bundle.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

using SharedFiles = std::shared_ptr<const ProgramFiles>;

constexpr std::string_view kMagic = "kiln-bundle ";
constexpr int64_t kFormat = 1;
constexpr size_t kMaxBundleParts = 1 << 20;  // programs and binaries
constexpr size_t kTrailerBytes = 65;         // a digest in hex, and a newline

// Up to `end`, which is removed too; none: there is no such.
std::optional<std::string_view> take_until(std::string_view& text, char end) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + 1);
  return taken;
}

struct Part {
  bool is_program = false;
  int64_t bytes = 0;
  std::string_view who;   // the signature of a program, or the digest of a blob
  std::string_view text;  // what it is
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& name, std::string_view trusted)
      : whole_(text), what_("the bundle " + name), trusted_(trusted) {}

  Result<std::vector<SharedFiles>> read() {
    TRY_STATUS(check_format());
    TRY(std::vector<Part> parts, read_parts());
    TRY_STATUS(check_whole());
    if (trusted_.empty())
      return fail(Code::kInvalidArgument,
                  what_ +
                      " is code: say whose signature is good with --signer (the coordinator's "
                      "signing/ed25519.pub) or --key");
    // Signatures first: nothing that they do not cover is looked into.
    std::vector<std::pair<Signature, std::string_view>> manifests;
    std::unordered_map<Digest, std::string_view> blobs;
    for (const Part& part : parts) {
      if (part.is_program) {
        TRY(Signature signature, Signature::parse(part.who));
        TRY_STATUS(verify_signature(signed_program(part.text), signature, trusted_,
                                    fmt::format("program {} in {}", manifests.size() + 1, what_)));
        manifests.emplace_back(std::move(signature), part.text);
      } else {
        TRY(const Digest digest, Digest::parse(part.who).map_error([this](const Error&) {
          return damaged("a blob has no digest");
        }));
        blobs.emplace(digest, part.text);
      }
    }
    std::vector<SharedFiles> programs;
    for (auto& [signature, manifest] : manifests) {
      ProgramFiles files;
      TRY(files.program, program_from_json(manifest));
      files.manifest = manifest;
      files.signature = std::move(signature);
      TRY_STATUS(add_artifacts(blobs, files));
      programs.push_back(std::make_shared<const ProgramFiles>(std::move(files)));
    }
    return programs;
  }

 private:
  Error damaged(const std::string& why) const {
    return {Code::kCorruption, what_ + " is damaged, and nothing of it was loaded: " + why, 0};
  }

  Status check_format() {
    std::string_view text = whole_;
    const auto line = text.starts_with(kMagic) ? take_until(text, '\n') : std::nullopt;
    int64_t format = 0;
    const bool is_bundle = line && read_count(line->substr(kMagic.size()), format);
    if (!is_bundle)
      return fail(Code::kInvalidArgument,
                  what_ + " is none: `kiln bundle LIST -o FILE` writes one");
    if (format > kFormat)
      return fail(
          Code::kUnsupported,
          fmt::format("{} has format {}, which a newer Kiln wrote; this one reads up to {}: "
                      "update it",
                      what_, format, kFormat));
    rest_ = text;
    return {};
  }

  // The lines, and the bytes that each is about; the file has as many as they say.
  Result<std::vector<Part>> read_parts() {
    std::vector<Part> parts;
    size_t sum = 0;
    for (;;) {
      auto line = take_until(rest_, '\n');
      if (!line) return fail(damaged("it is cut short"));
      if (*line == "end") break;
      const auto kind = take_until(*line, ' ');
      const auto size_text = kind ? take_until(*line, ' ') : std::nullopt;
      int64_t size = 0;
      const bool is_sized = size_text && read_count(*size_text, size);
      const bool is_program = kind == "program";
      if (!is_sized || (!is_program && kind != "blob")) return fail(damaged("its list is altered"));
      if (static_cast<size_t>(size) > whole_.size()) return fail(damaged("it is cut short"));
      if (parts.size() == kMaxBundleParts) return fail(damaged("its list is too long"));
      sum += static_cast<size_t>(size);
      parts.push_back({is_program, size, *line, {}});
    }
    if (rest_.size() < sum + kTrailerBytes)
      return fail(damaged(fmt::format("it is cut short: {} bytes are missing",
                                      sum + kTrailerBytes - rest_.size())));
    if (rest_.size() > sum + kTrailerBytes) return fail(damaged("there are bytes behind its end"));
    for (Part& part : parts) {
      part.text = rest_.substr(0, static_cast<size_t>(part.bytes));
      rest_.remove_prefix(static_cast<size_t>(part.bytes));
    }
    return parts;
  }

  Status check_whole() const {
    const std::string_view body = whole_.substr(0, whole_.size() - kTrailerBytes);
    if (whole_.substr(body.size()) == Digest::of(body).hex() + "\n") return {};
    return fail(damaged("its digest is another than at its end"));
  }

  Status add_artifacts(const std::unordered_map<Digest, std::string_view>& blobs,
                       ProgramFiles& files) const {
    for (const ProgramKernel& kernel : files.program.kernels) {
      const auto found = blobs.find(kernel.blob);
      if (found == blobs.end())
        return fail(damaged("binary " + kernel.blob.short_hex() + " is missing"));
      if (Digest::of(found->second) != kernel.blob)
        return fail(damaged("binary " + kernel.blob.short_hex() + " was altered"));
      files.artifacts.push_back(artifact_of(kernel, std::string(found->second)));
    }
    return {};
  }

  const std::string_view whole_;
  const std::string what_;
  const std::string_view trusted_;
  std::string_view rest_;
};

}  // namespace

Result<std::string> print_bundle(std::span<const SharedFiles> programs) {
  if (programs.empty()) return fail(Code::kInvalidArgument, "there is no program to bundle");
  std::string head = fmt::format("{}{}\n", kMagic, kFormat), body;
  std::unordered_set<Digest> manifests, blobs;
  for (const SharedFiles& files : programs) {
    if (files->signature.bytes.empty())
      return fail(
          Code::kInvalidArgument,
          fmt::format("program {} was compiled on this machine, and no coordinator signed it: "
                      "nobody could trust it",
                      files->program.key.short_hex()));
    if (!manifests.insert(Digest::of(files->manifest)).second) continue;
    head += fmt::format("program {} {}\n", files->manifest.size(), files->signature.to_string());
    body += files->manifest;
  }
  for (const SharedFiles& files : programs)
    for (const Artifact& artifact : files->artifacts)
      if (blobs.insert(artifact.digest).second) {
        head += fmt::format("blob {} {}\n", artifact.binary.size(), artifact.digest.hex());
        body += artifact.binary;
      }
  std::string whole = head + "end\n" + body;
  if (std::ssize(whole) + std::ssize(Digest().hex()) >= kMaxBundleBytes)
    return fail(Code::kInvalidArgument,
                fmt::format("the bundle would have {} bytes, and has at most {}: bundle fewer "
                            "programs at once",
                            whole.size(), kMaxBundleBytes));
  return whole + Digest::of(whole).hex() + "\n";
}

Result<std::string> read_bundle(const Path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(Code::kInvalidArgument,
                file.string() + " is no regular file: `kiln bundle LIST -o FILE` writes a bundle");
  const auto bytes = std::filesystem::file_size(file, error);
  if (!error && bytes > static_cast<uintmax_t>(kMaxBundleBytes))
    return fail(Code::kInvalidArgument,
                fmt::format("{} has {} bytes, and a bundle at most {}: bundle fewer programs",
                            file.string(), bytes, kMaxBundleBytes));
  return read_file(file);
}

Result<std::vector<SharedFiles>> parse_bundle(std::string_view text, const std::string& name,
                                              std::string_view trusted) {
  return Reader(text, name, trusted).read();
}

SharedFiles find_in_bundle(std::span<const SharedFiles> programs, const Digest& graph,
                           const Target& wanted, Mode mode) {
  const auto fit = [&](const Target& target) {
    return (target.isa == wanted.isa) + 2 * (target.device_model == wanted.device_model) +
           2 * (target.units == wanted.units);
  };
  SharedFiles best;
  for (const SharedFiles& files : programs) {
    const Program& program = files->program;
    if (program.graph != graph || program.mode != mode || !wanted.can_run(program.target)) continue;
    if (best == nullptr || fit(program.target) > fit(best->program.target)) best = files;
  }
  return best;
}

}  // namespace kiln
