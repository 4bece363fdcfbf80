#include "cache/local_blobs.h"

#include <fmt/core.h>

#include <array>

#include "cache/blob_store.h"

namespace kiln {

Result<std::string> LocalBlobs::get(const Digest& digest) {
  if (max_bytes_ == 0) return fail(Code::kNotFound, "no copies are kept");
  const Path file = BlobStore::path_of(folder_, digest);
  Result<std::string> bytes = read_file(file);
  if (!bytes) return fail(Code::kNotFound, "no copy of blob " + digest.short_hex());
  if (Digest::of(*bytes) != digest) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    return fail(Code::kNotFound, "the copy of blob " + digest.short_hex() + " was damaged");
  }
  bound_.used(std::array{file});
  ++hits_;
  return bytes;
}

// Renamed into place, so that no reader sees half of it; not synced, since a copy that a crash tears
// is a damaged one.
void LocalBlobs::keep(const Digest& digest, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > max_bytes_ / 2) return;
  const Path file = BlobStore::path_of(folder_, digest);
  const Path written = Path(file) += fmt::format(".tmp.{}", ++written_);
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (write_file(written, bytes)) std::filesystem::rename(written, file, error);
  if (error || !std::filesystem::exists(file, error)) {
    std::filesystem::remove(written, error);
    return;
  }
  bound_.written(std::array{file}, size);
}

void LocalBlobs::clear() {
  if (max_bytes_ == 0) return;
  std::error_code ignored;
  std::filesystem::directory_iterator shard(folder_, ignored), end;
  for (; !ignored && shard != end; shard.increment(ignored))
    std::filesystem::remove_all(shard->path(), ignored);
}

}  // namespace kiln
