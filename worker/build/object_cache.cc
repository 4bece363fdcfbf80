#include "worker/build/object_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler_core/base/unpublished.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "kiln-object 1 ";
constexpr size_t kHeaderBytes = kMagic.size() + 64 + 1;

struct Entry {
  Path path;
  std::filesystem::file_time_type used;
  int64_t bytes = 0;
};

// Files of this cache, the least recently used first. Others in the directory are left alone.
std::vector<Entry> entries_of(const Path& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".object") continue;
    std::error_code vanished;
    Entry entry{it->path(), it->last_write_time(vanished), 0};
    if (!vanished) entry.bytes = static_cast<int64_t>(it->file_size(vanished));
    if (!vanished) entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::used);
  return entries;
}

// Whether only root and we decide what lies in `directory`, where it stands. In those above it
// others may write if they cannot move what is not theirs (/tmp).
Status check_ours(const Path& directory) {
  std::error_code error;
  const Path real = std::filesystem::canonical(directory, error);
  for (Path at = real; !error; at = at.parent_path()) {
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0) break;
    const bool sticky = at != real && (status.st_mode & S_ISVTX) != 0;
    const mode_t others = at == real ? S_IWGRP | S_IWOTH : S_IWOTH;
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
      return fail(Code::kPermissionDenied,
                  fmt::format("{} is another user's, who could put objects there", at.string()));
    if (!sticky && (status.st_mode & others) != 0)
      return fail(Code::kPermissionDenied,
                  fmt::format("others may write in {} and could put objects there: chmod go-w it",
                              at.string()));
    if (at == at.root_path()) return {};
  }
  return fail(Code::kPermissionDenied, "cannot see whose folder " + directory.string() + " is");
}

}  // namespace

Result<ObjectCache> ObjectCache::open(Path directory, int64_t max_bytes) {
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  ::mkdir(directory.c_str(), 0700);  // if it is there: whose it is says check_ours
  TRY_STATUS(check_ours(directory));
  const Path probe = directory / "writable";
  TRY_STATUS(write_file(probe, ""));
  std::filesystem::remove(probe, error);
  remove_unpublished(directory);
  ObjectCache cache(std::move(directory), max_bytes);
  cache.trim();
  return cache;
}

ObjectCache::ObjectCache(Path directory, int64_t max_bytes)
    : directory_(std::move(directory)), max_bytes_(max_bytes) {}

ObjectCache::ObjectCache(ObjectCache&& other) noexcept
    : directory_(std::move(other.directory_)), max_bytes_(other.max_bytes_), bytes_(other.bytes_) {}

std::optional<std::string> ObjectCache::find(const Digest& key) {
  const Path path = path_of(key);
  auto bytes = read_file(path);
  if (!bytes) return std::nullopt;
  std::error_code ignored;
  const bool framed = bytes->size() >= kHeaderBytes && bytes->starts_with(kMagic) &&
                      (*bytes)[kHeaderBytes - 1] == '\n';
  std::string object = framed ? bytes->substr(kHeaderBytes) : std::string();
  if (!framed || bytes->substr(kMagic.size(), 64) != Digest::of(object).hex()) {
    std::filesystem::remove(path, ignored);
    return std::nullopt;
  }
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
  return object;
}

void ObjectCache::insert(const Digest& key, std::string_view object) {
  std::string bytes(kMagic);
  bytes.append(Digest::of(object).hex()).append("\n").append(object);
  if (!publish_file(path_of(key), bytes)) return;
  const std::lock_guard lock(mu_);
  bytes_ += static_cast<int64_t>(bytes.size());
  if (bytes_ > max_bytes_) trim();
}

// Down to three quarters, so that not every insert has to look at the whole directory.
void ObjectCache::trim() {
  std::vector<Entry> entries = entries_of(directory_);
  bytes_ = 0;
  for (const Entry& entry : entries) bytes_ += entry.bytes;
  if (bytes_ <= max_bytes_) return;
  for (const Entry& entry : entries) {
    if (bytes_ <= max_bytes_ / 4 * 3) return;
    std::error_code ignored;
    std::filesystem::remove(entry.path, ignored);
    bytes_ -= entry.bytes;
  }
}

}  // namespace kiln
