#include "client/local_tier.h"

#include <cstdlib>
#include <ctime>

#include "compiler_core/base/file.h"
#include "compiler_core/base/own_directory.h"
#include "compiler_core/base/unsynced_file.h"

namespace kiln {
namespace {

// A failed read says nothing about the content of the file: it is no reason to remove it.
bool is_the_machines(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kInternal;
}

}  // namespace

Result<std::unique_ptr<LocalTier>> LocalTier::open(const Path& root, int64_t max_bytes) {
  if (Status made = make_directories(root / "programs"); !made) {
    made.error().code = Code::kUnavailable;
    return fail(made.error().within("the cache directory"));
  }
  // Both hold code, or the key that says which code is trusted.
  for (const Path& folder : {root, root / "programs"}) TRY_STATUS(check_ours(folder));
  TRY(std::unique_ptr<BlobStore> blobs,
      BlobStore::open(root / "blobs", BlobStore::Keeps::kWhileItCan));
  TRY_STATUS(check_ours(root / "blobs"));
  return std::unique_ptr<LocalTier>(new LocalTier(root, std::move(blobs), max_bytes));
}

std::vector<Path> LocalTier::files_of(const Digest& key, const Program& program) const {
  std::vector<Path> files = {file(key, ".json"), file(key, ".sig"), file(key, ".put")};
  for (const ProgramKernel& kernel : program.kernels)
    files.push_back(BlobStore::path_of(shards_, kernel.blob));
  return files;
}

void LocalTier::remove(const Digest& key) const {
  std::error_code ignored;
  std::filesystem::remove(file(key, ".json"), ignored);
  std::filesystem::remove(file(key, ".sig"), ignored);
  std::filesystem::remove(file(key, ".put"), ignored);
}

std::chrono::seconds LocalTier::age(const Digest& key) const {
  const auto put_s = std::strtoll(read_file(file(key, ".put")).value_or("").c_str(), nullptr, 10);
  if (put_s <= 0) return std::chrono::seconds::max();
  return std::chrono::seconds(std::time(nullptr) - put_s);
}

// The signature that it came with.
Result<Signature> LocalTier::check(const Digest& key, const std::string& manifest,
                                   std::string_view signer) const {
  const auto lines = read_file(file(key, ".sig"));
  if (!lines && lines.error().code != Code::kNotFound) return fail(lines.error());
  const std::string text = lines.value_or("\n\n");
  const size_t end = text.find('\n');
  const std::string origin = text.substr(0, end);
  const size_t rest = end == std::string::npos ? text.size() : end + 1;
  TRY(Signature came_with, Signature::parse(origin));
  TRY(const Signature copied, Signature::parse(text.substr(rest, text.find('\n', rest) - rest)));
  const std::string what = "program " + key.short_hex() + " in " + programs_.string();
  auto own = read_public_key(signing_);
  if (!own && is_the_machines(own.error())) return fail(std::move(own).error());
  TRY_STATUS(verify_signature(signed_copy(key, manifest, origin), copied, own.value_or(""), what));
  if (signer.empty()) return came_with;
  if (came_with.bytes.empty())
    return fail(Code::kPermissionDenied,
                what +
                    " was compiled on this machine and carries no signature of the key that is "
                    "pinned: it is not loaded");
  TRY_STATUS(verify_signature(signed_program(manifest), came_with, signer, what));
  return came_with;
}

Result<ProgramFiles> LocalTier::get(const Digest& key, std::string_view signer) {
  ProgramFiles files;
  TRY(files.manifest, read_file(file(key, ".json")));
  auto signature = check(key, files.manifest, signer);
  auto program = program_from_json(files.manifest);
  if (!signature || !program) {
    if (signature || !is_the_machines(signature.error())) remove(key);
    return fail(signature ? program.error() : signature.error());
  }
  files.program = *std::move(program);
  files.signature = *std::move(signature);
  for (const ProgramKernel& kernel : files.program.kernels) {
    TRY(std::string binary, blobs_->get(kernel.blob));
    files.artifacts.push_back(artifact_of(kernel, std::move(binary)));
  }
  bound_.used(files_of(key, files.program));
  return files;
}

// Removes half-written files of killed processes. Visits some three hundred directories, at the
// first put() only: a start-up that hits does not pay for it.
void LocalTier::sweep() const {
  remove_unpublished(programs_);
  std::error_code error;
  for (std::filesystem::directory_iterator shard(shards_, error), end; !error && shard != end;
       shard.increment(error))
    remove_unpublished(shard->path());
}

Status LocalTier::put(const Digest& key, const ProgramFiles& files) {
  std::call_once(swept_, [this] { sweep(); });
  for (const Artifact& artifact : files.artifacts)
    TRY_STATUS(blobs_->put(artifact.binary).map([](const Digest&) {}));
  const std::string manifest =
      files.manifest.empty() ? program_to_json(files.program) : files.manifest;
  TRY(const SigningKey own, SigningKey::load_or_create(signing_));
  const std::string origin = files.signature.to_string();
  const std::string copy = own.sign(signed_copy(key, manifest, origin)).to_string();
  TRY_STATUS(publish_unsynced(file(key, ".sig"), origin + "\n" + copy + "\n"));
  TRY_STATUS(publish_unsynced(file(key, ".put"), std::to_string(std::time(nullptr)) + "\n"));
  TRY_STATUS(publish_unsynced(file(key, ".json"), manifest));
  auto bytes = static_cast<int64_t>(manifest.size());
  for (const Artifact& artifact : files.artifacts)
    bytes += static_cast<int64_t>(artifact.binary.size());
  bound_.written(files_of(key, files.program), bytes);
  return {};
}

}  // namespace kiln
