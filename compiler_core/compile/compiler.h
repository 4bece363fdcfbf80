// The host compiler, as a killable child process: source text in, shared object out. A value;
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/codegen/lower.h"
#include "compiler_core/program/program.h"

namespace kiln {

class HostCompiler {
 public:
  // Finds the compiler ($KILN_CXX is read by main and passed here; else g++, then c++, then clang++
  // on PATH). kNotFound when there is none.
  static Result<HostCompiler> find(std::string_view preferred = {});

  // "g++ (Debian 12.2.0-14+deb12u1) 12.2.0": part of the candidate key.
  const std::string& build() const { return build_; }

  // Spares a compile: digest of source text, path-free flags and compiler build.
  Digest candidate_key(const Source& source, const Target& target) const;

  // The same source, target and build give the same bytes. kInvalidArgument with the compiler's
  // output when the source is refused (a verdict, not a fault); kDeadlineExceeded past the timeout
  // (the child's process group is killed); kUnavailable when the compiler cannot run; kUnsupported
  // for a target that is not an x86-64 level.
  Result<Artifact> compile(const Source& source, const Target& target, int64_t timeout_ms) const;

 private:
  HostCompiler(std::string path, std::string build)
      : path_(std::move(path)), build_(std::move(build)) {}
  std::string path_, build_;
};

// What the compiler is told besides the names of files; no paths.
std::vector<std::string> compile_flags(const Target& target);

// Plans, lowers the first schedule of every kernel and compiles it here, without timing: what
// `default` mode gives with no service at hand. Compiles with up to `jobs` processes.
struct LocalCompilation {
  Program program;
  std::vector<Artifact> artifacts;  // one per program.kernels
};
Result<LocalCompilation> compile_locally(const Graph& canonical, const Digest& graph_digest,
                                         const Target& target, const HostCompiler& compiler,
                                         int jobs);

}  // namespace kiln
