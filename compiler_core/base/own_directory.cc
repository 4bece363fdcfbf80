#include "compiler_core/base/own_directory.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace kiln {
namespace {

tl::unexpected<Error> refused(std::string message) {
  return fail(Code::kPermissionDenied, std::move(message));
}

// The part of a line of /proc/locks that says who holds what:
// "1: FLOCK  ADVISORY  WRITE 708 00:13:16 0 EOF"
struct Holder {
  int pid = 0;  // 0: of another namespace
  unsigned major = 0, minor = 0;
  unsigned long inode = 0;
};
std::optional<Holder> parse_holder(const std::string& line) {
  std::istringstream words(line);
  std::string number, kind, how, mode, place;
  Holder holder;
  if (!(words >> number >> kind >> how >> mode >> holder.pid >> place) || kind != "FLOCK")
    return std::nullopt;  // one that waits has "->" before its kind
  if (std::sscanf(place.c_str(), "%x:%x:%lu", &holder.major, &holder.minor, &holder.inode) != 3)
    return std::nullopt;
  return holder;
}

std::string name_of(int pid) {
  if (pid <= 0) return "a process outside this container";
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name.empty() ? fmt::format("pid {}", pid) : fmt::format("pid {} ({})", pid, name);
}

constexpr int kMostLinks = 40;  // as the kernel follows

bool is_trusted(const struct stat& status) {
  return status.st_uid == ::geteuid() || status.st_uid == 0;
}

// kItself: only its owner may write there. kAbove: nobody may move what is not theirs.
enum class Place : uint8_t { kItself, kAbove };

// `real`, which has no links, is in this place, and all folders where it lies are above.
Status check_up_from(const Path& real, Place place) {
  for (Path at = real;; at = at.parent_path(), place = Place::kAbove) {
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0)
      return refused("cannot see whose folder " + at.string() + " is");
    const bool sticky = place == Place::kAbove && (status.st_mode & S_ISVTX) != 0;
    const mode_t others = place == Place::kItself ? S_IWGRP | S_IWOTH : S_IWOTH;
    const std::string lies = at == real ? "" : fmt::format(", where {} lies", real.string());
    if (!is_trusted(status))
      return refused(
          fmt::format("{}{} is another user's, who could put things there: name a "
                      "directory of your own",
                      at.string(), lies));
    if (!sticky && (status.st_mode & others) != 0)
      return refused(
          fmt::format("others may write in {}{}, and could put things there: chmod go-w "
                      "it, or name a directory of your own",
                      at.string(), lies));
    if (at == at.root_path()) return {};
  }
}

// Whether nobody else can point a link on the way elsewhere, now or later.
Status check_links(const Path& path, int most) {
  if (most == 0) return refused(path.string() + " is a link to links without end");
  Path walked;
  for (const Path& part : path) {
    const Path folder = walked;
    walked /= part;
    struct stat status {};
    if (::lstat(walked.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) continue;
    if (!is_trusted(status))
      return refused(
          fmt::format("{} is another user's link, who could point it elsewhere: name a directory "
                      "of your own",
                      walked.string()));
    std::error_code error;
    const Path target = std::filesystem::read_symlink(walked, error);
    const Path real_folder = std::filesystem::canonical(folder, error);
    if (error) return refused("cannot see where " + walked.string() + " leads");
    TRY_STATUS(check_up_from(real_folder, Place::kAbove));
    TRY_STATUS(check_links(folder / target, most - 1));
  }
  return {};
}

}  // namespace

Status check_ours(const Path& directory) {
  std::error_code error;
  const Path named = std::filesystem::absolute(directory, error);
  const Path real = std::filesystem::canonical(directory, error);
  if (error) return refused("cannot see whose folder " + directory.string() + " is");
  TRY_STATUS(check_links(named, kMostLinks));
  return check_up_from(real, Place::kItself);
}

Status make_private_directory(const Path& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(Code::kUnavailable, fmt::format("cannot create the directory {}: {}",
                                                directory.string(), std::strerror(errno)));
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    return refused(directory.string() + " is no directory, and no link to one is followed");
  return check_ours(directory);
}

std::string lock_holders(const Path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return {};
  std::set<int> exact, alike;  // some file systems show another device there
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    const auto holder = parse_holder(line);
    if (!holder || holder->inode != status.st_ino) continue;
    alike.insert(holder->pid);
    if (holder->major == ::major(status.st_dev) && holder->minor == ::minor(status.st_dev))
      exact.insert(holder->pid);
  }
  std::string names;
  for (const int pid : exact.empty() ? alike : exact)
    names += (names.empty() ? "" : ", ") + name_of(pid);
  return names;
}

}  // namespace kiln
