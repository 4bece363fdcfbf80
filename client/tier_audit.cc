#include "client/local_tier.h"

#include <set>

#include "cache/audit.h"

namespace kiln {
namespace {

// "" when the blob is what its name says.
std::string problem_of_blob(const Path& root, const Digest& digest, AuditReport& report) {
  const std::string name = digest.hex();
  const auto bytes = read_file(root / "blobs" / name.substr(0, 2) / name);
  if (!bytes) return bytes.error().code == Code::kNotFound ? "is missing" : bytes.error().message;
  ++report.blobs;
  report.bytes += static_cast<int64_t>(bytes->size());
  return Digest::of(*bytes) == digest ? "" : "was altered: its digest is another";
}

void audit_program(const Path& root, const LocalTier& tier, const Digest& key,
                   std::string_view signer, std::set<Digest>& seen, AuditReport& report) {
  const auto manifest = read_file(root / "programs" / (key.hex() + ".json"));
  if (!manifest) return;  // removed since it was listed
  ++report.programs;
  const auto add = [&](Finding::Kind kind, const Digest& subject, std::string problem) {
    report.findings.push_back({kind, subject, std::move(problem)});
  };
  if (const auto checked = tier.check(key, *manifest, signer); !checked)
    return add(Finding::Kind::kProgram, key, checked.error().message);
  const auto program = program_from_json(*manifest);
  if (!program) return add(Finding::Kind::kProgram, key, program.error().message);
  for (const ProgramKernel& kernel : program->kernels) {
    if (!seen.insert(kernel.blob).second) continue;
    if (std::string problem = problem_of_blob(root, kernel.blob, report); !problem.empty())
      add(Finding::Kind::kBlob, kernel.blob,
          "a binary of program " + key.short_hex() + " " + problem);
  }
}

}  // namespace

bool is_local_tier(const Path& root) {
  std::error_code ignored;
  return std::filesystem::is_directory(root / "programs", ignored) &&
         !std::filesystem::exists(root / "index.sqlite", ignored);
}

Result<AuditReport> audit_local_tier(const Path& root, std::string_view signer) {
  if (!is_local_tier(root))
    return fail(Code::kNotFound, root.string() + " is no client's cache directory");
  TRY(const auto tier, LocalTier::open(root));
  std::set<Digest> keys;  // in their order, so that two audits say the same
  std::error_code error;
  for (std::filesystem::directory_iterator file(root / "programs", error), end;
       !error && file != end; file.increment(error))
    if (file->path().extension() == ".json")
      if (const auto key = Digest::parse(file->path().stem().string())) keys.insert(*key);
  if (error) return fail(Code::kUnavailable, root.string() + ": " + error.message());
  AuditReport report;
  std::set<Digest> seen;
  for (const Digest& key : keys) audit_program(root, *tier, key, signer, seen, report);
  return report;
}

}  // namespace kiln
