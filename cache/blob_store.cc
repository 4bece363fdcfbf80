#include "cache/blob_store.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler_core/base/unsynced_file.h"

namespace kiln {
namespace {

const std::string kTemporaryMark = ".tmp.";  // publish_file: NAME.tmp.PID.NUMBER

}  // namespace

Result<std::unique_ptr<BlobStore>> BlobStore::open(Path root, Keeps keeps) {
  TRY_STATUS(make_directories(root));
  return std::unique_ptr<BlobStore>(new BlobStore(std::move(root), keeps));
}

Path BlobStore::path_of(const Path& root, const Digest& digest) {
  const std::string name = digest.hex();
  return root / name.substr(0, 2) / name;
}

Status BlobStore::make_folder(const Digest& digest) {
  std::atomic<bool>& made = made_folders_[digest.bytes[0]];
  if (made) return {};
  const Path folder = path_of(digest).parent_path();
  // One that cannot be made is one that cannot be written to.
  if (keeps_ == Keeps::kWhileItCan) return ::mkdir(folder.c_str(), 0755), made = true, Status{};
  TRY_STATUS(make_directories(folder));
  made = true;
  return {};
}

// An existing file may not be durable yet: a put may have failed or been killed after the rename,
// or one of another process may still be at it. So the folder is synced for existing files too.
Result<Digest> BlobStore::put(std::string_view bytes) {
  const Digest digest = Digest::of(bytes);
  const Path path = path_of(digest);
  if (const Result<std::string> present = read_file(path)) {
    if (*present == bytes || read_or_quarantine(digest)) {
      if (keeps_ == Keeps::kWhileItCan) return digest;
      TRY_STATUS(make_folder(digest));
      TRY_STATUS(sync_directory(path.parent_path()));
      return digest;
    }
  }
  TRY_STATUS(make_folder(digest));
  TRY_STATUS(keeps_ == Keeps::kDurably ? publish_file(path, bytes) : publish_unsynced(path, bytes));
  return digest;
}

Result<std::string> BlobStore::get(const Digest& digest) {
  Result<std::string> bytes = read_file(path_of(digest));
  if (!bytes && bytes.error().code == Code::kNotFound)
    return fail(Code::kNotFound, "no blob " + digest.short_hex());
  if (!bytes || Digest::of(*bytes) == digest) return bytes;
  return read_or_quarantine(digest);
}

// The damaged file is kept as evidence of what happened to the disk. Between the caller's read and
// this one, another thread may have moved it away or replaced it.
Result<std::string> BlobStore::read_or_quarantine(const Digest& digest) {
  const std::scoped_lock lock(quarantine_mu_);
  const Path path = path_of(digest);
  Result<std::string> bytes = read_file(path);
  if (!bytes || Digest::of(*bytes) == digest) return bytes;
  const Path aside = root_ / "quarantine";
  std::error_code error;
  (void)make_directories(aside);
  std::filesystem::rename(path, aside / digest.hex(), error);
  // If it cannot be moved, remove it: a damaged blob must not stand in the way of a put.
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

std::vector<BlobStore::File> BlobStore::list(int shard) const {
  std::vector<File> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(root_ / fmt::format("{:02x}", shard), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    struct stat facts = {};
    if (::stat(entry->path().c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    File& file = files.emplace_back();
    file.path = entry->path();
    if (const auto digest = Digest::parse(file.path.filename().string())) file.digest = *digest;
    file.bytes = facts.st_size;
    file.written_ms = facts.st_mtim.tv_sec * int64_t{1000} + facts.st_mtim.tv_nsec / 1'000'000;
  }
  return files;
}

void BlobStore::remove_leftovers(int shard, int64_t before_ms) {
  const std::string ours = kTemporaryMark + std::to_string(::getpid()) + ".";
  std::error_code error;
  for (const File& file : list(shard)) {
    const std::string name = file.path.filename().string();
    if (name.find(kTemporaryMark) == std::string::npos) continue;
    if (file.written_ms < before_ms || name.find(ours) == std::string::npos)
      std::filesystem::remove(file.path, error);
  }
}

}  // namespace kiln
