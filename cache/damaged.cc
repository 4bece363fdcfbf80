#include "cache/damaged.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

namespace kiln {
namespace {

// Empty when nothing is wrong. By this check a page that could not be read is wrong, too.
Result<std::string> problem_of(Database& db) {
  Query check(db, "PRAGMA quick_check(1)");
  TRY(const bool row, check.next());
  if (!row) return "no answer to quick_check";
  return std::string(check.bytes(0) == "ok" ? std::string_view() : check.bytes(0));
}

Result<Path> file_of(Database& db) {
  Query list(db, "PRAGMA database_list");  // number, name, file
  TRY(const bool row, list.next());
  return row ? Path(list.bytes(2)) : Path();
}

// Whether the file can be read to its end.
bool can_be_read(const Path& file) {
  std::ifstream in(file, std::ios::binary);
  std::array<char, 1 << 16> chunk;
  while (in.read(chunk.data(), chunk.size())) {
  }
  return in.eof() && !in.bad();
}

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

Status check_soundness(Database& db) {
  TRY(const std::string problem, problem_of(db));
  if (problem.empty()) return {};
  TRY(const Path file, file_of(db));
  if (!can_be_read(file))
    return fail(Code::kUnavailable, "the disk does not give " + file.string() + " (" + problem +
                                        "): it may be sound, and was left as it is");
  TRY(std::string again, problem_of(db));
  if (again.empty()) return {};
  return fail(Code::kCorruption, std::move(again));
}

// The note goes last, so that the next start finishes what a killed one began; files that are gone
// already are skipped. A note that stayed would cost every later start its index.
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
