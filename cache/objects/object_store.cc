#include "cache/objects/object_store.h"

#include <algorithm>

#include "cache/objects/folder_objects.h"
#include "cache/objects/s3_objects.h"

namespace kiln {
namespace {

constexpr size_t kMaxNameBytes = 512;
constexpr std::string_view kFileScheme = "file://", kS3Scheme = "s3://";

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

}  // namespace

Status check_object_name(std::string_view name) {
  const auto refuse = [&](const char* why) -> Status {
    return fail(Code::kInvalidArgument,
                "'" + std::string(name.substr(0, 80)) + "' is no name of an object: " + why);
  };
  if (name.empty() || name.size() > kMaxNameBytes) return refuse("it has 1 to 512 bytes");
  if (!std::ranges::all_of(name, is_name_byte))
    return refuse("it has letters, digits and . _ - / only");
  if (name.find(".tmp.") != std::string_view::npos) return refuse("it contains .tmp.");
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    if (end == start || name[start] == '.')
      return refuse("no part between slashes is empty or begins with a dot");
    start = end + 1;
  }
  return {};
}

Result<std::unique_ptr<ObjectStore>> open_objects(const std::string& url,
                                                  const ObjectStoreOptions& options) {
  if (url.starts_with(kS3Scheme)) return S3Objects::open(url.substr(kS3Scheme.size()), options.s3);
  const bool is_file = url.starts_with(kFileScheme);
  if (url.empty() || (!is_file && url.find("://") != std::string::npos))
    return fail(Code::kInvalidArgument,
                "'" + url + "' is no place for objects: s3://BUCKET/PREFIX or a folder's path");
  return FolderObjects::open(Path(is_file ? url.substr(kFileScheme.size()) : url));
}

}  // namespace kiln
