// Files: the few operations Kiln needs, each with its errno in the error. A full disk is
// Code::kUnavailable with "no space" in the message, so that callers can go on without storing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

using Path = std::filesystem::path;

Result<std::string> read_file(const Path& path);

// Plain write, for scratch files that nobody reads after a crash.
Status write_file(const Path& path, std::string_view bytes);

// Publishes `bytes` at `path` so that a reader sees all of it or nothing, and it survives power
// loss: temp file in the same directory, write, fsync, rename, fsync directory. The one place
// where that sequence is written down.
Status publish_file(const Path& path, std::string_view bytes);

// Like publish_file, for a file that only its owner can ever read (mode 0600), such as a private
// key. An existing file stays as it is: of several processes that publish at once the first wins,
// so read the file again afterwards. A killed process leaves what remove_unpublished() removes.
Status publish_secret(const Path& path, std::string_view bytes);

// Removes from `directory` (not below it) the temporary files of publish_file whose process was
// killed, or that are older than an hour. Where other hosts write there too, a file that one of
// them is writing may be removed: its publish then fails, as on a full disk. Errors are ignored.
void remove_unpublished(const Path& directory);

// Makes the names in `directory` survive power loss, whichever process put them there.
Status sync_directory(const Path& directory);

// Creates the directories of `path` that are missing; they survive power loss, as does the last one
// when it is there already (whoever made it may not have come so far).
Status make_directories(const Path& path);

// A directory that is removed, with what is in it, when the object goes.
class TempDir {
 public:
  static Result<TempDir> create(std::string_view prefix = "kiln");
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();
  const Path& path() const { return path_; }

 private:
  explicit TempDir(Path path) : path_(std::move(path)) {}
  Path path_;
};

// An exclusive or shared advisory lock (flock) on a file, released when the object goes or the
// process dies. Used for "one coordinator a data directory" and "one bench run a device".
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };
  // Waits. `try_acquire` answers kUnavailable at once when somebody else holds it.
  static Result<FileLock> acquire(const Path& path, Mode mode);
  static Result<FileLock> try_acquire(const Path& path, Mode mode);
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Makes writes to stderr drop what a full pipe or socket does not take at once: a service goes on
// though nobody reads its log. Files and terminals stay as they are, and so does the pipe for other
// processes that write to it. REQUIRES: no other thread runs yet.
void never_wait_for_stderr();

}  // namespace kiln
