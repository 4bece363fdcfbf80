#include "client/local_tier.h"

#include "compiler_core/base/unpublished.h"

namespace kiln {

Result<std::unique_ptr<LocalTier>> LocalTier::open(const Path& root) {
  std::error_code error;
  std::filesystem::create_directories(root / "programs", error);
  if (error)
    return fail(Code::kUnavailable,
                "cannot create the cache directory " + root.string() + ": " + error.message());
  TRY(std::unique_ptr<BlobStore> blobs, BlobStore::open(root / "blobs"));
  return std::unique_ptr<LocalTier>(new LocalTier(root, std::move(blobs)));
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

// What processes that were killed left half-written. Some three hundred directories: nothing for
// whoever starts up with all it needs, little for whoever had to ask the service.
void LocalTier::sweep() const {
  remove_unpublished(programs_);
  std::error_code error;
  for (std::filesystem::directory_iterator shelf(shelves_, error), end; !error && shelf != end;
       shelf.increment(error))
    remove_unpublished(shelf->path());
}

Status LocalTier::put(const Digest& key, const ProgramFiles& files) {
  std::call_once(swept_, [this] { sweep(); });
  for (const Artifact& artifact : files.artifacts)
    TRY_STATUS(blobs_->put(artifact.binary).map([](const Digest&) {}));
  return publish_file(programs_ / (key.hex() + ".json"), program_to_json(files.program));
}

}  // namespace kiln
