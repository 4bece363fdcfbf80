#include "compiler_core/base/unpublished.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <string_view>

namespace kiln {
namespace {

// As publish_file names them: NAME.tmp.PID.COUNTER. 0: not such a name.
pid_t writer_of(std::string_view name) {
  constexpr std::string_view kMark = ".tmp.";
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos) return 0;
  const char* const digits = name.data() + mark + kMark.size();
  const char* const end = name.data() + name.size();
  pid_t pid = 0;
  const auto [after, error] = std::from_chars(digits, end, pid);
  return error == std::errc() && after != end && *after == '.' && pid > 0 ? pid : 0;
}

bool is_gone(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// A process of an earlier life may have had the number of one that lives now.
bool is_old(const Path& file) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file, error);
  const auto now = std::filesystem::file_time_type::clock::now();
  return !error && now - written > std::chrono::hours(1);
}

}  // namespace

void remove_unpublished(const Path& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    const pid_t writer = writer_of(name);
    std::error_code ignored;
    if (writer != 0 && (is_gone(writer) || is_old(at->path())))
      std::filesystem::remove(at->path(), ignored);
  }
}

}  // namespace kiln
