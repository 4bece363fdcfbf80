#include "compiler_core/runtime/host_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace kiln {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kUnknown : sum;
}

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value >= 0 ? std::optional(value) : std::nullopt;
}

// The number behind `key` at the start of a line; in a file of one number the key is empty.
std::optional<int64_t> number_in(const Path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_not_of(" \t", key.size());
    return digits == std::string::npos ? std::nullopt
                                       : to_number(std::string_view(line).substr(digits));
  }
  return std::nullopt;
}

// The files of one version of control groups.
struct GroupFiles {
  const char *folder, *limit, *usage, *reclaimable;
};
constexpr GroupFiles kUnified = {"sys/fs/cgroup", "memory.max", "memory.current", "file "};
constexpr GroupFiles kFirstVersion = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_cache "};

int64_t available_in_group(const Path& group, const GroupFiles& files) {
  const auto limit = number_in(group / files.limit, "");  // "max": none
  const auto usage = number_in(group / files.usage, "");
  if (!limit || !usage) return kUnknown;
  const int64_t cache = number_in(group / "memory.stat", files.reclaimable).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*usage - cache, 0), 0);
}

// A limit of a group holds for all within it. Inside a container the group's own folder may be
// mounted as the root of all.
int64_t available_in_groups(const Path& root) {
  int64_t available = kUnknown;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:memory:/jobs/17" or "0::/jobs/17"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const GroupFiles& files = controllers.empty() ? kUnified : kFirstVersion;
    for (Path group = Path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      available = std::min(available, available_in_group(root / files.folder / group, files));
      if (group.empty()) break;
    }
  }
  return available;
}

}  // namespace

int64_t available_host_memory(const Path& root) {
  const Path meminfo = root / "proc/meminfo";  // in kB
  const auto free = number_in(meminfo, "MemAvailable:");
  const int64_t machine =
      free ? (*free + number_in(meminfo, "SwapFree:").value_or(0)) * 1024 : kUnknown;
  return std::min(machine, available_in_groups(root));
}

bool grows(std::span<const MemoryNeed> needs) {
  return std::any_of(needs.begin(), needs.end(),
                     [](const MemoryNeed& need) { return need.bytes > need.held; });
}

Status check_room(std::span<const MemoryNeed> needs, int64_t available, std::string_view where) {
  int64_t needed = 0;
  std::string parts;
  for (const MemoryNeed& need : needs) {
    if (need.bytes <= need.held) continue;
    needed = saturating_add(needed, need.bytes);
    available = saturating_add(available, need.held);
    parts += fmt::format("{}{} for its {}", parts.empty() ? "" : ", ", need.bytes, need.what);
  }
  if (needed <= available) return {};
  return fail(Code::kOverloaded,
              fmt::format("the program needs {} bytes ({}), and {} are available on {}: free some "
                          "there, or run it with smaller sizes",
                          needed, parts, available, where));
}

}  // namespace kiln
