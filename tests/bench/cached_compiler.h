// CachedCompiler: the host compiler, whose binaries are kept in a directory from one run of a bench
// to the next, by candidate key: compiling takes minutes, timing seconds. Threads may share it, and
// processes the directory.
#pragma once

#include <filesystem>

#include "compiler_core/compile/compiler.h"

namespace kiln::bench {

class CachedCompiler final : public KernelCompiler {
 public:
  // An empty `directory`: nothing is kept.
  CachedCompiler(HostCompiler compiler, std::filesystem::path directory)
      : compiler_(std::move(compiler)), directory_(std::move(directory)) {}

  const std::string& build() const override { return compiler_.build(); }
  Digest candidate_key(const Source& source, const Target& target) const override {
    return compiler_.candidate_key(source, target);
  }
  Result<Artifact> compile(const Source& source, const Target& target,
                           int64_t timeout_ms) const override;

 private:
  HostCompiler compiler_;
  std::filesystem::path directory_;
};

}  // namespace kiln::bench
