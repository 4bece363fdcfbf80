// Why a program is not in the cache: what its key is made of, against the nearest program there is.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {

struct KeyComponent {
  std::string name;  // "graph", "isa", "mode", "code generator", ...
  std::string wanted;
  std::string nearest;  // empty when there is no entry at all
  bool differs() const { return wanted != nearest; }
};

struct MissReport {
  Digest key;          // the ProgramKey that was looked for
  bool hit = false;    // it is there
  size_t entries = 0;  // programs looked at
  std::vector<KeyComponent> components;
  size_t kernels = 0, kernels_known = 0;  // workloads of the program; in any entry for this target
};

// `wanted`: identity of the program and the workloads of its kernels. `entries`: every program the
// cache has.
MissReport why_miss(const Program& wanted, const std::vector<Program>& entries);

// The programs of a client's cache directory; damaged ones are left out. Errors of the disk.
Result<std::vector<Program>> cached_programs(const Path& cache_dir);

std::string miss_text(const MissReport& report);
nlohmann::ordered_json miss_json(const MissReport& report);

}  // namespace kiln::cli
