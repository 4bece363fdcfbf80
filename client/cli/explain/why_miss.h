// Why a program is not in the cache: the parts of its key compared with the nearest program's, and
// the kernels that would have to be tuned.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {

struct KeyComponent {
  std::string name;  // "graph", "isa", "mode", ..., and last "templates", with their versions
  std::string wanted;
  std::string nearest;  // empty when there is no entry at all
  bool differs() const { return wanted != nearest; }
};

// A kernel that no program for this target and mode has, or only with a stale winner: it would be
// tuned.
struct MissingKernel {
  size_t kernel = 0;  // of the program's
  // The parts of its key, compared with the nearest program that has the workload; empty: none has.
  std::vector<KeyComponent> components;
};

struct MissReport {
  Digest key;          // the ProgramKey that was looked for
  bool hit = false;    // it is there
  bool stale = false;  // it is there, planned with other templates: it would be planned again
  size_t entries = 0;  // programs looked at
  std::vector<KeyComponent> components;
  size_t kernels = 0, kernels_known = 0;  // workloads of the program; in any entry for this target
  std::vector<MissingKernel> missing;
  std::vector<std::string> asked;  // where the entries are from: a directory, a service
};

// `wanted`: the program's key and what it is made of, the workloads of its kernels, and the
// templates that cover them now. `entries`: every program that
// is known, from the cache or from others.
MissReport why_miss(const Program& wanted, const std::vector<Program>& entries);

// Says what a component that differs from the nearest entry's means, and what to do about it.
std::string meaning(const KeyComponent& component);

// Whether kernels of `entry` are for the target and mode that `wanted` asks for.
bool serves(const Program& entry, const Program& wanted);

// The programs of a client's cache directory; damaged ones are left out. Errors of the disk.
Result<std::vector<Program>> cached_programs(const Path& cache_dir);

// `kernels`: what to call each kernel of the program, "matmul at model.py:42 in forward".
std::string miss_text(const MissReport& report, const std::vector<std::string>& kernels);
nlohmann::ordered_json miss_json(const MissReport& report, const std::vector<std::string>& kernels);

}  // namespace kiln::cli
