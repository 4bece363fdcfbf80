// How much memory this process could still get from its machine, and whether a program fits in it.
// Linux overcommits: without asking first, a program that is too large is killed as it runs.
// Private to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compiler_core/base/file.h"
#include "compiler_core/base/result.h"

namespace kiln {

// Bytes that are free, or would be freed for the asking (page cache, swap), on the machine and in
// the process's control groups, whichever is less; INT64_MAX when the system does not say. Reads a
// few files of /proc and /sys below `root`.
int64_t available_host_memory(const Path& root = "/");

// Memory for one purpose that grows: old and new never exist together.
struct MemoryNeed {
  std::string_view what;  // "arena"
  int64_t bytes = 0;      // what it has to be; not negative
  int64_t held = 0;       // what it is
};
bool grows(std::span<const MemoryNeed> needs);
// kOverloaded, with the bytes needed and available, unless all of `needs` fit in what is available
// on `where` and what they give back.
Status check_room(std::span<const MemoryNeed> needs, int64_t available, std::string_view where);

}  // namespace kiln
