#include "cache/soundness.h"

#include <array>
#include <fstream>

namespace kiln {
namespace {

// Empty: nothing is wrong. A page that could not be read is wrong, too, by this check.
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

// To its end, without keeping it.
bool can_be_read(const Path& file) {
  std::ifstream in(file, std::ios::binary);
  std::array<char, 1 << 16> chunk;
  while (in.read(chunk.data(), chunk.size())) {
  }
  return in.eof() && !in.bad();
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

}  // namespace kiln
