#include "cache/damaged.h"

#include <fmt/core.h>
#include <sys/stat.h>

namespace kiln {
namespace {

// A rename changes the time of the inode, and no other.
void remove_old(const Path& file, int64_t before_ms, SetAside& removed) {
  struct stat facts = {};
  if (::lstat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  const int64_t since_ms = facts.st_ctim.tv_sec * int64_t{1000} + facts.st_ctim.tv_nsec / 1'000'000;
  std::error_code error;
  if (since_ms >= before_ms || !std::filesystem::remove(file, error)) return;
  ++removed.files;
  removed.bytes += facts.st_size;
}

template <class Wanted>
void remove_old_in(const Path& folder, int64_t before_ms, Wanted wanted, SetAside& removed) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error))
    if (wanted(entry->path().filename().string())) remove_old(entry->path(), before_ms, removed);
}

}  // namespace

// The note goes last, so that a start that was killed in between is finished by the next: what is
// gone already is done. A note that stayed would cost every later start its index.
Result<Path> set_database_aside(const Path& file) {
  Path aside = file;
  for (int number = 1; aside == file || std::filesystem::exists(aside); ++number) {
    aside = file;
    aside += fmt::format(".damaged.{}", number);
  }
  for (const char* suffix : {"", "-wal", "-shm", kDamageNote}) {
    Path from = file, to = aside;
    from += suffix;
    to += suffix;
    std::error_code error;
    std::filesystem::rename(from, to, error);
    if (error && error != std::errc::no_such_file_or_directory)
      return fail(Code::kUnavailable,
                  fmt::format("cannot set {} aside: {}", from.string(), error.message()));
  }
  return aside;
}

SetAside remove_set_aside(const Path& directory, int64_t before_ms) {
  SetAside removed;
  remove_old_in(
      directory, before_ms,
      [](const std::string& name) { return name.find(".sqlite.damaged.") != std::string::npos; },
      removed);
  remove_old_in(
      directory / "blobs" / "quarantine", before_ms, [](const std::string&) { return true; },
      removed);
  return removed;
}

}  // namespace kiln
