#include "worker/build/object_cache.h"

#include <array>
#include <string>

#include "compiler_core/base/file.h"
#include "compiler_core/base/own_directory.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "kiln-object 1 ";
constexpr size_t kHeaderBytes = kMagic.size() + 64 + 1;

}  // namespace

Result<ObjectCache> ObjectCache::open(Path directory, int64_t max_bytes) {
  (void)make_directories(directory.parent_path());
  TRY_STATUS(make_private_directory(directory));
  std::error_code error;
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
