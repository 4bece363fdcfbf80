#include "client/local_tier.h"

namespace kiln {

Result<std::unique_ptr<LocalTier>> LocalTier::open(const Path& root) {
  std::error_code error;
  std::filesystem::create_directories(root / "programs", error);
  if (error)
    return fail(Code::kUnavailable,
                "cannot create the cache directory " + root.string() + ": " + error.message());
  TRY(std::unique_ptr<BlobStore> blobs, BlobStore::open(root / "blobs"));
  return std::unique_ptr<LocalTier>(new LocalTier(root / "programs", std::move(blobs)));
}

Result<ProgramFiles> LocalTier::get(const Digest& key) {
  TRY(const std::string json, read_file(programs_ / (key.hex() + ".json")));
  ProgramFiles files;
  TRY(files.program, program_from_json(json));
  for (const ProgramKernel& kernel : files.program.kernels) {
    TRY(std::string binary, blobs_->get(kernel.blob));
    files.artifacts.push_back({kernel.recipe, std::move(binary), kernel.blob});
  }
  return files;
}

Status LocalTier::put(const Digest& key, const ProgramFiles& files) {
  for (const Artifact& artifact : files.artifacts)
    TRY_STATUS(blobs_->put(artifact.binary).map([](const Digest&) {}));
  return publish_file(programs_ / (key.hex() + ".json"), program_to_json(files.program));
}

}  // namespace kiln
