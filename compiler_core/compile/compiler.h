// The host compiler, as a killable child process: source text in, shared object out. A value;
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/compile/child_process.h"
#include "compiler_core/compile/kernel_compiler.h"

namespace kiln {

class HostCompiler final : public KernelCompiler {
 public:
  // Finds the compiler ($KILN_CXX is read by main and passed here; else g++, then c++, then clang++
  // on PATH). kNotFound when there is none.
  static Result<HostCompiler> find(std::string_view preferred = {});

  // The same compiler, its processes started by `start` and bounded in memory by it: what then
  // lacks memory is refused (kInvalidArgument), where it says nothing about the source otherwise.
  HostCompiler confined(StartChild start) const;

  const std::string& command() const { return path_; }  // a name on PATH, or a path
  const std::string& build() const override { return build_; }
  Digest candidate_key(const Source& source, const Target& target) const override;
  // Past the timeout the child's process group is killed. Targets: the x86-64 levels.
  Result<Artifact> compile(const Source& source, const Target& target,
                           int64_t timeout_ms) const override;

 private:
  HostCompiler(std::string path, std::string build)
      : path_(std::move(path)), build_(std::move(build)) {}
  std::string path_, build_;
  StartChild start_;  // empty: as any child
};

// The compiler's arguments but for the names of files; no paths.
std::vector<std::string> compile_flags(const Target& target);

}  // namespace kiln
