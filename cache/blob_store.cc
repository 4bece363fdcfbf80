#include "cache/blob_store.h"

#include <unistd.h>

#include <vector>

namespace kiln {

Result<std::unique_ptr<BlobStore>> BlobStore::open(Path root) {
  TRY_STATUS(make_directories(root));
  return std::unique_ptr<BlobStore>(new BlobStore(std::move(root)));
}

Path BlobStore::path_of(const Digest& digest) const {
  const std::string name = digest.hex();
  return root_ / name.substr(0, 2) / name;
}

Result<Digest> BlobStore::put(std::string_view bytes) {
  const Digest digest = Digest::of(bytes);
  const Path path = path_of(digest);
  if (const Result<std::string> present = read_file(path)) {
    if (*present == bytes || read_or_quarantine(digest)) return digest;
  }
  TRY_STATUS(make_directories(path.parent_path()));
  TRY_STATUS(publish_file(path, bytes));
  return digest;
}

Result<std::string> BlobStore::get(const Digest& digest) {
  Result<std::string> bytes = read_file(path_of(digest));
  if (!bytes && bytes.error().code == Code::kNotFound)
    return fail(Code::kNotFound, "no blob " + digest.short_hex());
  if (!bytes || Digest::of(*bytes) == digest) return bytes;
  return read_or_quarantine(digest);
}

// The damaged file is kept for whoever wants to know what happened to the disk. Between our
// caller's read and now, another thread may have moved it away or put it right.
Result<std::string> BlobStore::read_or_quarantine(const Digest& digest) {
  const std::scoped_lock lock(quarantine_mu_);
  const Path path = path_of(digest);
  Result<std::string> bytes = read_file(path);
  if (!bytes || Digest::of(*bytes) == digest) return bytes;
  const Path aside = root_ / "quarantine";
  std::error_code error;
  std::filesystem::create_directories(aside, error);
  std::filesystem::rename(path, aside / digest.hex(), error);
  // Where moving fails (a read-only disk), a damaged blob must still not stand in the way of a put.
  if (error) std::filesystem::remove(path, error);
  ++corrupt_;
  return fail(Code::kCorruption, "blob " + digest.short_hex() + " is damaged; it was set aside");
}

bool BlobStore::contains(const Digest& digest) const {
  return ::access(path_of(digest).c_str(), F_OK) == 0;
}

Status BlobStore::remove(const Digest& digest) {
  std::error_code error;
  std::filesystem::remove(path_of(digest), error);
  if (error) return fail(Code::kUnavailable, "cannot remove a blob: " + error.message());
  return {};
}

void BlobStore::remove_leftovers() {
  std::error_code error;
  std::vector<Path> leftovers;
  std::filesystem::recursive_directory_iterator entry(root_, error), end;
  for (; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().find(".tmp.") != std::string::npos)
      leftovers.push_back(entry->path());
  for (const Path& path : leftovers) std::filesystem::remove(path, error);
}

}  // namespace kiln
