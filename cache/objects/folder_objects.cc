#include "cache/objects/folder_objects.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>

namespace kiln {
namespace {

constexpr char kMark[] = ".kiln-objects";
constexpr char kMarkText[] = "Objects of Kiln, each a file. This file marks the folder.\n";

// The size and time of a file; none: it is gone, or no file of ours.
std::optional<ObjectInfo> facts_of(const Path& file, const std::string& name) {
  struct stat facts = {};
  if (::stat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return ObjectInfo{name, facts.st_size,
                    facts.st_mtim.tv_sec * int64_t{1000} + facts.st_mtim.tv_nsec / 1'000'000};
}

// Whatever the disk says is no fact about the object.
Error of_the_disk(Error error) {
  if (error.code != Code::kPermissionDenied) error.code = Code::kUnavailable;
  return error;
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> FolderObjects::open(Path root) {
  if (Status made = make_directories(root); !made) {
    made.error().code = Code::kUnavailable;
    return fail(made.error().within("the folder of objects"));
  }
  std::error_code error;
  if (!std::filesystem::exists(root / kMark, error)) {
    const bool empty = std::filesystem::is_empty(root, error);
    if (error) return fail(Code::kUnavailable, root.string() + ": " + error.message());
    if (!empty)
      return fail(Code::kInvalidArgument, root.string() + " has other files in it, and no " +
                                              kMark +
                                              ": name an empty folder, or one that Kiln made");
    TRY_STATUS(publish_file(root / kMark, kMarkText));
  }
  return std::unique_ptr<ObjectStore>(new FolderObjects(std::move(root)));
}

void FolderObjects::put(std::string name, std::string bytes, Then<void> done) {
  done(write(name, bytes));
}

void FolderObjects::get(std::string name, Then<std::string> done) {
  done(read(name));
}

void FolderObjects::remove(std::string name, Then<void> done) {
  done(erase(name));
}

void FolderObjects::list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) {
  done(page(after, static_cast<size_t>(std::clamp(limit, 1, kMaxListed))));
}

Result<std::string> FolderObjects::link(const std::string&, std::chrono::seconds) {
  return fail(Code::kUnsupported, describe() + " has no links: its objects are files");
}

Status FolderObjects::check_mark() const {
  std::error_code error;
  if (std::filesystem::exists(root_ / kMark, error)) return {};
  return fail(Code::kUnavailable, root_.string() + " has lost its mark (" + kMark +
                                      "): is the disk mounted? Nothing is known of its objects");
}

Status FolderObjects::write(const std::string& name, std::string_view bytes) const {
  TRY_STATUS(check_object_name(name));
  if (static_cast<int64_t>(bytes.size()) > max_object_bytes())
    return fail(Code::kInvalidArgument, name + " is larger than an object may be");
  TRY_STATUS(check_mark());
  const Path file = root_ / name;
  const auto publish = [&]() -> Status {
    if (file.parent_path() != root_) TRY_STATUS(make_directories(file.parent_path()));
    return publish_file(file, bytes);
  };
  return publish().map_error(of_the_disk);
}

Result<std::string> FolderObjects::read(const std::string& name) const {
  TRY_STATUS(check_object_name(name));
  auto bytes = read_file(root_ / name);
  if (bytes) return bytes;
  // Only a folder that is itself knows what it lacks.
  if (bytes.error().code == Code::kNotFound) {
    TRY_STATUS(check_mark());
    return fail(Code::kNotFound, describe() + " has no object " + name);
  }
  std::error_code gone;
  if (std::filesystem::is_directory(root_ / name, gone))
    return fail(Code::kNotFound, describe() + " has no object " + name + ": it is a folder");
  return std::move(bytes).map_error(of_the_disk);
}

Status FolderObjects::erase(const std::string& name) const {
  TRY_STATUS(check_object_name(name));
  TRY_STATUS(check_mark());
  std::error_code error;
  std::filesystem::remove(root_ / name, error);
  // "a" is no object where "a/b" is one, and the other way round.
  if (error && error != std::errc::not_a_directory && error != std::errc::directory_not_empty)
    return fail(Code::kUnavailable, "cannot remove " + name + ": " + error.message());
  return {};
}

Result<std::vector<ObjectInfo>> FolderObjects::page(const std::string& after, size_t limit) const {
  TRY_STATUS(check_mark());
  std::vector<ObjectInfo> objects;
  TRY_STATUS(add("", after, limit, objects));
  return objects;
}

// A folder counts as its name with a slash: so "a-b" comes before "a/b", as names do.
Status FolderObjects::add(const std::string& folder, const std::string& after, size_t limit,
                          std::vector<ObjectInfo>& objects) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(root_ / folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const std::string name = folder + entry->path().filename().string();
    const bool is_folder = entry->is_directory(gone);
    if (!check_object_name(name)) continue;  // the mark, and what is half written
    const bool passed =
        is_folder ? name + "/" < after && !after.starts_with(name + "/") : name <= after;
    if (!passed) names.push_back(is_folder ? name + "/" : name);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return fail(Code::kUnavailable,
                "cannot read " + (root_ / folder).string() + ": " + error.message());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (objects.size() == limit) break;
    if (name.ends_with('/'))
      TRY_STATUS(add(name, after, limit, objects));
    else if (const auto facts = facts_of(root_ / name, name))
      objects.push_back(*facts);
  }
  return {};
}

}  // namespace kiln
