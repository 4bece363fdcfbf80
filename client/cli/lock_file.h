// The lock file: which program each model had when it was locked, so that a later build gets the
// same or fails. `kiln lock` prints it, `kiln compile --locked` holds builds to it, `kiln bundle`
// takes it for a list. It is text, for version control:
//
//   kiln-lock 1
//   program models/softmax.pt2             the file, as it was named
//     target cpu:x86-64-v3
//     units 2                              of the device it was tuned for; left out where unknown
//     device Intel(R) Xeon(R) Processor    the same
//     toolkit cuda-13                      the same
//     mode max-autotune
//     graph DIGEST                         what is computed
//     digest DIGEST                        of what runs: pinned_digest()
//     kernel WORKLOAD BLOB SCHEDULE        each, to name what changed
//
// Lines that begin with # are comments. Plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/program/program.h"

namespace kiln::cli {

struct LockedKernel {
  Digest workload, blob;
  std::string schedule;
  bool operator==(const LockedKernel&) const = default;
};

struct LockedProgram {
  std::string file;
  Target target;
  Mode mode = Mode::kDefault;
  Digest graph, digest;
  std::vector<LockedKernel> kernels;
  bool operator==(const LockedProgram&) const = default;
};

// The digest of what runs: the binaries, their schedules, and the launches in order. When and where
// a program was tuned, and how fast it was, is no part of it. Equal digests compute the same bits on the same device.
Digest pinned_digest(const Program& program);

LockedProgram lock_of(const std::string& file, const Program& program);

std::string print_lock(const std::vector<LockedProgram>& programs);
// kInvalidArgument names the line that is wrong; kUnsupported: a newer Kiln wrote it.
Result<std::vector<LockedProgram>> parse_lock(std::string_view text, const std::string& name);
bool is_lock(std::string_view text);  // it begins as one

// The differences between two, a sentence each; empty: none that matters.
std::vector<std::string> changes(const LockedProgram& was, const LockedProgram& now);

}  // namespace kiln::cli
