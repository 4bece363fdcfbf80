#include "worker/build/object_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "compiler_core/base/file.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "kiln-object 1 ";
constexpr size_t kHeaderBytes = kMagic.size() + 64 + 1;

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
  cache.bound_->written({}, 0);
  return cache;
}

ObjectCache::ObjectCache(Path directory, int64_t max_bytes)
    : directory_(std::move(directory)),
      bound_(std::make_unique<DiskBound>(std::vector{directory_}, max_bytes,
                                         DiskBound::Options{".object", 0})) {}

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
  bound_->used(std::array{path});
  return object;
}

void ObjectCache::insert(const Digest& key, std::string_view object) {
  std::string bytes(kMagic);
  bytes.append(Digest::of(object).hex()).append("\n").append(object);
  const Path path = path_of(key);
  if (publish_file(path, bytes))
    bound_->written(std::array{path}, static_cast<int64_t>(bytes.size()));
}

}  // namespace kiln
