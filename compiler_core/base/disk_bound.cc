#include "compiler_core/base/disk_bound.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

namespace kiln {
namespace {

constexpr int64_t kLooksPerBound = 20;
constexpr int64_t kLowPercent = 90;  // room is made down to here, so that it is seldom

struct Found {
  Path path;
  int64_t bytes = 0;
  int64_t used_ns = 0;
};

int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

void add_files_of(const Path& folder, const std::string& extension, std::vector<Found>& files) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (!extension.empty()) {
      entry.disable_recursion_pending();
      if (entry->path().extension() != extension) continue;
    }
    struct stat facts = {};
    if (::lstat(entry->path().c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    files.push_back({entry->path(), facts.st_size, nanoseconds(facts.st_mtim)});
  }
}

}  // namespace

// A nanosecond apart, which keeps their order.
void DiskBound::stamp(std::span<const Path> files) {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  now.tv_nsec = std::min(now.tv_nsec, 999'000'000L);
  for (const Path& file : files) {
    const timespec times[2] = {{0, UTIME_OMIT}, now};
    (void)::utimensat(AT_FDCWD, file.c_str(), times, 0);
    now.tv_nsec = std::min(now.tv_nsec + 1, 999'999'999L);
  }
}

void DiskBound::used(std::span<const Path> files) const {
  if (max_bytes_ == 0 || files.empty()) return;
  struct stat facts = {};
  if (::stat(files.front().c_str(), &facts) != 0) return;
  if (::time(nullptr) - facts.st_mtim.tv_sec >= options_.used_again_s) stamp(files);
}

void DiskBound::written(std::span<const Path> files, int64_t bytes) {
  if (max_bytes_ == 0) return;
  stamp(files);
  if ((unseen_bytes_ += bytes) < max_bytes_ / kLooksPerBound) return;
  const std::unique_lock lock(mu_, std::try_to_lock);
  if (!lock) return;
  unseen_bytes_ = 0;
  make_room();
}

void DiskBound::make_room() const {
  std::vector<Found> files;
  for (const Path& folder : folders_) add_files_of(folder, options_.extension, files);
  int64_t bytes = 0;
  for (const Found& file : files) bytes += file.bytes;
  if (bytes <= max_bytes_) return;
  std::ranges::sort(files, {}, &Found::used_ns);
  std::error_code ignored;
  for (const Found& file : files) {
    if (bytes <= max_bytes_ / 100 * kLowPercent) return;
    if (std::filesystem::remove(file.path, ignored)) bytes -= file.bytes;
  }
}

}  // namespace kiln
