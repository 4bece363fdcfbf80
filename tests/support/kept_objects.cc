#include "tests/support/kept_objects.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "compiler_core/base/disk_bound.h"
#include "compiler_core/base/own_directory.h"

namespace kiln::testing {
namespace {

constexpr int64_t kMostBytes = int64_t{2} << 30;
constexpr size_t kDigestChars = 64;  // in front of each object

DiskBound& bound(const Path& folder) {
  static DiskBound of_objects({folder}, kMostBytes, {.extension = ".object"});
  return of_objects;
}

void keep(const Path& folder, const Path& path, const std::string& object) {
  static std::atomic<int> written = 0;
  const Path unpublished =
      path.string() + "." + std::to_string(::getpid()) + "." + std::to_string(written.fetch_add(1));
  std::error_code failed;
  if (write_file(unpublished, Digest::of(object).hex() + object))
    std::filesystem::rename(unpublished, path, failed);
  else
    failed = std::make_error_code(std::errc::io_error);
  if (failed)
    std::filesystem::remove(unpublished, failed);  // it is compiled again some day
  else
    bound(folder).written(std::array{path}, static_cast<int64_t>(kDigestChars + object.size()));
}

}  // namespace

Path kept_folder(const std::string& name) {
  Path folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"))
    folder = Path(cache) / "kiln" / name;
  else if (const char* home = std::getenv("HOME"))
    folder = Path(home) / ".cache/kiln" / name;
  if (folder.empty() || !make_directories(folder.parent_path()) || !make_private_directory(folder))
    return {};
  return folder;
}

Result<std::string> kept_object(const Digest& key,
                                const std::function<Result<std::string>()>& compile) {
  static const Path folder = kept_folder("test-objects");
  if (folder.empty()) return compile();
  const Path path = folder / (key.hex() + ".object");
  if (const auto kept = read_file(path); kept && kept->size() > kDigestChars) {
    std::string object = kept->substr(kDigestChars);
    if (kept->starts_with(Digest::of(object).hex())) {
      bound(folder).used(std::array{path});
      return object;
    }
  }
  TRY(std::string object, compile());
  keep(folder, path, object);
  return object;
}

}  // namespace kiln::testing
